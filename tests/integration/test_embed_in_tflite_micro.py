"""The golden vectors, and the arena, in TensorFlow Lite for Microcontrollers itself.

Its wheel on PyPI has the interpreter with the reference kernels, on this machine's processor.
"""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from commands import captured
from embed_models import float_tiny, int8_tiny, named_tiny, planned, published
from places import SHARED
from tiny_tflite import Graph, float_model, packed, packed_with_weights_outside

from edgeconv import convert, embed
from edgeconv.embedding.embedding import make_embedding
from edgeconv.embedding.micro import micro_values
from edgeconv.model.source import inspect_model
from edgeconv.requests.recipes import make_recipes
from edgeconv.runtimes.choice import parse_target_runtime
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.types.errors import EdgeconvError, InputRefused, UnsupportedOperators

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


@pytest.fixture(scope="module")
def tflite_micro(micro_cache) -> Path:
    """The Python of the environment that edgeconv makes for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(micro_cache))
        return Path(isolated_target(parse_target_runtime("tflite-micro")).python)


def embedded(file: Path, tmp_path: Path):
    return make_embedding(planned(file, "c", tmp_path / "out"))


# The generated self-test, whose runtime gives what is on standard input.
SELF_TEST = """
#include "net_self_test.h"
#include <stdio.h>
static int replay(void *context, const void *const *inputs, void *const *outputs) {
    (void)context;
    (void)inputs;
    for (size_t i = 0; i < NET_OUTPUT_COUNT; ++i) {
        if (fread(outputs[i], 1, net_outputs[i].bytes, stdin) != net_outputs[i].bytes) return 1;
    }
    return 0;
}
int main(void) {
    const net_report report = net_self_test(net_model, net_model_size, replay, NULL);
    printf("%s: %g\\n", net_verdict_text(report.verdict), report.largest_difference);
    return (int)report.verdict;
}
"""


def self_test(directory: Path, outputs: bytes) -> tuple[int, str]:
    """The exit code and the sentence of the compiled self-test, for these outputs."""
    program = directory / "program"
    (directory / "main.c").write_text(SELF_TEST)
    command = ["gcc", "-std=c11", "-Wall", "-Werror", "-I", directory, *directory.glob("*.c")]
    subprocess.run([*command, "-o", program], check=True)
    done = subprocess.run([program], input=outputs, capture_output=True, check=False)
    return done.returncode, done.stdout.decode().strip()


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
    done = captured([python, "-B", "-c", RUN, "job.json"], cwd=tmp_path)
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
def small_net(tmp_path_factory) -> Path:
    """A convolutional model of its own, converted by every recipe."""
    place = tmp_path_factory.mktemp("net")
    (place / "net.tflite").write_bytes(conv_net())
    values = np.random.default_rng(1).uniform(-1, 1, (24, 8, 8, 3)).astype(np.float32)
    np.savez(place / "cal.npz", x=values)
    names = ["float32", "int8", "int16x8", "weight-only-int8"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(place / "cache"))
        done = convert(
            place / "net.tflite",
            out=place / "out",
            to=make_recipes(names),
            calibration={"": str(place / "cal.npz")},
        )
    assert not done.failures, done.failures
    return place / "out"


def dense_net() -> bytes:
    """A regressor of three dense layers, with random weights."""
    rng = np.random.default_rng(3)
    graph = Graph()
    x = graph.tensor("x", (1, 12), "float32")
    last = x
    for number, units in enumerate((24, 16, 3)):
        inputs = 12 if last == x else graph.tensors[last].shape[1]
        w = rng.normal(0, 0.4, (units, inputs)).astype(np.float32)
        b = rng.normal(0, 0.4, units).astype(np.float32)
        weights = graph.tensor(f"w{number}", w.shape, "float32", data=w)
        bias = graph.tensor(f"b{number}", b.shape, "float32", data=b)
        y = graph.tensor(f"dense{number}", (1, units), "float32")
        graph.operator("FULLY_CONNECTED", [last, weights, bias], [y])
        last = y
        if units != 3:
            last = graph.tensor(f"tanh{number}", (1, units), "float32")
            graph.operator("TANH", [y], [last])
    return packed(graph.model([x], [last], signature=("serving_default", ["x"], ["y"])))


@pytest.mark.parametrize(
    ("make", "shape", "kind"), [("conv_net", (8, 8, 3), "int8"), ("dense_net", (12,), "float32")]
)
def test_the_self_test_is_exact_in_the_kernels_that_it_expects(
    tmp_path, tflite_micro, micro_cache, monkeypatch, make, shape, kind
):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(micro_cache))
    (tmp_path / "net.tflite").write_bytes(globals()[make]())
    values = np.random.default_rng(1).uniform(-1, 1, (60, *shape)).astype(np.float32)
    np.save(tmp_path / "cal.npy", values)
    options = {"calibration": {"": str(tmp_path / "cal.npy")}}
    recipes = make_recipes(["int8"], input_type=kind, output_type=kind)
    done = convert(tmp_path / "net.tflite", out=tmp_path / "m", to=recipes, **options)
    assert not done.failures
    file, out = tmp_path / "m" / "net.int8.tflite", tmp_path / "out"
    samples = {"symbol": "net", "vectors": 24, "data": str(tmp_path / "cal.npy")}
    embed(file, "c", out, option={"golden": "tflite-micro"}, **samples)
    header = (out / "net_self_test.h").read_text()
    assert "what tflite-micro gave" in header
    (tolerance,) = re.findall(r"_TOLERANCE (\S+?)f?$", header, re.MULTILINE)
    planned_here = planned(file, "c", out, options={"golden": "tflite-micro"}, **samples)
    made = make_embedding(planned_here)
    given, _ = answers(made, 1 << 20, tflite_micro, tmp_path)
    outputs = np.concatenate([array.reshape(1, -1) for (array,) in given])
    assert outputs.dtype == kind
    # A quarter of a step between two values that the integers can have.
    step = 1 if kind == "int8" else np.diff(np.unique(outputs)).min()
    assert float(tolerance) == (0 if kind == "int8" else pytest.approx(step / 4, rel=1e-3))
    assert len(np.unique(outputs)) > 10, "which a constant would not be"
    assert self_test(out, outputs.tobytes()) == (
        0,
        "passed: the outputs are those of tflite-micro: 0",
    )
    outputs[-1, -1] += step if outputs[-1, -1] < 0 else -step
    code, sentence = self_test(out, outputs.tobytes())
    assert (code, sentence.partition(":")[0]) == (3, "failed")


@pytest.mark.slow
def test_kernels_that_cannot_be_had_are_named_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    plan = planned(int8_tiny(tmp_path), "c", tmp_path / "out", options={"golden": "tflite-micro"})
    with pytest.raises(EdgeconvError) as refused:
        make_embedding(plan)
    assert "--option golden=litert" in refused.value.hint


def conv_net() -> bytes:
    """A convolution, a depthwise one and a dense layer, with random weights."""
    rng = np.random.default_rng(0)
    graph = Graph()

    def weights(name: str, *shape: int) -> int:
        data = (rng.standard_normal(shape) / 3).astype(np.float32)
        return graph.tensor(name, shape, "float32", data=data)

    x = graph.tensor("x", (1, 8, 8, 3), "float32")
    one, two = (graph.tensor(name, (1, 8, 8, 16), "float32") for name in ("one", "two"))
    graph.convolution([x, weights("w", 16, 3, 3, 3), weights("b", 16)], one, version=1)
    depthwise = [one, weights("v", 1, 3, 3, 16), weights("c", 16)]
    graph.convolution(depthwise, two, kind="DEPTHWISE_CONV_2D", version=1)
    flat = graph.tensor("flat", (1, 1024), "float32")
    shape = graph.tensor("s", (2,), "int32", data=np.array([1, 1024], np.int32))
    graph.operator("RESHAPE", [two, shape], [flat])
    y = graph.tensor("y", (1, 10), "float32")
    graph.operator("FULLY_CONNECTED", [flat, weights("u", 10, 1024), weights("d", 10)], [y])
    return packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"])))


def test_firmware_expects_the_answers_of_its_own_kernels_unless_another_runtime_runs_it(
    tmp_path, cli, micro_cache
):
    file = int8_tiny(tmp_path)
    for options, runtime in (
        ((), "tflite-micro"),
        (("--option", "micro=no"), "LiteRT"),
        (("--option", "golden=litert"), "LiteRT"),
    ):
        out = tmp_path / "-".join(["out", *options])
        done = cli(
            *("embed", file, "--target", "c", "-o", out, *options),
            EDGECONV_CACHE_DIR=str(micro_cache),
        )
        assert done.returncode == 0, done.stderr
        (header,) = out.glob("*_self_test.h")
        assert f"what {runtime} gave" in header.read_text()
