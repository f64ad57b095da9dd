"""The cache is made smaller without taking anything from who reads it."""

import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeconv.cli.house import cache as command
from edgeconv.system.store import Cache
from edgeconv.system.store.cache import entries, prune
from edgeconv.system.store.unfinished import unfinished_directory
from edgeconv.types.errors import OutputRefused

DAY = 86400.0
NEW, OLDER, OLDEST = ("a" * 64, "b" * 64, "c" * 64)


def keep(root: Path, key: str, size: int, age_days: float, stage: str = "float") -> None:
    """An entry of about `size` bytes, last used so long ago."""
    content = root.parent / "content"
    content.write_bytes(b"x" * size)
    Cache(root).keep(stage, key, {"model": content})
    then = time.time() - age_days * DAY
    os.utime(root / stage / key / "content", (then, then))


@pytest.fixture
def root(tmp_path) -> Path:
    root = tmp_path / "cache"
    for number, key in enumerate((NEW, OLDER, OLDEST)):
        keep(root, key, 1000, number + 1.0)
    (root / "logs").mkdir()
    (root / "logs" / "x.log").write_bytes(b"y" * 500)
    return root


def keys(root: Path) -> set[str]:
    return {entry.path.name for entry in entries(root)}


def test_what_was_not_used_for_longest_goes_first(root):
    assert [entry.path.name for entry in entries(root)] == [NEW, OLDER, OLDEST]
    taken = prune(root, 2500)
    assert [entry.path.name for entry in taken] == [OLDEST]
    assert keys(root) == {NEW, OLDER}
    assert Cache(root).find("float", OLDEST) is None
    found = Cache(root).find("float", NEW)
    assert found is not None
    assert (found / "model").stat().st_size == 1000


def test_what_fits_is_left_and_nothing_but_entries_is_ever_taken(root):
    assert prune(root, 10_000) == ()
    assert len(keys(root)) == 3
    prune(root, 0)
    assert keys(root) == set()
    assert (root / "logs" / "x.log").is_file()


def test_finding_an_entry_keeps_it_from_being_pruned(root):
    assert Cache(root).find("float", OLDEST)
    prune(root, 0)
    assert keys(root) == {OLDEST}
    assert prune(root, 0, grace_seconds=0.0)
    assert keys(root) == set()


def test_what_killed_runs_left_unfinished_goes_and_what_others_are_making_stays(root):
    (root / "float" / ".edgeconv-new-killed_1" / "content").mkdir(parents=True)
    (root / "float" / ".mine").mkdir()
    with unfinished_directory(root / "float") as theirs:
        prune(root, 10_000)
        left = sorted((root / "float").glob(".*"))
        assert left == sorted([theirs, root / "float" / ".mine"])
    assert len(keys(root)) == 3


def test_no_cache_at_all_is_an_empty_one(tmp_path):
    assert entries(tmp_path / "none") == ()
    assert prune(tmp_path / "none", 0) == ()


def test_a_cache_that_is_a_file_of_somebody_is_looked_into_in_vain(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    assert entries(tmp_path / "file") == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_cache_that_cannot_be_read_is_refused(root):
    (root / "float").chmod(0)
    try:
        with pytest.raises(OutputRefused, match="cannot read the cache"):
            entries(root)
    finally:
        (root / "float").chmod(0o700)


def test_the_command_shows_and_prunes(root, monkeypatch):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(root))
    shown = CliRunner().invoke(command, ["show"])
    assert shown.exit_code == 0
    assert "float: 3, 3." in shown.output
    pruned = CliRunner().invoke(command, ["prune", "--max-size", "1.2KB"])
    assert pruned.output.startswith("2 entries removed, 2.")
    Cache(root).find("float", NEW)
    assert (
        "within the last hour" in CliRunner().invoke(command, ["prune", "--max-size", "0"]).output
    )
    assert keys(root) == {NEW}


@pytest.mark.parametrize("size", ["", "five", "5XB", "-1", "1e9"])
def test_a_size_that_is_none_is_refused(size):
    done = CliRunner().invoke(command, ["prune", "--max-size", size])
    assert done.exit_code == 2
    assert "is not a size" in done.output
