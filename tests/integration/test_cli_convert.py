"""What `edgeconv convert` prints, and where."""

import os
import pty
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from forking import edgeconv_command

from edgeconv.types import Conversion

Done = subprocess.CompletedProcess[str]
PROGRESS = ("converting to float32 with TensorFlow", "calibrating", "verifying int8")


def edgeconv(folder: Path, *arguments: object, **options: Any) -> Done:
    variables = {"EDGECONV_CACHE_DIR": str(folder / "cache"), **options.pop("variables", {})}
    command = [*edgeconv_command(), "convert", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, text=True, check=False, **pipes
    )


@pytest.fixture(scope="module")
def arguments(zoo) -> list[object]:
    recipes = "float32,dynamic,int8"
    return [zoo / "legacy", "-o", "out", "--to", recipes, "--calibration", zoo / "images.npz"]


@pytest.fixture(scope="module")
def first(folder, arguments) -> Done:
    done = edgeconv(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def again(first, folder, arguments) -> Done:
    return edgeconv(folder, *arguments)


def rows(text: str) -> dict[str, list[str]]:
    lines = [line.split() for line in text.splitlines() if not line.startswith((" ", "─"))]
    return {cells[0]: cells for cells in lines}


def test_the_table_has_one_row_an_artifact(first, folder):
    table = rows(first.stdout)
    assert {"recipe", "float32", "dynamic", "int8", "3"} <= table.keys()
    assert (folder / "out/legacy.int8.tflite").stat().st_size > 0
    assert {"kB", "equal"} <= set(table["int8"])
    # On a slow machine the time of the methods follows.
    last = re.sub(r", methods chosen in \d+\.\d s$", "", first.stdout.splitlines()[-1])
    assert last == f"3 files in {folder / 'out'}/legacy.RECIPE.tflite"


def test_progress_goes_to_stderr_and_nothing_else_does(first):
    lines = first.stderr.splitlines()
    for line in PROGRESS:
        assert line in lines
        assert line not in first.stdout
    assert "\x1b" not in first.stderr + first.stdout


def test_once_more_the_table_says_that_all_is_up_to_date(again, folder):
    assert again.returncode == 0
    assert again.stderr == ""
    assert again.stdout.count("up to date") == 1
    last = again.stdout.splitlines()[-1]
    assert last == f"3 files in {folder / 'out'}/legacy.RECIPE.tflite, 3 up to date"


def test_quiet_prints_the_table_and_no_progress(first, folder, arguments):
    done = edgeconv(folder, *arguments, "-q", "-o", "quiet", "--no-cache")
    assert done.stderr == ""
    assert rows(done.stdout).keys() == rows(first.stdout).keys()


def test_json_is_the_conversion_alone_on_stdout(first, folder, arguments):
    done = edgeconv(folder, *arguments, "--json")
    conversion = msgspec.json.decode(done.stdout, type=Conversion)
    assert [a.recipe.name for a in conversion.artifacts] == ["float32", "dynamic", "int8"]
    assert conversion.reused == ("float32", "dynamic", "int8")
    assert conversion.directory == str(folder / "out")


def test_json_of_a_failure_names_it_and_the_exit_code_is_4(zoo, folder):
    done = edgeconv(
        folder,
        zoo / "legacy",
        "-o",
        "failed",
        "--to",
        "weight-only-int8",
        "--engine",
        "tflite",
        "--json",
    )
    assert done.returncode == 4
    conversion = msgspec.json.decode(done.stdout, type=Conversion)
    assert conversion.artifacts == ()
    (failure,) = conversion.failures
    assert (failure.recipe, failure.error) == ("weight-only-int8", "ToolFailed")


def test_a_failure_is_a_row_of_the_table_and_an_error_on_stderr(zoo, folder):
    done = edgeconv(
        folder, zoo / "legacy", "-o", "failed", "--to", "weight-only-int8", "--engine", "tflite"
    )
    assert done.returncode == 4
    assert rows(done.stdout)["weight-only-int8"][-1] == "failed"
    assert "error: TFLiteConverter has no weight-only-int8" in done.stderr.splitlines()
    assert "  next: remove --engine, or use the recipe dynamic" in done.stderr.splitlines()
    assert not (folder / "failed").exists()


def on_a_terminal(folder: Path, *arguments: object, **variables: str) -> tuple[str, str]:
    """stdout and stderr, each a terminal of its own."""
    ours, theirs = zip(*(pty.openpty() for _ in range(2)), strict=True)
    # Read meanwhile: a terminal that nobody reads soon takes no more.
    with ThreadPoolExecutor() as pool:
        out, err = (pool.submit(read_all, descriptor) for descriptor in ours)
        edgeconv(
            folder,
            *arguments,
            stdout=theirs[0],
            stderr=theirs[1],
            variables={"TERM": "xterm-256color", "COLUMNS": "200", **variables},
        )
        for descriptor in theirs:
            os.close(descriptor)
        return out.result(), err.result()


def read_all(descriptor: int) -> str:
    data = b""
    # A terminal whose other end is closed ends in an error, not in an end of file.
    while True:
        try:
            part = os.read(descriptor, 1 << 16)
        except OSError:
            break
        if not part:
            break
        data += part
    os.close(descriptor)
    return data.decode()


def test_a_terminal_gets_colours_and_one_live_line(zoo, folder):
    out, err = on_a_terminal(
        folder, zoo / "weightless", "-o", "live", "--to", "float32,dynamic", NO_COLOR=""
    )
    assert "\x1b[33m" in out
    assert "warning: nothing was quantized" in out
    assert "converting to float32 with TensorFlow" in err
    assert "\x1b[" in err


def test_no_color_is_respected_on_a_terminal(zoo, folder):
    out, _ = on_a_terminal(
        folder, zoo / "weightless", "-o", "plain", "--to", "float32,dynamic", NO_COLOR="1"
    )
    assert "warning: nothing was quantized" in out
    assert "\x1b" not in out
