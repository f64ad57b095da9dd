"""The runtime web in a real Chromium, with LiteRT.js from the npm registry."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from tiny_tflite import Graph, float_model, int8_model, packed, run, three_inputs_model

from edgeconv import bench
from edgeconv.plugins.devices.web import WebRuntime, litertjs, open_runtime
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.types import Measuring, RuntimeChoice, Timing
from edgeconv.types.errors import InputRefused, OutputRefused, ToolFailed, UsageError

SAMPLES = {"x": np.linspace(-3, 3, 24, dtype=np.float32).reshape(6, 4)}
TIMING = Timing(warmup=2, warmup_seconds=0.1, repeats=9, seconds=5.0)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """A cache that has LiteRT.js."""
    if not shutil.which("chromium") and not shutil.which("google-chrome"):
        pytest.skip("there is no chromium here")
    if not shutil.which("npm"):
        pytest.skip("there is no npm here, which LiteRT.js comes by")
    directory = tmp_path_factory.mktemp("cache")
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(directory))
        try:
            package = litertjs(said.append)
        except ToolFailed as error:
            pytest.skip(f"LiteRT.js cannot be installed here: {error}")
        assert (package / "@litertjs" / "core" / "wasm").is_dir()
        assert said == ["installing LiteRT.js 2.5.3, once"]
        assert litertjs(said.append) == package
        assert len(said) == 1
    return directory


@pytest.fixture(scope="module")
def runtime(cache, tmp_path_factory) -> Iterator[WebRuntime]:
    scratch = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(cache))
        with open_runtime(RuntimeChoice(name="web"), RuntimeSettings(scratch=scratch)) as one:
            yield one


def written(tmp_path: Path, model, name: str = "model.tflite") -> Path:
    for tensor in model.subgraphs[0].tensors:
        tensor.shapeSignature = None
    file = tmp_path / name
    file.write_bytes(packed(model))
    return file


def outputs(runtime: WebRuntime, model: Model, samples) -> dict[str, np.ndarray]:
    session = runtime.start(model)
    try:
        return session.run(samples)
    finally:
        session.close()


def browsers() -> dict[psutil.Process, str]:
    """The processes that this one started, and those that they started, with what was typed.

    A browser starts and ends processes all the time: one that has ended in between is none.
    """
    found = {}
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                found[child] = " ".join(child.cmdline())
    return found


@pytest.mark.parametrize("signature", [None, ("serving_default", ["x"], ["y"])])
def test_a_model_gives_the_outputs_that_it_gives_natively(runtime, tmp_path, signature):
    file = written(tmp_path, float_model(signature=signature))
    given = outputs(runtime, Model(file=file), SAMPLES)
    native = [run(file.read_bytes(), row[None])[0] for row in SAMPLES["x"]]
    assert {name: (v.shape, str(v.dtype)) for name, v in given.items()} == {
        "y": ((6, 3), "float32")
    }
    np.testing.assert_allclose(given["y"], np.concatenate(native), atol=1e-5)


def test_a_model_is_timed_in_a_browser_of_its_own_which_is_gone_then(runtime, tmp_path):
    file = written(tmp_path, float_model())
    timed = runtime.time(Model(file=file), SAMPLES, TIMING)
    assert (timed.runtime, timed.version) == ("LiteRT.js", "2.5.3")
    assert len(timed.samples_us) == 9
    assert 0 <= min(timed.samples_us) < 100_000
    assert max(timed.samples_us) > 0
    assert timed.load_us > 0
    assert timed.first_us > 0
    assert timed.warmup >= 2
    assert runtime.environment.tools["Chromium"].count(".") == 3
    assert not browsers()


def test_batches_several_inputs_and_integers_go_through(runtime, tmp_path):
    file = written(tmp_path, three_inputs_model(2))
    samples = {
        "first": np.arange(12, dtype=np.float32).reshape(4, 3),
        "second": np.full((4, 3), 100, np.float32),
        "count": np.array([1, 2, 3, 4]),
    }
    given = outputs(runtime, Model(file=file, signature="serve", batch=2), samples)
    np.testing.assert_array_equal(given["sum"], samples["first"] + 100)
    np.testing.assert_array_equal(given["twice"], [2, 4, 6, 8])


def test_a_model_of_uint8_takes_and_gives_floats(runtime, tmp_path):
    graph = Graph()
    x = graph.tensor("x", (1, 4), "uint8", scale=0.5, zero_point=128)
    y = graph.tensor("y", (1, 4), "uint8", scale=1.0, zero_point=128)
    graph.operator("ADD", [x, x], [y], version=2)
    file = written(tmp_path, graph.model([x], [y]))
    given = outputs(runtime, Model(file=file), {"x": np.array([[1, -2, 0.5, 100]], np.float32)})
    np.testing.assert_allclose(given["y"], [[2, -4, 1, 127]], atol=1)
    assert given["y"].dtype == np.float32


def test_threads_are_there_when_they_are_asked_for(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(cache))
    file = written(tmp_path, float_model())
    with open_runtime(
        RuntimeChoice(name="web"), RuntimeSettings(scratch=tmp_path, threads=2)
    ) as runtime:
        given = outputs(runtime, Model(file=file), SAMPLES)
    assert given["y"].shape == (6, 3)


def test_what_litert_js_cannot_run_is_refused_before_a_browser_starts(runtime, tmp_path):
    dynamic, quantised = tmp_path / "dynamic.tflite", tmp_path / "int8.tflite"
    dynamic.write_bytes(packed(float_model()))
    quantised.write_bytes(packed(int8_model()))
    with pytest.raises(InputRefused, match=r"the shape \[-1, 4\]") as raised:
        runtime.start(Model(file=dynamic))
    assert "--batch 1" in raised.value.hint
    with pytest.raises(InputRefused, match="'x' is int8") as raised:
        runtime.start(Model(file=quantised))
    assert "--io uint8" in raised.value.hint


@pytest.mark.slow
def test_a_model_that_does_not_load_fails_alone(runtime, tmp_path):
    graph = Graph()
    x, y = graph.tensor("x", (1, 4), "float32"), graph.tensor("y", (1, 4), "float32")
    graph.operator("NoSuchOperator", [x], [y])
    bad = written(tmp_path, graph.model([x], [y]), "bad.tflite")
    # LiteRT.js itself gives zeros for it.
    with pytest.raises(ToolFailed, match=r"running bad\.tflite in .* failed: .*NoSuchOperator"):
        outputs(runtime, Model(file=bad), SAMPLES)
    with pytest.raises(ToolFailed, match=r"running bad\.tflite in .* failed: .*NoSuchOperator"):
        runtime.time(Model(file=bad), SAMPLES, TIMING)
    graph = Graph()
    x, y = graph.tensor("x", (1, 4), "float32"), graph.tensor("y", (1, 4), "float32")
    graph.operator("RESHAPE", [x], [y], version=99)
    newer = written(tmp_path, graph.model([x], [y]), "newer.tflite")
    with pytest.raises(ToolFailed, match=r"running newer\.tflite in LiteRT\.js 2\.5\.3 failed: "):
        runtime.start(Model(file=newer))
    assert not browsers()
    assert outputs(runtime, Model(file=written(tmp_path, float_model())), SAMPLES)


@pytest.mark.parametrize("what", ["browser", "page"])
def test_a_browser_that_dies_in_the_middle_says_so(runtime, tmp_path, what):
    session = runtime.start(Model(file=written(tmp_path, float_model())))
    lines = browsers()
    is_page = {p: "--type=renderer" in line for p, line in lines.items()}
    is_browser = {p: "--headless" in line and "--type=" not in line for p, line in lines.items()}
    chosen = [p for p in lines if (is_page if what == "page" else is_browser)[p]]
    assert chosen
    for process in chosen:
        process.kill()
    with pytest.raises(
        ToolFailed, match=r"(?s)running model\.tflite in LiteRT\.js ended .*the model crashes it"
    ):
        session.run(SAMPLES)
    session.close()
    assert not browsers()


HOLDING = """
import sys, time
from pathlib import Path
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.types import RuntimeChoice
from edgeconv.plugins.devices.web import open_runtime
with open_runtime(RuntimeChoice(name="web"), RuntimeSettings(scratch=Path(sys.argv[1]))) as runtime:
    session = runtime.start(Model(file=Path(sys.argv[2])))
    print("loaded", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_browser_goes_with_a_parent_that_is_killed(cache, tmp_path):
    file = written(tmp_path, float_model())
    command = [sys.executable, "-c", HOLDING, str(tmp_path), str(file)]
    environment = {**os.environ, "EDGECONV_CACHE_DIR": str(cache)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "loaded\n"
        started = browsers()
        assert any("--type=renderer" in line for line in started.values())
        parent.kill()
    _, alive = psutil.wait_procs([*started], timeout=120)
    assert alive == []


def test_a_browser_goes_with_a_runner_that_has_no_parent_any_more(cache, tmp_path):
    """Its stdin may close before the pipe at which the kernel ends its session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(cache))
        package = litertjs(lambda _: None)
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    command = [
        sys.executable,
        "-m",
        "edgeconv.plugins.devices.web_runner",
        str(browser),
        str(package),
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as runner:
        deadline = time.monotonic() + 60
        started = browsers()
        while not any("--type=renderer" in line for line in started.values()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
            started = browsers()
        runner.stdin.close()
        _, left = psutil.wait_procs([*started], timeout=60)
    assert left == []


def test_a_missing_browser_or_npm_says_what_to_install(tmp_path, monkeypatch):
    settings = RuntimeSettings(scratch=tmp_path)
    with pytest.raises(UsageError, match="there is no browser /nowhere/chrome") as raised:
        open_runtime(RuntimeChoice(name="web", location="/nowhere/chrome"), settings).__enter__()
    assert "web:FILE" in raised.value.hint
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no Chromium or Chrome") as raised:
        open_runtime(RuntimeChoice(name="web"), settings).__enter__()
    assert "chromium" in raised.value.hint
    browser = tmp_path / "chromium"
    browser.write_text("#!/bin/sh\nexit 0\n")
    browser.chmod(0o755)
    with pytest.raises(UsageError, match="npm, which is not installed") as raised:
        open_runtime(RuntimeChoice(name="web"), settings).__enter__()
    assert "nodejs and npm" in raised.value.hint


def test_a_browser_that_is_none_is_refused(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(cache))
    browser = tmp_path / "browser"
    browser.write_text("#!/bin/sh\necho I am an editor\n")
    browser.chmod(0o755)
    choice = RuntimeChoice(name="web", location=str(browser))
    with pytest.raises(ToolFailed, match=r"(?s)the runtime in LiteRT\.js ended.*I am an editor"):
        open_runtime(choice, RuntimeSettings(scratch=tmp_path)).__enter__()
    browser.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Chromium 1.2.3\n')
    with pytest.raises(ToolFailed, match=r"(?s)the runtime in LiteRT\.js ended without an answer"):
        open_runtime(choice, RuntimeSettings(scratch=tmp_path)).__enter__()


def test_an_npm_that_fails_says_so_and_leaves_nothing_that_counts(tmp_path, monkeypatch):
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho npm error 404 Not Found\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for _ in range(2):
        with pytest.raises(ToolFailed, match="404 Not Found") as raised:
            litertjs(lambda _: None)
    assert "registry" in raised.value.hint


def test_a_cache_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(OutputRefused, match="cannot create"):
        litertjs(print)


@pytest.mark.slow
def test_on_webgpu_it_is_compared_with_the_processor_and_swiftshader_has_no_times(
    cache, tmp_path, monkeypatch
):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(cache))
    directory = tmp_path / "models"
    directory.mkdir()
    written(directory, float_model(signature=("serving_default", ["x"], ["y"])), "float.tflite")
    graph = Graph()
    x, y = graph.tensor("x", (1, 4), "float32"), graph.tensor("y", (1, 4), "float32")
    graph.operator("LOG_SOFTMAX", [x], [y])
    signature = ("serving_default", ["x"], ["y"])
    written(directory, graph.model([x], [y], signature=signature), "lacking.tflite")
    measuring = Measuring(
        rounds=1, runtimes=(RuntimeChoice(name="web"),), accelerator="webgpu", timing=TIMING
    )
    rows = {row.name: row for row in bench([directory], measuring=measuring).measurements}
    row = rows["float in web"]
    assert row.error == ""
    assert row.acceleration.state == "full"
    assert row.kernels[0].reference == "float in litert"
    assert row.kernels[0].flips == 0
    if "swiftshader" in row.acceleration.device:
        assert row.latency is None
    assert rows["lacking in web"].acceleration.state == "refused"
    assert rows["lacking in web"].acceleration.on_cpu == ("LOG_SOFTMAX",)
    assert rows["lacking in litert"].error == ""
