"""What a .tflite can say that no converter writes: a typed error or a right answer, in time."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from processor_time import at_most
from tiny_saved_model import meta_graph, signature, tensor, write_saved_model
from tiny_tflite import Graph, int8_model, packed
from wording import fails, says

from edgeconv.cli import run
from edgeconv.cli.printing import escaped_output
from edgeconv.model.source import chosen_signature, load
from edgeconv.types.errors import InputRefused

MILLION = 10**6


def relu(shape: tuple[int, ...] = (2,), names: tuple[str, str] = ("x", "y")) -> Any:
    graph = Graph()
    x, y = (graph.tensor(name, shape, "float32") for name in names)
    graph.operator("RELU", [x], [y])
    key = ("serving_default", [names[0]], [names[1]])
    return graph.model([x], [y], signature=key)


def no_inputs(model: Any) -> None:
    model.subgraphs[0].inputs = model.signatureDefs[0].inputs = []


def no_outputs(model: Any) -> None:
    model.subgraphs[0].outputs = model.signatureDefs[0].outputs = []


def one_name_twice(model: Any) -> None:
    model.signatureDefs[0].inputs *= 2


def shape_signature(model: Any) -> None:
    model.subgraphs[0].tensors[0].shapeSignature = np.array([-2], np.int32)


def quantization(model: Any, scale: float | list[float], points: list[int]) -> Any:
    first = model.subgraphs[0].tensors[0].quantization
    first.scale = np.atleast_1d(np.array(scale, np.float32))
    first.zeroPoint = np.array(points, np.int64)
    return model


def changed(change: Callable[[Any], None]) -> Any:
    model = relu()
    change(model)
    return model


UNUSABLE = {
    "has no inputs": changed(no_inputs),
    "has no outputs": changed(no_outputs),
    "have the same name": changed(one_name_twice),
    "shape [0, 4]": relu((0, 4)),
    "shape [4, 0]": relu((4, 0)),
    "shape [-3, 4]": relu((-3, 4)),
    "shape [-2]": changed(shape_signature),
    "1 scales and 0 zero points": quantization(int8_model(), 1.0, []),
    "scale that is not a positive": quantization(int8_model(), float("nan"), [0]),
    "a scale that is not a": quantization(int8_model(), -1.0, [0]),
    "that is not a positive number": quantization(int8_model(), float("inf"), [0]),
    "the zero point 1099511627776, which int8 does not hold": quantization(
        int8_model(), 1.0, [2**40]
    ),
    "has 4 scales": quantization(int8_model(), [1.0] * 4, [0] * 4),
}


@pytest.mark.parametrize("said", UNUSABLE)
def test_a_model_that_no_sample_can_be_given_to_is_refused_by_all_that_run_it(
    said, tmp_path, capsys
):
    file = tmp_path / "odd.tflite"
    file.write_bytes(packed(UNUSABLE[said]))
    np.savez(tmp_path / "data.npz", x=np.zeros((4, 2), np.float32), labels=np.zeros(4, np.int64))
    with fails(InputRefused):
        chosen_signature(load(file), None)
    for words in (
        ["convert", str(file), "--to", "float32", "-o", str(tmp_path / "out")],
        ["bench", str(file)],
        ["doctor", str(file), str(tmp_path / "data.npz")],
        ["debug", str(file), "--calibration", str(tmp_path / "data.npz")],
        ["embed", str(file), "--target", "cmake", "-o", str(tmp_path / "app")],
    ):
        with at_most(seconds=20):
            assert run(words) == 3, capsys.readouterr()
    # It can be looked at all the same.
    assert run(["inspect", str(file)]) == 0
    assert run(["scan", str(file)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "data.npz", "odd.tflite"}


def test_a_saved_model_of_5000_dimensions_is_refused_before_samples_are_made(tmp_path, capsys):
    wide = {"serving_default": signature({"x": tensor((1,) * 5000)}, {"y": tensor((2,))})}
    model = write_saved_model(tmp_path / "m", meta_graph(wide))
    assert run(["convert", str(model), "--to", "float32", "-o", str(tmp_path / "out")]) == 3
    says(capsys.readouterr().err)


def graph_input(model: Any) -> None:
    model.subgraphs[0].inputs = [1]
    model.signatureDefs = None


def signature_input(model: Any) -> None:
    model.signatureDefs[0].inputs[0].tensorIndex = 1


@pytest.mark.parametrize("change", [graph_input, signature_input])
def test_a_constant_that_samples_would_be_written_over_is_refused(change, tmp_path, capsys):
    file = tmp_path / "odd.tflite"
    model = int8_model()
    change(model)
    file.write_bytes(packed(model))
    for words in (["inspect"], ["bench"], ["embed", "--target", "c", "-o", str(tmp_path / "app")]):
        assert run([words[0], str(file), *words[1:]]) == 3
        says(capsys.readouterr().err)


def test_of_many_signatures_an_error_shows_the_first(tmp_path, capsys):
    file = tmp_path / "odd.tflite"
    model = relu()
    maps = model.signatureDefs[0]
    model.signatureDefs = [
        schema.SignatureDefT(signatureKey=f"k{i}", inputs=maps.inputs, outputs=maps.outputs)
        for i in range(900)
    ]
    file.write_bytes(packed(model))
    assert run(["convert", str(file), "--to", "float32", "-o", str(tmp_path / "out")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 103
    assert lines[-2:] == ["  | … (800 more lines)", "  next: choose one with --signature KEY"]


def deep(model: Any) -> None:
    model.subgraphs[0].tensors[0].shape = np.ones(5000, np.int32)


def large(model: Any) -> None:
    model.subgraphs[0].tensors[0].shape = np.array([2**16, 2**16, 2**13], np.int32)


def signatures(model: Any) -> None:
    maps = model.signatureDefs[0]
    model.signatureDefs = [
        schema.SignatureDefT(signatureKey=str(i), inputs=maps.inputs, outputs=maps.outputs)
        for i in range(20_000)
    ]


@pytest.mark.parametrize("change", [deep, large, signatures])
def test_what_takes_all_time_or_memory_is_refused_before_it_is_read(change, tmp_path, capsys):
    file = tmp_path / "odd.tflite"
    file.write_bytes(packed(changed(change)))
    for words in (
        ["inspect"],
        ["convert", "--to", "float32"],
        ["bench"],
        ["embed", "--target", "c", "-o", "app"],
        ["compare", str(file)],
    ):
        with at_most(seconds=2):
            assert run([*words, str(file)]) == 3
        error = capsys.readouterr().err
        assert "Traceback" not in error
        assert "next: give a file that a TFLite converter wrote" in error
        if change is deep:
            assert re.search("of 5000 dimensions: (it )?is more than any kernel takes", error)


def many_scales(model: Any) -> None:
    tensor = model.subgraphs[0].tensors[0]
    tensor.quantization = schema.QuantizationParametersT(
        scale=np.ones(MILLION, np.float32), zeroPoint=np.zeros(MILLION, np.int64)
    )


ODD = {
    "long names": relu(names=("x" * MILLION, "y" * MILLION)),
    "no names": relu(names=("", "")),
    "one name": relu(names=("x", "x")),
    "scales": changed(many_scales),
    "cycle": changed(lambda model: setattr(model.subgraphs[0].operators[0], "outputs", [0])),
    "no operators": changed(lambda model: setattr(model.subgraphs[0], "operators", [])),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_and_harmless_is_shown(name, tmp_path, capsys):
    file: Path = tmp_path / "odd.tflite"
    file.write_bytes(packed(ODD[name]))
    for words in (["inspect"], ["inspect", "--json"], ["scan"], ["compare", str(file)]):
        with at_most(seconds=10), escaped_output():
            assert run([words[0], str(file), *words[1:]]) == 0
    shown = capsys.readouterr().out
    if name == "long names":
        assert "(999,600 more characters)" in shown


def test_a_signature_without_a_name_is_an_error_in_words(tmp_path, capsys):
    file = tmp_path / "odd.tflite"
    model = relu()
    model.signatureDefs[0].signatureKey = ""
    file.write_bytes(packed(model))
    assert run(["convert", str(file), "--to", "float32", "-o", str(tmp_path / "out")]) == 3
    says(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
