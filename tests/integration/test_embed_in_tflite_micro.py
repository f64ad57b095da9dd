"""The golden vectors, and the arena, in TensorFlow Lite for Microcontrollers itself.

Its wheel on PyPI has the interpreter with the reference kernels, on this machine's processor.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from embed_models import float_tiny, int8_tiny, named_tiny, planned, published
from places import SHARED
from tiny_tflite import float_model, packed_with_weights_outside

from edgeconv.embedding.embedding import make_embedding
from edgeconv.embedding.micro import micro_values
from edgeconv.errors import InputRefused, UnsupportedOperators
from edgeconv.source import inspect_model

VERSION = "0.dev20261023182759"
MODELS = SHARED / "tflm_models"
# Those of tflite-micro's own examples that LiteRT runs too.
REAL = {
    "hello_world_float": "hello_world__models__hello_world_float.tflite",
    "hello_world_int8": "hello_world__models__hello_world_int8.tflite",
    "micro_speech": "micro_speech__models__micro_speech_quantized.tflite",
    "mnist_lstm_int8": "mnist_lstm__trained_lstm_int8.tflite",
    "mnist_lstm": "mnist_lstm__trained_lstm.tflite",
    "keyword_scrambled_8bit": "models__keyword_scrambled_8bit.tflite",
}
# A vector at a time in a fresh interpreter; what its allocations come to goes to the log.
RUN = """
import json, sys
import numpy as np
from tflite_micro import runtime

job = json.load(open(sys.argv[1]))
for vector, inputs in enumerate(job["inputs"]):
    interpreter = runtime.Interpreter.from_file(job["model"], arena_size=job["arena"])
    for place, file in inputs.items():
        interpreter.set_input(np.load(file), int(place))
    interpreter.invoke()
    for place in job["outputs"]:
        np.save("out-%d-%d.npy" % (vector, place), interpreter.get_output(place))
    interpreter.print_allocations()
"""


@pytest.fixture(scope="session")
def tflite_micro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has tflite-micro; not edgeconv's, which bytecode would break the seal of."""
    found = shutil.which("python3.11")
    python = sys.executable if sys.version_info[:2] == (3, 11) else found
    if python is None:
        pytest.skip("tflite-micro has wheels for CPython 3.11 only, which is not here")
    place = tmp_path_factory.mktemp("micro")
    subprocess.run([python, "-m", "venv", place / "venv"], check=True)
    pip = [place / "venv/bin/python", "-m", "pip", "install", "-q", "--only-binary", ":all:"]
    done = subprocess.run(
        [*pip, f"tflite-micro=={VERSION}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"tflite-micro {VERSION} cannot be installed here: {done.stderr[-200:]}")
    return place / "venv/bin/python"


def embedded(file: Path, tmp_path: Path):
    return make_embedding(planned(file, "c", tmp_path / "out"))


def answers(made, arena: int, python: Path, tmp_path: Path) -> tuple[list[list[np.ndarray]], str]:
    """What tflite-micro gives for each golden vector, and its log."""
    inputs = []
    for number, vector in enumerate(made.golden.vectors):
        files = {}
        for port, part in zip(made.inputs, vector.inputs, strict=True):
            file = tmp_path / f"in-{number}-{port.index}.npy"
            np.save(file, np.frombuffer(part, port.dtype).reshape(port.fixed))
            files[port.graph_index] = str(file)
        inputs.append(files)
    places = [port.graph_index for port in made.outputs]
    job = {"model": str(made.model), "arena": arena, "inputs": inputs, "outputs": places}
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        [python, "-c", RUN, "job.json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    given = [
        [np.load(tmp_path / f"out-{number}-{place}.npy") for place in places]
        for number in range(len(inputs))
    ]
    return given, log


def check(made, python: Path, tmp_path: Path) -> tuple[int, int]:
    """Compares, in an arena of the estimated size; returns what it took of how much."""
    arena = micro_values(made)["arena"]
    given, log = answers(made, arena.estimate, python, tmp_path)
    for vector, outputs in zip(made.golden.vectors, given, strict=True):
        rows = zip(made.outputs, vector.outputs, outputs, made.golden.tolerances, strict=True)
        for port, part, got, tolerance in rows:
            expected = np.frombuffer(part, port.dtype).reshape(port.fixed).astype(np.float64)
            allowed = tolerance.absolute if port.dtype == "float32" else tolerance.steps
            np.testing.assert_allclose(got.astype(np.float64), expected, rtol=0, atol=allowed)
    total = next(line for line in log.splitlines() if "Arena allocation total" in line)
    return int(total.split()[-2]), arena.estimate


def test_tiny_models_give_the_golden_outputs_in_the_estimated_arena(tmp_path, tflite_micro):
    for make in (int8_tiny, float_tiny):
        used, estimate = check(embedded(make(tmp_path), tmp_path), tflite_micro, tmp_path)
        assert 0.2 * estimate < used <= estimate


def test_the_planner_has_room_for_many_small_tensors(tmp_path, tflite_micro):
    names = [f"x{number}" for number in range(40)]
    used, estimate = check(embedded(named_tiny(tmp_path, names), tmp_path), tflite_micro, tmp_path)
    assert used <= estimate < 3 * used + 4096


def test_weights_that_it_does_not_see_are_refused(tmp_path):
    file = published(tmp_path / "m", packed_with_weights_outside(float_model()), recipe="float32")
    with pytest.raises(InputRefused, match="outside of the flatbuffer"):
        micro_values(embedded(file, tmp_path))
    assert inspect_model(file).missing_in_micro == ("weights outside of the flatbuffer",)


@pytest.mark.parametrize("name", sorted(REAL))
def test_real_models_give_the_golden_outputs_in_the_estimated_arena(tmp_path, tflite_micro, name):
    source = MODELS / REAL[name]
    if not source.is_file():
        pytest.skip("needs the models of tflite-micro, in ../shared/data/tflm_models")
    made = embedded(published(tmp_path / "m", source.read_bytes(), recipe="int8"), tmp_path)
    used, estimate = check(made, tflite_micro, tmp_path)
    assert used <= estimate < 3 * used + 4096


@pytest.mark.parametrize("recipe", ["float32", "int8", "int16x8"])
def test_every_recipe_that_it_is_said_to_run_it_runs(tmp_path, tflite_micro, recipe, small_net):
    made = embedded(small_net / f"net.{recipe}.tflite", tmp_path)
    used, estimate = check(made, tflite_micro, tmp_path)
    assert used <= estimate < 3 * used + 4096


def test_a_weight_only_model_which_it_gets_wrong_is_refused(tmp_path, tflite_micro, small_net):
    made = embedded(small_net / "net.weight-only-int8.tflite", tmp_path)
    with pytest.raises(UnsupportedOperators, match="DEQUANTIZE with a scale for each channel"):
        micro_values(made)
    # It runs there, without an error, and answers something else.
    given, _ = answers(made, 1 << 20, tflite_micro, tmp_path)
    expected = np.frombuffer(made.golden.vectors[0].outputs[0], np.float32)
    assert np.abs(given[0][0] - expected).max() > 1


@pytest.fixture(scope="session")
def small_net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolutional model of its own, converted by every recipe."""
    from edgeconv import convert
    from edgeconv.quantize.recipes import make_recipes

    place = tmp_path_factory.mktemp("net")
    (place / "net.tflite").write_bytes(conv_net())
    values = np.random.default_rng(1).uniform(-1, 1, (24, 8, 8, 3)).astype(np.float32)
    np.savez(place / "cal.npz", x=values)
    names = ["float32", "int8", "int16x8", "weight-only-int8"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(place / "cache"))
        done = convert(
            place / "net.tflite",
            place / "out",
            make_recipes(names),
            calibration={"": str(place / "cal.npz")},
        )
    assert not done.failures, done.failures
    return place / "out"


def conv_net() -> bytes:
    """A convolution, a depthwise one, a mean and a dense layer, with random weights."""
    from ai_edge_litert import schema_py_generated as schema
    from tiny_tflite import Graph, packed

    rng = np.random.default_rng(0)
    graph = Graph()

    def weights(name: str, *shape: int) -> int:
        data = (rng.standard_normal(shape) / 3).astype(np.float32)
        return graph.tensor(name, shape, "float32", data=data)

    x = graph.tensor("x", (1, 8, 8, 3), "float32")
    one = graph.tensor("one", (1, 8, 8, 16), "float32")
    graph.operator("CONV_2D", [x, weights("w", 16, 3, 3, 3), weights("b", 16)], [one])
    convolution = schema.Conv2DOptionsT(
        padding=schema.Padding.SAME, strideW=1, strideH=1, dilationWFactor=1, dilationHFactor=1
    )
    two = graph.tensor("two", (1, 8, 8, 16), "float32")
    graph.operator("DEPTHWISE_CONV_2D", [one, weights("v", 1, 3, 3, 16), weights("c", 16)], [two])
    depthwise = schema.DepthwiseConv2DOptionsT(
        padding=schema.Padding.SAME,
        strideW=1,
        strideH=1,
        depthMultiplier=1,
        dilationWFactor=1,
        dilationHFactor=1,
    )
    flat = graph.tensor("flat", (1, 1024), "float32")
    shape = graph.tensor("s", (2,), "int32", data=np.array([1, 1024], np.int32))
    graph.operator("RESHAPE", [two, shape], [flat])
    y = graph.tensor("y", (1, 10), "float32")
    graph.operator("FULLY_CONNECTED", [flat, weights("u", 10, 1024), weights("d", 10)], [y])
    for operator, options in zip(graph.operators, (convolution, depthwise), strict=False):
        operator.builtinOptions = options
        operator.builtinOptionsType = getattr(
            schema.BuiltinOptions, type(options).__name__.removesuffix("T")
        )
    return packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"])))
