"""Environments of runtimes: shown in the cache, pruned by last use, and never while in use."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeconv.cli.house import cache as command
from edgeconv.system.store import cache_directory, locks
from edgeconv.system.store.cache import entries, prune, prune_environments

DAY = 86400.0
HOLDING = (
    "import sys, time\n"
    "from pathlib import Path\n"
    "from edgeconv.system.store import locks\n"
    "directory = Path(sys.argv[1])\n"
    "locks.take(directory, directory / 'ready.json')\n"
    "print('held', flush=True)\n"
    "time.sleep(60)\n"
)


def environment(name: str, size: int, age_days: float) -> Path:
    """An environment of about `size` bytes, last used so long ago."""
    directory = cache_directory() / "runtimes" / name
    (directory / "venv").mkdir(parents=True)
    (directory / "venv" / "runtime.so").write_bytes(b"x" * size)
    marker = directory / "ready.json"
    marker.write_bytes(b"")
    then = time.time() - age_days * DAY
    os.utime(marker, (then, then))
    return directory


@pytest.fixture
def environments() -> dict[str, Path]:
    names = ("litert-2.2.0-py311", "litert-2.1.0-py311", "litert-2.0.3-py311")
    return {name: environment(name, 1000, 2.0 + days) for days, name in enumerate(names)}


@pytest.fixture
def holder(environments) -> Iterator[subprocess.Popen[str]]:
    """Another process that uses the environment that was used least recently."""
    directory = environments["litert-2.0.3-py311"]
    # As if it had taken it days ago.
    state = (directory / "ready.json").stat()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, directory], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        os.utime(directory / "ready.json", ns=(state.st_atime_ns, state.st_mtime_ns))
        yield process
        process.kill()


def left() -> set[str]:
    return {path.name for path in (cache_directory() / "runtimes").glob("*-py3*")}


def test_the_least_recently_used_goes_first(environments):
    removed = prune_environments(cache_directory(), 2500)
    assert [each.path.name for each in removed] == ["litert-2.0.3-py311"]
    assert left() == environments.keys() - {"litert-2.0.3-py311"}


def test_a_use_counts(environments):
    oldest = environments["litert-2.0.3-py311"]
    locks.take(oldest, oldest / "ready.json")
    assert entries(cache_directory())[0].path == oldest
    prune_environments(cache_directory(), 1500, grace_seconds=0)
    assert left() == {oldest.name}


def test_what_another_process_uses_stays_until_it_ends(environments, holder):
    removed = prune(cache_directory(), 0)
    assert {each.path.name for each in removed} == environments.keys() - {"litert-2.0.3-py311"}
    assert left() == {"litert-2.0.3-py311"}
    holder.kill()
    holder.wait()
    prune(cache_directory(), 0)
    assert left() == set()


def test_what_was_used_within_the_hour_stays():
    new = environment("litert-2.3.0-py311", 1000, 0.0)
    assert prune(cache_directory(), 0) == ()
    assert new.is_dir()


def test_the_command_counts_shows_and_prunes_them(environments):
    shown = CliRunner().invoke(command, ["show"]).output
    assert "runtimes: 3, 3.00 kB" in shown
    done = CliRunner().invoke(command, ["prune", "--max-size", "1.5K"]).output
    assert "2 entries removed, 2.00 kB; 1.00 kB left" in done
    assert left() == {"litert-2.2.0-py311"}
    assert len(environments) == 3


def test_an_environment_that_was_made_again_is_held_again(environments):
    directory = environments["litert-2.1.0-py311"]
    locks.take(directory, directory / "ready.json")
    (directory / ".in-use").unlink()
    with locks.alone(directory) as is_free:
        assert is_free
    locks.take(directory, directory / "ready.json")
    with locks.alone(directory) as is_free:
        assert not is_free
