"""Files as TensorFlow before 2.4 wrote them: operator codes in the deprecated field alone."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, float_model, packed, packed_with_weights_outside, run
from wording import says

from edgeconv import convert
from edgeconv.model.source import inspect_model
from edgeconv.model.tflite import float_layers, summarize, update_format
from edgeconv.model.tflite.flatbuffer import is_outdated, parse
from edgeconv.types import Artifact, Conversion, Execution

NO_CACHE = Execution(use_cache=False)
SIGNED = ("serving_default", ["x"], ["y"])


def as_before_2_4(model: schema.ModelT, *, version: int = 3) -> schema.ModelT:
    """The model with what files of that time have and lack."""
    for code in model.operatorCodes:
        code.deprecatedBuiltinCode = max(code.deprecatedBuiltinCode, code.builtinCode)
        code.builtinCode = 0
    model.signatureDefs = model.metadata = None
    model.version = version
    return model


def two_layers() -> schema.ModelT:
    """A convolution and a dense layer, of 432 and 640 weights."""
    random = np.random.default_rng(3)
    graph = Graph()
    x = graph.tensor("x", (1, 4, 4, 3), "float32", dynamic=True)
    kernel = random.normal(size=(16, 3, 3, 3)).astype(np.float32)
    w = graph.tensor("w", kernel.shape, "float32", data=kernel)
    b = graph.tensor("b", (16,), "float32", data=np.zeros(16, np.float32))
    hidden = graph.computed("hidden", (1, 2, 2, 16), "CONV_2D", [x, w, b], dynamic=True)
    convolution = graph.operators[-1]
    convolution.builtinOptions = schema.Conv2DOptionsT(padding=1, strideH=1, strideW=1)
    convolution.builtinOptions.dilationHFactor = convolution.builtinOptions.dilationWFactor = 1
    convolution.builtinOptionsType = schema.BuiltinOptions.Conv2DOptions
    dense = random.normal(size=(10, 64)).astype(np.float32)
    v = graph.tensor("v", dense.shape, "float32", data=dense)
    c = graph.tensor("c", (10,), "float32", data=np.zeros(10, np.float32))
    y = graph.computed("y", (1, 10), "FULLY_CONNECTED", [hidden, v, c], dynamic=True)
    return graph.model([x], [y])


def test_every_reader_gets_the_code_of_either_field():
    old = packed(as_before_2_4(two_layers()))
    assert [one.name for one in summarize(old, where="old").operators] == [
        "CONV_2D",
        "FULLY_CONNECTED",
    ]
    assert [code.builtinCode for code in parse(old, where="old").operatorCodes] == [3, 9]


def test_a_code_of_the_newer_field_keeps_the_deprecated_one_in_its_range():
    graph = Graph()
    x, y = (graph.tensor(name, (1, 4), "float32") for name in "xy")
    graph.operator("GELU", [x], [y])
    graph.codes[0].deprecatedBuiltinCode = 0
    (code,) = parse(packed(graph.model([x], [y])), where="it").operatorCodes
    assert (code.builtinCode, code.deprecatedBuiltinCode) == (150, 127)
    assert not is_outdated(packed(graph.model([x], [y])))


@pytest.mark.parametrize("pack", [packed, packed_with_weights_outside])
def test_a_file_is_brought_up_to_date_with_its_weights_and_only_where_it_is_old(pack):
    new = packed(float_model(signature=SIGNED))
    assert update_format(new) is new
    old = pack(as_before_2_4(float_model()))
    made = update_format(old)
    assert not is_outdated(made)
    x = np.array([[1, 2, 3, 4]], np.float32)
    np.testing.assert_array_equal(run(made, x)[0], run(old, x)[0])


def test_a_file_that_does_not_say_its_version_gets_it():
    made = update_format(packed(as_before_2_4(float_model(), version=0)))
    x = np.array([[1, 2, 3, 4]], np.float32)
    np.testing.assert_array_equal(run(made, x)[0], run(packed(float_model()), x)[0])


@pytest.fixture(scope="module")
def converted(tmp_path_factory) -> Conversion:
    """An old file to every recipe."""
    place = tmp_path_factory.mktemp("old")
    (place / "old.tflite").write_bytes(packed(as_before_2_4(two_layers())))
    samples = np.random.default_rng(5).normal(size=(48, 4, 4, 3)).astype(np.float32)
    np.savez(place / "samples.npz", x=samples)
    names = ["float32", "float16", "dynamic", "weight-only-int8", "int8", "int16x8"]
    return convert(
        place / "old.tflite",
        out=place / "out",
        to=names,
        calibration=str(place / "samples.npz"),
        execution=NO_CACHE,
    )


def test_an_old_file_is_quantized_by_every_recipe(converted):
    assert converted.failures == ()
    made = {one.recipe.name: one for one in converted.artifacts}
    assert made["float16"].float16_weight_share > 0.9
    for name in ("dynamic", "weight-only-int8", "int8", "int16x8"):
        assert made[name].quantized_weight_share > 0.9
        assert [o.snr_db > 20 for o in made[name].verification.outputs] == [True]
    notes = made["int8"].notes
    assert any("in the form of TensorFlow before 2.4" in note for note in notes)
    assert any("was given serving_default" in note for note in notes)


def test_the_float32_file_of_an_old_one_is_not_old(converted):
    floating = next(one for one in converted.artifacts if one.recipe.name == "float32")
    assert not is_outdated((Path(converted.directory) / floating.file).read_bytes())


def test_an_old_file_is_inspected_by_its_operators(tmp_path):
    (tmp_path / "old.tflite").write_bytes(packed(as_before_2_4(two_layers())))
    found = inspect_model(tmp_path / "old.tflite")
    assert [one.name for one in found.operators] == ["CONV_2D", "FULLY_CONNECTED"]


def float16_model() -> schema.ModelT:
    """The dense layer with its weights stored as float16, as TFLiteConverter writes them."""
    graph = Graph()
    x = graph.tensor("x", (1, 8), "float32")
    stored = graph.tensor("stored", (4, 8), "float16", data=np.ones((4, 8), np.float16))
    w = graph.computed("w", (4, 8), "DEQUANTIZE", [stored], version=3)
    y = graph.computed("y", (1, 4), "FULLY_CONNECTED", [x, w, -1])
    return graph.model([x], [y], signature=SIGNED)


def test_weights_that_a_kernel_could_have_smaller_are_counted():
    assert [one.compressible for one in float_layers(packed(two_layers()))] == [432, 640]
    assert [one.compressible for one in float_layers(packed(float16_model()))] == [0, 32]
    graph = Graph()
    x, y = (graph.tensor(name, (1, 4), "float32") for name in "xy")
    w = graph.tensor("w", (4,), "float32", data=np.ones(4, np.float32))
    graph.operator("MUL", [x, w], [y])
    assert [one.compressible for one in float_layers(packed(graph.model([x], [y])))] == [0]


def test_a_recipe_that_quantized_nothing_though_it_could_is_a_failure(tmp_path):
    (tmp_path / "half.tflite").write_bytes(packed(float16_model()))
    done = convert(
        tmp_path / "half.tflite",
        out=tmp_path / "out",
        to=["float16", "dynamic"],
        execution=NO_CACHE,
    )
    assert [one.recipe.name for one in done.artifacts] == ["float16"]
    (failure,) = done.failures
    assert failure.error == "VerificationFailed"
    says(failure)


def test_a_recipe_that_could_quantize_nothing_is_a_note(tmp_path):
    graph = Graph()
    x, y = (graph.tensor(name, (1, 4), "float32") for name in "xy")
    w = graph.tensor("w", (4,), "float32", data=np.ones(4, np.float32))
    graph.operator("MUL", [x, w], [y])
    (tmp_path / "scale.tflite").write_bytes(packed(graph.model([x], [y], signature=SIGNED)))
    done = convert(
        tmp_path / "scale.tflite",
        out=tmp_path / "out",
        to=["float16", "dynamic"],
        execution=NO_CACHE,
    )
    assert done.failures == ()
    made = msgspec.json.decode((tmp_path / "out/scale.dynamic.json").read_bytes(), type=Artifact)
    assert "nothing was quantized" in made.verification.warnings[0]
