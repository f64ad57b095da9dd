"""Bad input to `convert`: what is said, which exit code it has, and that nothing is written."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
from edge_models import images
from live_processes import alive

from edgeconv.cli import run
from edgeconv.system.store import locked, sha256_file
from edgeconv.types import Artifact

USAGE, REFUSED, FAILED, INTERRUPTED = 2, 3, 4, 130
Refusal = tuple[int, str]


@pytest.fixture
def convert(tmp_path, monkeypatch, capsys) -> Callable[..., Refusal]:
    """Runs `edgeconv convert … -o out` and returns its exit code and what it says on stderr.

    Whatever that is, nothing may be left behind: no output, temporary file or process.
    """
    work, temporary = tmp_path / "work", tmp_path / "tmp"
    work.mkdir()
    temporary.mkdir(exist_ok=True)
    monkeypatch.chdir(work)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def refuse(*arguments: object, out: object = "deep/out") -> Refusal:
        before = sorted(work.rglob("*"))
        code = run(["convert", "-q", *map(str, arguments), "-o", str(out)])
        printed = capsys.readouterr()
        assert sorted(work.rglob("*")) == before
        assert list(temporary.iterdir()) == []
        assert psutil.Process().children() == []
        if code != FAILED:
            assert printed.out == ""
        return code, printed.err

    return refuse


def assert_says(refusal: Refusal, code: int, *parts: object) -> None:
    assert refusal[0] == code, refusal[1]
    assert refusal[1].startswith("error: ")
    for part in parts:
        assert str(part) in refusal[1]


# The model


def test_a_model_that_does_not_exist(convert):
    said = convert("nowhere", "--to", "float32")
    assert_says(
        said, REFUSED, Path("nowhere").absolute(), "does not exist", "next: give a SavedModel"
    )


NOT_FINITE = "float32: output 'output_0' has values that are not finite"


@pytest.mark.parametrize(
    ("model", "code", "message", "hint"),
    [
        ("select_tf", REFUSED, "operators that TFLite does not have: MatrixInverse", "replace"),
        ("by_hand/select_tf.tflite", REFUSED, "does not have: FlexMatrixInverse", ""),
        ("random", REFUSED, "training mode, with random numbers (RandomStandardNormal)", ""),
        ("nan_weights", FAILED, NOT_FINITE, ""),
        ("by_hand/nan_weights.tflite", FAILED, NOT_FINITE, ""),
    ],
)
def test_a_model_that_is_not_published(model, code, message, hint, convert, zoo):
    assert_says(convert(zoo / model, "--to", "float32,dynamic"), code, message, f"next: {hint}")


def test_a_batch_for_a_model_whose_batch_is_fixed(convert, zoo):
    said = convert(zoo / "fixed", "--to", "float32", "--batch", "4")
    assert_says(said, REFUSED, "--batch 4: input 'x' has shape [3, 4]", "next: remove --batch")


# The recipes and options


OPTIONS: list[tuple[list[str], str, str]] = [
    (["legacy", "--to", "float32", "--samples", "3"], "--samples without", "--calibration SOURCE"),
    (["legacy", "--to", "float32", "--batch", "0"], "range x>=1", ""),
    (["legacy.h5", "--to", "float32", "--signature", "x"], "a Keras file has one", "remove"),
    (
        ["by_hand/float32.tflite", "--to", "float32", "--batch", "2"],
        "cannot be given other shapes",
        "convert",
    ),
    (
        ["by_hand/float32.tflite", "--to", "float32", "--engine", "tflite"],
        "makes only int8 and int16x8 from a .tflite",
        "remove --engine",
    ),
]


@pytest.mark.parametrize(("arguments", "message", "hint"), OPTIONS, ids=lambda v: str(v)[:40])
def test_options_that_cannot_be_met(arguments, message, hint, convert, zoo):
    said = convert(zoo / arguments[0], *arguments[1:])
    assert_says(said, USAGE, message, *([f"next: {hint}"] if hint == "remove" else [hint]))


def test_an_output_inside_the_model(convert, zoo):
    said = convert(zoo / "legacy", "--to", "float32", out=zoo / "legacy" / "out")
    assert_says(said, USAGE, "would change", "next: choose another path")
    assert not (zoo / "legacy" / "out").exists()


# The calibration samples


def test_int8_without_calibration(convert, zoo):
    said = convert(zoo / "legacy", "--to", "float32,int8,int16x8")
    assert_says(
        said,
        USAGE,
        "calibration samples are needed for int8 and int16x8",
        f"next: edgeconv convert {zoo / 'legacy'} --to float32,int8,int16x8 --calibration ",
        "dynamic and float16 need none",
    )


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def with_value(value: float) -> np.ndarray:
    bad = images()
    bad[3, 2, 1, 0] = value
    return bad


def test_samples_for_a_keras_file_are_checked_likewise(convert, zoo, tmp_path):
    np.savez(tmp_path / "bad.npz", image=with_value(np.nan))
    said = convert(zoo / "modern.keras", "--to", "int8", "--calibration", tmp_path / "bad.npz")
    assert_says(said, REFUSED, "1 NaN and 0 infinite values")


def test_pickled_samples_are_refused_and_never_unpickled(convert, zoo, tmp_path):
    ran = tmp_path / "ran"
    np.savez(tmp_path / "bad.npz", image=np.array([Payload(ran)] * 9, dtype=object))
    said = convert(zoo / "legacy", "--to", "int8", "--calibration", tmp_path / "bad.npz")
    assert_says(said, REFUSED, "holds pickled Python objects", "next: save it again")
    assert not ran.exists()
    # The payload works: the test would notice.
    np.load(tmp_path / "bad.npz", allow_pickle=True)["image"]
    assert ran.exists()


# The output


@pytest.mark.parametrize("place", ["file/out", "/proc/edgeconv/out"])
def test_an_output_directory_that_cannot_be_made(place, convert, zoo):
    Path("file").touch()
    said = convert(zoo / "fixed", "--to", "float32", out=place)
    assert_says(said, REFUSED, "cannot write", place, "next: choose another path")


def test_a_cache_that_cannot_be_written(convert, zoo, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "file" / "cache"))
    said = convert(zoo / "fixed", "--to", "float32")
    assert_says(said, REFUSED, "the cache", "next: set EDGECONV_CACHE_DIR")


def test_a_disk_that_is_full_keeps_the_files_of_the_run_before(convert, cli, zoo, tiny_disk):
    out = tiny_disk / "out"
    assert cli("convert", zoo / "legacy", "-o", out, "--to", "float16").returncode == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    said = convert(zoo / "legacy", "--to", "all", "--calibration", zoo / "images.npz", out=out)
    assert_says(said, REFUSED, "No space left")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


# The result


def test_a_recipe_that_fails_is_not_published_and_the_others_are(cli, zoo, tmp_path):
    done = cli(
        "convert",
        zoo / "legacy",
        "-o",
        "out",
        "--to",
        "float32,dynamic",
        "--min-snr-db",
        "90",
        "--engine",
        "litert",
    )
    assert done.returncode == FAILED
    assert "error: dynamic: output " in done.stderr
    assert "below the required 90 dB" in done.stderr
    published = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert published == [".edgeconv.lock", "legacy.float32.json", "legacy.float32.tflite"]


# The processes


@pytest.mark.usefixtures("started_children")
def test_a_child_that_takes_too_long(convert, zoo):
    said = convert(zoo / "legacy", "--to", "float32", "--timeout-s", "0.2")
    assert_says(said, FAILED, "did not end within 0.2 s", "next: raise --timeout-s")


@pytest.mark.usefixtures("started_children")
def test_a_child_that_takes_too_much_memory(convert, zoo):
    said = convert(zoo / "legacy", "--to", "float32", "--memory-limit-mib", "30")
    assert_says(said, FAILED, "used more than 30 MiB", "next: raise --memory-limit-mib")


class Started:
    """`edgeconv convert` running; ended when the test ends."""

    def __init__(self, tmp_path: Path, *arguments: object) -> None:
        self.log = tmp_path / f"stderr-{len(list(tmp_path.glob('stderr-*')))}.txt"
        environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
        (tmp_path / "tmp").mkdir(exist_ok=True)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "edgeconv", "convert", *map(str, arguments)],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def stderr(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_for_child(self, name: str) -> psutil.Process:
        """The child whose command has `name`, such as the function that it runs."""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            for child in psutil.Process(self.process.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if any(name in part for part in child.cmdline()):
                        return child
            time.sleep(0.01)
        raise AssertionError(f"no child ran {name}: {self.stderr()}")

    def wait_for_text(self, text: str) -> None:
        deadline = time.monotonic() + 240
        while text not in self.stderr():
            assert time.monotonic() < deadline, self.stderr()
            time.sleep(0.02)

    def end(self) -> int:
        self.process.communicate(timeout=120)
        return self.process.returncode


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def begin(*arguments: object) -> Started:
        started.append(Started(tmp_path, *arguments))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()
            one.process.communicate(timeout=120)


@pytest.mark.parametrize("victim", ["to_float", "run_reference"])
def test_a_child_that_is_killed(victim, start, zoo, tmp_path):
    running = start(zoo / "legacy", "-o", "out", "--to", "float32")
    running.wait_for_child(victim).kill()
    assert running.end() == FAILED
    assert "was ended by SIGKILL" in running.stderr()
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", ["to_float", "standing-"])
def test_an_interrupted_run_leaves_nothing_behind(stage, number, start, zoo, tmp_path):
    running = start(
        zoo / "legacy", "-o", "deep/out", "--to", "all", "--calibration", zoo / "images.npz"
    )
    running.wait_for_child(stage)
    children = psutil.Process(running.process.pid).children(recursive=True)
    running.process.send_signal(number)
    # Where the signal comes while Python runs code from a string, as namedtuple does, Python
    # ends itself by SIGINT in the end; a shell says 130 of both.
    assert running.end() in (INTERRUPTED, -signal.SIGINT), running.stderr()
    assert running.stderr().splitlines()[-1] == "interrupted"
    assert_gone(children)
    assert not (tmp_path / "deep").exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def assert_gone(children: list[psutil.Process]) -> None:
    """A child that had just been made dies with its parent, so not before that is gone."""
    deadline = time.monotonic() + 120
    while any(alive(child.pid) for child in children):
        assert time.monotonic() < deadline, children
        time.sleep(0.02)


def assert_whole(directory: Path, count: int) -> None:
    manifests = list(directory.glob("*.json"))
    assert len(manifests) == count
    for path in manifests:
        artifact = msgspec.json.decode(path.read_bytes(), type=Artifact)
        assert sha256_file(directory / artifact.file) == artifact.sha256
    # Beside the pairs there is only the lock.
    assert len(list(directory.iterdir())) == 2 * count + 1


@pytest.mark.slow
def test_two_runs_into_the_same_directory_take_turns(start, zoo, tmp_path):
    calibration = ("--calibration", zoo / "images.npz")
    first = start(zoo / "legacy", "-o", "out", "--to", "float32,dynamic,int8", *calibration)
    second = start(zoo / "legacy", "-o", "out", "--to", "float32,float16,int8", *calibration)
    assert (first.end(), second.end()) == (0, 0), first.stderr() + second.stderr()
    assert_whole(tmp_path / "out", 4)
    waited = [run for run in (first, second) if "waiting for another run" in run.stderr()]
    assert len(waited) == 1


@pytest.mark.slow
def test_two_different_models_into_one_directory_do_not_mix(start, zoo, tmp_path):
    runs = [start(zoo / name, "-o", "out", "--to", "float32") for name in ("fixed", "weightless")]
    assert [run.end() for run in runs] == [0, 0]
    assert_whole(tmp_path / "out", 2)


@pytest.mark.slow
def test_a_run_that_waits_goes_on_where_the_one_before_took_its_directory_away(
    start, zoo, tmp_path
):
    out = tmp_path / "out"
    out.mkdir()
    with locked(out / ".edgeconv.lock"):
        waiting = start(zoo / "fixed", "-o", out, "--to", "float32")
        waiting.wait_for_text("waiting for another run")
        (out / ".edgeconv.lock").unlink()
        out.rmdir()
    assert waiting.end() == 0, waiting.stderr()
    assert_whole(out, 1)
