"""Everything that edgeconv leaves on a machine is shown, and removed when that is wanted."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from edgeconv.cli.cache import command
from edgeconv.errors import OutputRefused, UsageError
from edgeconv.store import Cache, cache_directory, keep_log, scratch_directory
from edgeconv.store.leftovers import clear, parts
from edgeconv.store.scratch import scratch_directories, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "0123456789abcdef" * 4
HOLDING = (
    "import time\n"
    "from edgeconv.store import scratch_directory\n"
    "with scratch_directory() as path:\n"
    "    (path / 'work').write_bytes(b'x' * 1000)\n"
    "    print(path, flush=True)\n"
    "    time.sleep(60)\n"
)


@pytest.fixture(autouse=True)
def _own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def filled() -> Path:
    """A cache with something of each kind, and things of somebody else's among them."""
    root = cache_directory()
    log = root.parent / "log"
    log.write_bytes(b"x" * 500)
    for stage in ("artifact", "check", "float", "reference", "report"):
        Cache(root).keep(stage, KEY, {"content": log})
    keep_log(log, "training-1")
    for folder, name in (
        ("builds", f"{KEY}.json"),
        ("runtimes", "tflite-runtime-2.14.0-py311/venv/bin/python"),
        ("runtimes", "litertjs-2.5.3/ready"),
        ("trainings", f"{KEY}/checkpoints/ckpt-1"),
        ("projects", ".edgeconv.lock"),
        # Not ours.
        ("runtimes", "mine"),
        ("photos", "holiday.jpg"),
    ):
        (root / folder / name).parent.mkdir(parents=True, exist_ok=True)
        (root / folder / name).write_bytes(b"y" * 100)
    return root


@pytest.fixture
def another_run() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert Path(process.stdout.readline().strip()).is_dir()
        yield process
        process.kill()


def test_every_part_is_shown_with_its_size(filled: Path) -> None:
    with scratch_directory() as scratch:
        (scratch / "graph").write_bytes(b"z" * 700)
        shown = {part.name: part for part in parts()}
        text = CliRunner().invoke(command, ["show"]).output
    assert set(shown) == {
        *("artifact", "builds", "check", "float", "logs", "projects", "reference", "report"),
        *("runtimes", "trainings", "temporary"),
    }
    assert shown["runtimes"].count == 2
    assert shown["runtimes"].size_bytes == 200
    assert 700 < shown["temporary"].size_bytes < 750
    assert text.startswith(str(filled))
    assert "trainings: 1, 100 B: checkpoints of unfinished trainings" in text


def test_clear_removes_all_of_it_and_nothing_of_anybody_else(filled: Path) -> None:
    done = CliRunner().invoke(command, ["clear"])
    assert done.exit_code == 0
    assert "runtimes: 2, 200 B" in done.output
    left = sorted(str(path.relative_to(filled)) for path in filled.rglob("*") if path.is_file())
    assert left == ["photos/holiday.jpg", "runtimes/mine"]
    again = CliRunner().invoke(command, ["clear"]).output
    assert again.splitlines()[0] == "nothing was stored"


def test_clear_says_what_it_keeps_of_the_users_state_and_why(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state/edgeconv/converted").mkdir(parents=True)
    (tmp_path / "state/edgeconv/cache-key").write_bytes(b"secret")
    kept = f"kept: {tmp_path}/state/edgeconv, the key of the cache and notes of what was converted"
    assert CliRunner().invoke(command, ["clear"]).output.splitlines()[-1] == kept
    assert (tmp_path / "state/edgeconv/cache-key").read_bytes() == b"secret"
    assert "kept" not in CliRunner().invoke(command, ["clear", "logs"]).output


def test_parts_are_cleared_by_name(filled: Path) -> None:
    clear(["logs", "runtimes"])
    names = {part.name for part in parts()}
    assert not names & {"logs", "runtimes"}
    assert {"artifact", "builds"} <= names
    with pytest.raises(UsageError, match="unknown part of the cache 'log'") as error:
        clear(["log"])
    assert "did you mean 'logs'" in error.value.hint


def test_a_cache_that_was_never_made_is_empty() -> None:
    assert parts() == ()
    assert clear() == ()
    assert not cache_directory().exists()


@pytest.mark.usefixtures("filled")
def test_nothing_is_cleared_while_another_run_is_at_work(
    another_run: subprocess.Popen[str],
) -> None:
    before = parts()
    with pytest.raises(OutputRefused, match=rf"process {another_run.pid}\) may be using"):
        clear()
    assert parts() == before
    another_run.kill()
    another_run.wait()
    clear()
    assert parts() == ()


def test_the_files_of_a_killed_run_go_with_the_next_one_and_those_of_a_living_one_stay(
    another_run: subprocess.Popen[str],
) -> None:
    (theirs,) = scratch_directories()
    assert theirs.held_by == another_run.pid
    assert sweep() == ()
    with scratch_directory() as ours:
        assert theirs.path.is_dir()
        assert ours.is_dir()
    assert not ours.exists()
    another_run.send_signal(signal.SIGKILL)
    another_run.wait()
    assert theirs.path.is_dir()
    with scratch_directory():
        assert not theirs.path.exists()


def test_a_folder_that_only_is_called_so_is_never_swept(tmp_path: Path) -> None:
    mine = tmp_path / "tmp" / "edgeconv-notes"
    mine.mkdir()
    (mine / "text").write_text("keep me")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".held").write_bytes(b"1")
    (tmp_path / "tmp" / "edgeconv-link").symlink_to(elsewhere)
    assert sweep() == ()
    assert (mine / "text").is_file()
    assert (elsewhere / ".held").is_file()
