"""A file is hashed once in a process while it stays as it is, and again once it changed."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from edgeconv.model import source
from edgeconv.system.store import notes
from edgeconv.system.store.notes import CLOCK_STEP_NS, sha256_once


@pytest.fixture
def read(monkeypatch) -> list[Path]:
    """The files whose bytes are hashed, in order."""
    paths: list[Path] = []
    compute = notes.sha256_file

    def recording(path: Path) -> str:
        paths.append(path)
        return compute(path)

    monkeypatch.setattr(notes, "sha256_file", recording)
    return paths


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "data.npz"
    path.write_bytes(b"first")
    settle()
    return path


def settle() -> None:
    time.sleep(2 * CLOCK_STEP_NS / 1e9)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_file_is_read_once_by_whatever_name_it_is_called(file, read):
    link = file.with_name("link.npz")
    link.symlink_to(file)
    assert {sha256_once(path) for path in (file, link, file)} == {sha256(b"first")}
    assert read == [file]


def test_a_change_of_equal_size_is_seen_though_its_time_is_put_back(file, read):
    before = file.stat()
    sha256_once(file)
    file.write_bytes(b"other")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sha256_once(file) == sha256(b"other")
    assert read == [file, file]


def test_a_file_in_its_place_with_the_same_times_is_another(file, read):
    sha256_once(file)
    replacement = file.with_name("new")
    replacement.write_bytes(b"other")
    os.utime(replacement, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    replacement.replace(file)
    assert sha256_once(file) == sha256(b"other")
    assert len(read) == 2


def test_what_has_only_just_changed_is_read_again(tmp_path, read):
    path = tmp_path / "new"
    for content in (b"first", b"other"):
        # Both within one step of the system's clock for files, as it may be.
        path.write_bytes(content)
        assert sha256_once(path) == sha256(content)
    assert len(read) == 2


def test_what_changes_while_it_is_hashed_is_not_remembered(file, monkeypatch):
    compute = notes.sha256_file

    def late(path: Path) -> str:
        found = compute(path)
        path.write_bytes(b"other")
        return found

    monkeypatch.setattr(notes, "sha256_file", late)
    sha256_once(file)
    monkeypatch.undo()
    settle()
    assert sha256_once(file) == sha256(b"other")


def test_a_model_is_read_once_and_each_file_that_changed_once_more(tmp_path, read):
    model = tmp_path / "saved"
    (model / "variables").mkdir(parents=True)
    (model / "saved_model.pb").write_bytes(b"graph")
    (model / "variables" / "variables.index").write_bytes(b"index")
    settle()
    first = source.identify(model)
    assert source.identify(model) == first
    assert sorted(path.name for path in read) == ["saved_model.pb", "variables.index"]
    read.clear()
    (model / "variables" / "variables.index").write_bytes(b"other")
    assert source.identify(model).sha256 != first.sha256
    assert [path.name for path in read] == ["variables.index"]


def test_the_next_process_reads_a_large_file_only_if_it_has_changed(tmp_path, read, monkeypatch):
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(bytes(notes._LEAST_NOTED_BYTES))
    small.write_bytes(b"few")
    settle()
    first = [sha256_once(path) for path in (large, small)]
    monkeypatch.setattr(notes, "_file_hashes", {})
    assert [sha256_once(path) for path in (large, small)] == first
    assert read == [large, small, small]
    before = large.stat()
    large.write_bytes(b"\1" * notes._LEAST_NOTED_BYTES)
    os.utime(large, ns=(before.st_atime_ns, before.st_mtime_ns))
    settle()
    monkeypatch.setattr(notes, "_file_hashes", {})
    assert sha256_once(large) == sha256(large.read_bytes())
    assert sha256_once(large) != first[0]
    assert read[3:] == [large]


def test_a_note_that_cannot_be_written_or_read_costs_nothing(tmp_path, monkeypatch):
    (tmp_path / "state").write_bytes(b"")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    large = tmp_path / "large"
    large.write_bytes(bytes(notes._LEAST_NOTED_BYTES))
    settle()
    for _ in range(2):
        monkeypatch.setattr(notes, "_file_hashes", {})
        assert sha256_once(large) == sha256(large.read_bytes())
