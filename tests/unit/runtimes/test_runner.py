import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tiny_tflite import BIASES, WEIGHTS, Graph, float_model, int8_model, packed
from wording import fails
from worker_tasks import FREE

from edgeconv.data import Samples, write_samples
from edgeconv.model.tflite import with_uint8_io
from edgeconv.runtimes.conversation import Conversation, Runner
from edgeconv.runtimes.in_process import open_interpreter
from edgeconv.runtimes.interface import Model
from edgeconv.runtimes.local import RUNNER, IdleRunners, RuntimePython, start_run
from edgeconv.runtimes.runner import (
    LoadedModel,
    RequestHandler,
    dequantize,
    is_stable,
    quantize,
    warm_up,
)
from edgeconv.system.processes.sandbox import Access
from edgeconv.types import Allowance, Timing
from edgeconv.types.errors import InternalError, ToolFailed, WorkerCrashed, WorkerTimedOut

SERVING = ("serving_default", ["x"], ["y"])
X = np.random.default_rng(3).uniform(-4, 4, (6, 4)).astype(np.float32)
# Far beyond what int8 can hold, and exactly between two of its steps.
X[0], X[1] = [1e6, -1e6, 3.4e38, 0], [0.25, 0.75, -0.25, -0.75]


@pytest.fixture
def place(tmp_path) -> Path:
    """An empty directory, for the model, the samples and the runs."""
    return tmp_path


def execute(
    place: Path, model: bytes | schema.ModelT, inputs: dict[str, Any], **options: Any
) -> tuple[Any, dict[str, Any]]:
    """What the runner said of a model on samples, and the outputs."""
    file, samples = place / "model.tflite", place / "samples"
    file.write_bytes(model if isinstance(model, bytes) else packed(model))
    write_samples(Samples(inputs, None, "made here"), samples)
    options = {"scratch": place, "signature": None} | options
    with start_run(file, samples, **options) as running:
        run = running.result()
        return run, run.outputs


def runner(place: Path, **options: Any) -> Runner:
    """A runner that serves, in this Python."""
    settings = {"package": "ai_edge_litert", "label": "LiteRT", "scratch": place} | options
    command = (sys.executable, str(RUNNER))
    return Runner(command=command, access=Access(), **settings)


def timed(
    place: Path, model: schema.ModelT, inputs: dict[str, Any], timing: Timing, **options: Any
) -> Any:
    """What it says of the times of a model."""
    file = place / "model.tflite"
    file.write_bytes(packed(model))
    settings = {name: options.pop(name) for name in ("batch", "signature") if name in options}
    described = Model(file=file, **settings)
    return runner(place, **options).time(str(file), described, inputs, timing)


def by_hand(x: np.ndarray) -> np.ndarray:
    """W x + b in float64."""
    return x.astype(np.float64) @ WEIGHTS.T.astype(np.float64) + BIASES


def on_grid(value: np.ndarray, scale: float, zero_point: int, dtype: str) -> np.ndarray:
    """The floats that the nearest values of a quantised tensor stand for."""
    limits = np.iinfo(dtype)
    levels = np.clip(np.rint(value / scale) + zero_point, limits.min, limits.max)
    return (levels - zero_point) * scale


def test_a_float_model_gives_what_it_computes(place):
    run, outputs = execute(place, float_model(signature=SERVING), {"x": X[2:]})
    assert (run.runtime, list(run.outputs)) == ("ai_edge_litert", ["y"])
    assert run.version
    assert run.load_us > 0
    assert outputs["y"].dtype == np.float32
    np.testing.assert_allclose(outputs["y"], by_hand(X[2:]), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("io_type", ["int8", "uint8"])
def test_a_quantised_model_takes_and_gives_floats_by_its_own_scales(io_type, place):
    model = packed(int8_model())
    if io_type == "uint8":
        model = with_uint8_io(model, inputs=True, outputs=True)
    _, outputs = execute(place, model, {"x": X})
    # The scales of int8_model; a uint8 zero point is 128 higher and stands for the same.
    seen = on_grid(X.astype(np.float64), 0.5, -3, "int8")
    expected = on_grid(by_hand(seen), 64.0, 5, "int8")
    assert outputs["y"].dtype == np.float32
    # Where a sum lies between two steps the kernel may round up or down.
    between = np.abs(by_hand(seen) / 64.0 % 1 - 0.5) < 1e-6
    assert (np.abs(outputs["y"] - expected) <= 64 * between).all()
    assert not between.all()


def test_samples_that_are_integers_already_are_not_scaled_again(place):
    levels = np.array([[-128, 0, 1, 127]], np.int8)
    _, outputs = execute(place, int8_model(), {"x": levels})
    _, same = execute(place, int8_model(), {"x": (levels.astype(np.float32) + 3) * 0.5})
    np.testing.assert_array_equal(outputs["y"], same["y"])


def quantized_by_litert(value: np.ndarray, dtype: str, scale: float, zero_point: int) -> np.ndarray:
    """What LiteRT's own QUANTIZE makes of it."""
    graph = Graph()
    x = graph.tensor("x", value.shape, "float32")
    y = graph.computed("y", value.shape, "QUANTIZE", [x], dtype, scale=scale, zero_point=zero_point)
    return LoadedModel(open_interpreter(packed(graph.model([x], [y], signature=SERVING)))).invoke(
        {"x": value}
    )["y"]


@given(
    levels=arrays(np.int32, 64, elements=st.integers(-70_000, 70_000)),
    near=arrays(np.int8, 64, elements=st.integers(-3, 3)),
    scale=st.floats(2.0**-20, 2.0**10, width=32),
    dtype=st.sampled_from(["int8", "uint8", "int16"]),
    zero_point=st.integers(-128, 255),
)
def test_floats_are_quantized_to_the_bit_as_litert_does_it(levels, near, scale, dtype, zero_point):
    """Ties, and the floats around them, are where other ways of rounding differ."""
    limits = np.iinfo(dtype)
    zero_point = 0 if dtype == "int16" else min(max(zero_point, limits.min), limits.max)
    values = ((levels + 0.5) * np.float64(scale)).astype(np.float32)
    for step in range(1, 4):
        up, down = near >= step, near <= -step
        values[up] = np.nextafter(values[up], np.float32(np.inf))
        values[down] = np.nextafter(values[down], np.float32(-np.inf))
    expected = quantized_by_litert(values, dtype, scale, zero_point)
    np.testing.assert_array_equal(quantize(values, dtype, scale, zero_point), expected)


@given(
    value=arrays(np.float32, 5, elements=st.floats(-1e9, 1e9, width=32)),
    scale=st.floats(1e-3, 1e3),
    zero_point=st.integers(-128, 127),
)
def test_what_is_quantised_and_back_is_the_nearest_value_of_the_grid(value, scale, zero_point):
    levels = quantize(value, np.int8, scale, zero_point)
    assert levels.dtype == np.int8
    back = dequantize(levels, scale, zero_point).astype(np.float64)
    expected = on_grid(value.astype(np.float64), scale, zero_point, "int8")
    # Next to the middle of two levels both are the nearest: the scale's inverse is a float32.
    is_tie = np.abs(np.abs(expected - value) - scale / 2) <= 1e-5 * (np.abs(value) + scale)
    np.testing.assert_allclose(back[~is_tie], expected[~is_tie], rtol=1e-6)
    assert (np.abs(back - expected)[is_tie] <= scale * 1.001).all()
    low, high = ((end - zero_point) * scale for end in (-128, 127))
    inside = (value >= low) & (value <= high)
    assert (np.abs(back - value)[inside] <= scale / 2 * 1.001).all()


def test_a_tensor_without_a_scale_is_left_as_it_is():
    value = np.array([7, -7], np.int32)
    assert quantize(value, np.int32, 0.0, 0).tolist() == [7, -7]
    assert dequantize(value, 0.0, 0) is value


def difference_model(*, batch: int = 1, dynamic: bool = False) -> schema.ModelT:
    """total = a + b, twice = a + a."""
    graph = Graph()
    a = graph.tensor("tensor_a", (batch, 2), "float32", dynamic=dynamic)
    b = graph.tensor("tensor_b", (batch, 2), "float32", dynamic=dynamic)
    total = graph.computed("tensor_t", (batch, 2), "ADD", [a, b])
    twice = graph.computed("tensor_w", (batch, 2), "ADD", [a, a])
    names = ("go", ["first", "second"], ["total", "twice"])
    return graph.model([a, b], [total, twice], signature=names)


A = np.arange(12, dtype=np.float32).reshape(6, 2)
B = 100 * A + 7


@pytest.mark.parametrize(
    ("shape", "batch"), [({}, 1), ({"batch": 3}, 3), ({"dynamic": True}, 1), ({"dynamic": True}, 4)]
)
def test_several_inputs_and_outputs_go_by_name_in_batches_and_come_back_in_order(
    shape, batch, place
):
    """A batch of 4 out of 6 samples leaves a last one of 2, which a dynamic model takes."""
    model = difference_model(**shape)
    run, outputs = execute(place, model, {"second": B, "first": A}, signature="go", batch=batch)
    assert list(run.outputs) == ["total", "twice"]
    np.testing.assert_array_equal(outputs["total"], A + B)
    np.testing.assert_array_equal(outputs["twice"], 2 * A)


@pytest.mark.parametrize(("shape", "batch"), [({}, 1), ({"dynamic": True}, 4)])
def test_a_model_without_a_signature_is_run_by_the_names_of_its_tensors(shape, batch, place):
    model = difference_model(**shape)
    model.signatureDefs = None
    inputs = {"tensor_b": B, "tensor_a": A}
    run, outputs = execute(place, model, inputs, batch=batch)
    assert list(run.outputs) == ["tensor_t", "tensor_w"]
    assert len(timed(place, model, inputs, Timing(repeats=3), batch=batch).samples_us) == 3
    np.testing.assert_array_equal(outputs["tensor_t"], A + B)
    np.testing.assert_array_equal(outputs["tensor_w"], 2 * A)


def test_the_runs_of_a_model_are_the_same_with_more_threads(place):
    one, two = (
        execute(place, float_model(signature=SERVING), {"x": X[2:]}, threads=threads)[1]["y"]
        for threads in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(("others", "batch"), [(1, 1), (1, 4), (3, 1), (9, 4)])
def test_other_interpreters_take_their_share_of_the_samples_in_their_order(others, batch, place):
    model = difference_model(dynamic=True)
    inputs = {"first": A, "second": B}
    _, outputs = execute(place, model, inputs, signature="go", batch=batch, others=others)
    np.testing.assert_array_equal(outputs["total"], A + B)
    np.testing.assert_array_equal(outputs["twice"], 2 * A)


# What cannot be run


@pytest.mark.parametrize(
    ("inputs", "signature", "reason"),
    [
        ({"x": X[:, :3]}, None, "RuntimeError|ValueError"),
        ({"z": X}, None, "z"),
        ({"x": X}, "training", "training"),
    ],
)
def test_samples_or_a_signature_that_do_not_fit_fail_with_the_reason(
    inputs, signature, reason, place
):
    with pytest.raises(ToolFailed, match=reason) as caught:
        execute(place, float_model(signature=SERVING), inputs, signature=signature)
    assert "running model.tflite in ai_edge_litert" in str(caught.value)


def test_a_model_that_the_interpreter_refuses_fails_with_the_interpreters_reason(place):
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    y = graph.computed("y", (1, 4), "NoSuchOperator", [x])
    with fails(ToolFailed):
        execute(place, graph.model([x], [y], signature=SERVING), {"x": X})


@pytest.mark.parametrize("content", [b"", b"garbage" * 100, b"\x1c\0\0\0TFL3" + b"\0" * 64])
def test_a_file_that_is_no_model_fails(content, place):
    with fails(ToolFailed):
        execute(place, content, {"x": X})


def test_a_runtime_that_is_not_installed_fails_with_its_name(place):
    missing = RuntimePython(package="tflite_runtime")
    if importlib.util.find_spec("tflite_runtime"):
        pytest.skip("tflite_runtime is installed here")
    with fails(ToolFailed):
        execute(place, float_model(signature=SERVING), {"x": X}, target=missing)


def test_a_runtime_of_another_name_is_refused(place):
    with fails(WorkerCrashed):
        execute(
            place, float_model(signature=SERVING), {"x": X}, target=RuntimePython(package="onnx")
        )


def test_a_runner_that_dies_without_an_answer_has_crashed(place):
    """As a runtime does that calls exit() where it should not."""
    python = place / "python"
    python.write_text("#!/bin/sh\necho last words >&2\nexit 0\n")
    python.chmod(0o755)
    with fails(WorkerCrashed):
        execute(
            place,
            float_model(signature=SERVING),
            {"x": X},
            target=RuntimePython(python=str(python)),
        )


def test_a_runner_that_takes_too_long_is_stopped(place):
    endless = Timing(warmup=1, repeats=10**9, seconds=600)
    with pytest.raises(WorkerTimedOut):
        timed(
            place,
            float_model(signature=SERVING),
            {"x": X},
            endless,
            allowance=Allowance(timeout_s=2),
        )


# Timing and memory


def test_timing_gives_as_many_samples_as_asked(place):
    found = timed(
        place, float_model(signature=SERVING), {"x": X}, Timing(warmup=3, repeats=25, seconds=60)
    )
    assert (found.runtime, len(found.samples_us)) == ("ai_edge_litert", 25)
    assert min(found.samples_us) > 0
    assert found.first_us > 0
    assert found.load_us > 0


def test_timing_ends_after_the_seconds_given_and_has_one_sample_at_least(place):
    model = float_model(signature=SERVING)
    found = timed(place, model, {"x": X}, Timing(repeats=10**9, seconds=0.2))
    assert len(found.samples_us) > 100
    assert sum(found.samples_us) < 0.5e6
    assert len(timed(place, model, {"x": X}, Timing(repeats=10**9, seconds=1e-9)).samples_us) == 1


def test_the_warm_up_has_as_many_invokes_as_asked_and_ends_with_its_seconds(place):
    model = float_model(signature=SERVING)
    long = timed(place, model, {"x": X}, Timing(warmup=200_000, warmup_seconds=0, repeats=1))
    assert long.warmup == 200_000
    short = timed(place, model, {"x": X}, Timing(warmup=3, warmup_seconds=0, repeats=1))
    assert short.warmup == 3


def test_times_are_stable_once_two_windows_agree_by_their_medians():
    falling = [100.0 / (1 + n) for n in range(40)]
    assert not is_stable(falling)
    assert is_stable([*falling, *[2.0] * 40])
    # A single slow invoke does not count; a step does.
    assert is_stable([2.0] * 20 + [50.0] + [2.0] * 9)
    assert not is_stable([2.0] * 20 + [2.1] * 6)


def test_warming_up_goes_on_while_the_times_still_fall():
    waits = (max(0.002, 0.03 * 0.85**number) for number in itertools.count())
    times_us = warm_up(lambda: time.sleep(next(waits)), least=2, seconds=5.0)
    assert len(times_us) > 15


def test_the_compiled_model_answers_as_the_interpreter_does(place):
    file = place / "model.tflite"
    for model, batch in ((float_model(signature=SERVING), 1), (int8_model(), 3)):
        file.write_bytes(packed(model))
        answers = []
        for accelerator in ("interpreter", "compiled"):
            one = runner(place, accelerator=accelerator)
            session = one.start(str(file), Model(file=file, batch=batch))
            # Twice, for what was set up for the first is used again.
            answers += [session.run({"x": X})["y"], session.run({"x": X})["y"]]
            session.close()
            assert one.time(str(file), Model(file=file), {"x": X}, Timing(repeats=3)).samples_us
        for answer in answers[1:]:
            np.testing.assert_allclose(answer, answers[0], rtol=1e-6)


# A conversation


def test_a_session_answers_again_and_again(place):
    file = place / "model.tflite"
    file.write_bytes(packed(difference_model(dynamic=True)))
    session = runner(place).start(str(file), Model(file=file, signature="go", batch=2))
    for rows in (6, 1, 4):
        given = {"second": B[:rows], "first": A[:rows]}
        outputs = session.run(given)
        np.testing.assert_array_equal(outputs["total"], (A + B)[:rows])
        np.testing.assert_array_equal(outputs["twice"], 2 * A[:rows])
    session.close()
    session.close()


def test_arrays_larger_than_any_pipe_go_through(place):
    graph = Graph()
    x, y = (graph.tensor(name, (1, 10**6), "float32") for name in "xy")
    graph.operator("ADD", [x, x], [y])
    file = place / "model.tflite"
    file.write_bytes(packed(graph.model([x], [y], signature=SERVING)))
    values = np.random.default_rng(0).normal(size=(7, 10**6)).astype(np.float32)
    session = runner(place).start(str(file), Model(file=file))
    np.testing.assert_array_equal(session.run({"x": values})["y"], 2 * values)
    session.close()


def test_a_runner_says_what_machine_it_is_on(place):
    facts = runner(place).facts()
    assert (facts.runtime, facts.cores) == ("ai_edge_litert", os.cpu_count())
    assert facts.numpy == np.__version__
    assert facts.environment("there").host == "there"


def test_what_is_printed_beside_the_answers_does_not_reach_them(place):
    """As a login shell does before, and a runtime in between."""
    shell = place / "shell"
    shell.write_text(
        "#!/bin/sh\necho Welcome, user\nexec " + sys.executable + ' -c "'
        "import os, runpy;"
        "import numpy; was = numpy.frombuffer;"
        "numpy.frombuffer = lambda *a: (os.write(1, b'noise'), was(*a))[1];"
        f"runpy.run_path('{RUNNER}', run_name='__main__')\"\n"
    )
    shell.chmod(0o755)
    file = place / "model.tflite"
    file.write_bytes(packed(float_model(signature=SERVING)))
    one = Runner(
        command=(str(shell),), package="ai_edge_litert", label="there", scratch=place, access=FREE
    )
    session = one.start(str(file), Model(file=file))
    np.testing.assert_allclose(session.run({"x": X[2:]})["y"], by_hand(X[2:]), rtol=1e-5, atol=1e-4)
    session.close()


def shell_runner(script: str, place: Path, allowance: Allowance = Allowance()) -> Runner:
    """A runner that is a script of the shell."""
    return Runner(
        command=("/bin/sh", "-c", script),
        package="ai_edge_litert",
        label="there",
        scratch=place,
        access=FREE,
        allowance=allowance,
    )


@pytest.mark.parametrize(
    "script", ["kill -SEGV $$", "echo last words >&2; exit 0", "echo no such host >&2; exit 255"]
)
def test_a_runner_that_dies_in_a_conversation_has_crashed(script, place):
    with Conversation(shell_runner(script, place)) as talk, fails(WorkerCrashed):
        talk.ask({"do": "facts", "runtime": "ai_edge_litert"}, {"x": np.zeros(10**6)})


def test_a_runner_that_says_nothing_is_given_up(place):
    silent = shell_runner("sleep 60", place, Allowance(timeout_s=0.5))
    with Conversation(silent) as talk, pytest.raises(WorkerTimedOut):
        talk.ask({"do": "facts", "runtime": "ai_edge_litert"})


def python_runner(code: str, place: Path) -> Runner:
    """A runner that is a script of Python."""
    script = place / "script.py"
    script.write_text(code, encoding="utf-8")
    return msgspec.structs.replace(shell_runner("", place), command=(sys.executable, str(script)))


def test_an_answer_without_end_is_given_up(place, monkeypatch):
    monkeypatch.setattr("edgeconv.runtimes.conversation._LONGEST_LINE_BYTES", 2**20)
    code = "print('edgeconv runner 1', flush=True)\nwhile True: print('x', end='')"
    with Conversation(python_runner(code, place)) as talk, fails(ToolFailed):
        talk.hear()


def test_a_bug_of_ours_in_a_child_that_talks_is_an_internal_error(place, monkeypatch):
    """And never data that cannot be read."""
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(place / "cache"))
    code = (
        "from edgeconv.system.processes.failures import report_faults; report_faults(); {}['a key']"
    )
    with Conversation(python_runner(code, place)) as talk, pytest.raises(InternalError) as caught:
        talk.hear()
    message, _, log = caught.value.message.partition("; the traceback is in ")
    assert message == "internal error: KeyError: 'a key'"
    assert "script.py" in Path(log).read_text()


def wide_model(megabytes: int) -> schema.ModelT:
    """A dense layer of so many megabytes of weights."""
    graph = Graph()
    rows = megabytes * 2**20 // (4 * 1024)
    weights = np.random.default_rng(1).normal(size=(rows, 1024)).astype(np.float32)
    x = graph.tensor("x", (1, 1024), "float32")
    w = graph.tensor("w", (rows, 1024), "float32", data=weights)
    y = graph.computed("y", (1, rows), "FULLY_CONNECTED", [x, w, -1])
    return graph.model([x], [y], signature=SERVING)


def test_the_memory_of_a_model_grows_with_its_weights(place):
    x = {"x": np.ones((1, 1024), np.float32)}
    used = {
        size: timed(place, wide_model(size), x, Timing(repeats=2)).memory_bytes for size in (4, 24)
    }
    assert 4 * 2**20 < used[4] < used[24]
    assert 0.8 < (used[24] - used[4]) / (20 * 2**20) < 2.5


# A program of its own


def test_the_runner_works_as_a_plain_script_where_edgeconv_is_not(tmp_path):
    """Copied elsewhere and run isolated, as on a device."""
    place = tmp_path / "device"
    place.mkdir()
    shutil.copy(RUNNER, place / "runner.py")
    (place / "model.tflite").write_bytes(packed(float_model(signature=SERVING)))
    np.save(place / "x.npy", X[2:])
    requests = [
        {
            "do": "load",
            "runtime": "ai_edge_litert",
            "model": "model.tflite",
            "accelerator": "interpreter",
            "signature": None,
            "batch": 1,
            "threads": 1,
        },
        {"do": "run", "runtime": "ai_edge_litert", "files": {"x": "x.npy"}},
    ]
    # A finder that refuses edgeconv stands for an environment without it.
    code = (
        "import runpy, sys\n"
        "class No:\n"
        "    def find_spec(self, name, *_):\n"
        "        assert name.split('.')[0] != 'edgeconv', name\n"
        "sys.meta_path.insert(0, No())\n"
        "runpy.run_path('runner.py', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        cwd=place,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        input="".join(f"{json.dumps(request)}\n" for request in requests).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    greeting, loaded, answer, data = done.stdout.split(b"\n", 3)
    assert greeting == b"edgeconv runner 1"
    assert json.loads(loaded)["load_us"] > 0
    assert json.loads(answer)["arrays"] == [["y", "<f4", [4, 3]]]
    y = np.frombuffer(data, "<f4").reshape(4, 3)
    np.testing.assert_allclose(y, by_hand(X[2:]), rtol=1e-5, atol=1e-4)


def test_stored_samples_are_read_by_the_runner_and_never_sent_to_it(place, monkeypatch):
    """They are mapped there, a batch at a time, however many there are."""
    sent = []
    tell = Conversation.tell
    monkeypatch.setattr(Conversation, "tell", lambda *args: (sent.append(args[1:]), tell(*args))[1])
    _, outputs = execute(place, float_model(signature=SERVING), {"x": X[2:]})
    assert [request[0]["do"] for request in sent] == ["load", "run"]
    assert not any(request[1:] for request in sent)
    np.testing.assert_allclose(outputs["y"], by_hand(X[2:]), rtol=1e-5, atol=1e-4)


def test_runs_on_stored_samples_are_at_work_before_they_are_waited_for(place):
    """So that a conversion has two processes busy, and not one of two."""
    file, samples = place / "model.tflite", place / "samples"
    file.write_bytes(packed(float_model(signature=SERVING)))
    write_samples(Samples({"x": X[2:]}, None, "made here"), samples)
    with start_run(file, samples, scratch=place, signature=None) as running:
        log = running._talk._child.log
        deadline = time.monotonic() + 120
        # The interpreter says in its log that it was loaded; nobody has asked for an answer.
        while not log.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert b"XNNPACK" in log.read_bytes()
        assert running.result().outputs["y"].shape == (4, 3)


def test_a_process_takes_one_model_after_another_until_it_fails_or_is_closed(place):
    idle, seen = IdleRunners(place), []
    for content in (float_model(signature=SERVING), int8_model(), b"not a model", float_model()):
        file, samples = place / f"{len(seen)}.tflite", place / "samples"
        file.write_bytes(content if isinstance(content, bytes) else packed(content))
        write_samples(Samples({"x": X[2:]}, None, "made here"), samples)
        with start_run(file, samples, scratch=place, signature=None, idle=idle) as running:
            seen.append(running._talk._child)
            if content == b"not a model":
                with fails(ToolFailed):
                    running.result()
            else:
                shown = running.result().outputs["y"]
                np.testing.assert_allclose(shown, by_hand(X[2:]), atol=40)
    first, second, third, fourth = seen
    assert first is second is third
    assert third.has_ended()
    assert fourth is not third
    assert not fourth.has_ended()
    idle.close()
    assert fourth.has_ended()


def test_a_mistake_in_the_runner_is_not_an_answer_of_the_runtime():
    with fails(KeyError):
        RequestHandler().answer({"do": "load", "runtime": "ai_edge_litert", "batch": 1}, {})


def test_samples_of_an_unknown_input_are_refused_by_name(place):
    with fails(ToolFailed):
        execute(place, float_model(signature=SERVING), {"z": X})
