"""A file is hashed once in a process while it stays as it is, and again once it changed."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgeconv import source
from edgeconv.store import hash_notes, hashes
from edgeconv.store.hash_notes import LEAST_BYTES
from edgeconv.store.hashes import CLOCK_STEP_NS, sha256_once


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose bytes are hashed, in order."""
    paths: list[Path] = []
    compute = hashes.sha256_file

    def recording(path: Path) -> str:
        paths.append(path)
        return compute(path)

    monkeypatch.setattr(hashes, "sha256_file", recording)
    return paths


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.npz"
    path.write_bytes(b"first")
    settle()
    return path


def settle() -> None:
    time.sleep(2 * CLOCK_STEP_NS / 1e9)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_file_is_read_once_by_whatever_name_it_is_called(file: Path, read: list[Path]) -> None:
    link = file.with_name("link.npz")
    link.symlink_to(file)
    assert {sha256_once(path) for path in (file, link, file)} == {sha256(b"first")}
    assert read == [file]


def test_a_change_of_equal_size_is_seen_though_its_time_is_put_back(
    file: Path, read: list[Path]
) -> None:
    before = file.stat()
    sha256_once(file)
    file.write_bytes(b"other")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sha256_once(file) == sha256(b"other")
    assert read == [file, file]


def test_a_file_in_its_place_with_the_same_times_is_another(file: Path, read: list[Path]) -> None:
    sha256_once(file)
    replacement = file.with_name("new")
    replacement.write_bytes(b"other")
    os.utime(replacement, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    replacement.replace(file)
    assert sha256_once(file) == sha256(b"other")
    assert len(read) == 2


def test_what_has_only_just_changed_is_read_again(tmp_path: Path, read: list[Path]) -> None:
    path = tmp_path / "new"
    for content in (b"first", b"other"):
        # Both within one step of the system's clock for files, as it may be.
        path.write_bytes(content)
        assert sha256_once(path) == sha256(content)
    assert len(read) == 2


def test_what_changes_while_it_is_hashed_is_not_remembered(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = hashes.sha256_file

    def late(path: Path) -> str:
        found = compute(path)
        path.write_bytes(b"other")
        return found

    monkeypatch.setattr(hashes, "sha256_file", late)
    sha256_once(file)
    monkeypatch.undo()
    settle()
    assert sha256_once(file) == sha256(b"other")


def test_a_model_is_read_once_and_each_file_that_changed_once_more(
    tmp_path: Path, read: list[Path]
) -> None:
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


# From process to process


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is worth a note, and has been as it is for long enough."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(hash_notes, "LEAST_AGE_S", 0.0)
    path = tmp_path / "large.npz"
    path.write_bytes(bytes(LEAST_BYTES))
    settle()
    return path


def next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "_hashes", {})


def test_the_next_process_knows_the_hash_of_a_large_file(
    large: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sha256_once(large)
    next_process(monkeypatch)
    assert sha256_once(large) == first == sha256(bytes(LEAST_BYTES))
    assert read == [large]


def test_the_next_process_reads_a_file_whose_content_changed_though_its_time_was_put_back(
    large: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = large.stat()
    sha256_once(large)
    large.write_bytes(b"x" * LEAST_BYTES)
    os.utime(large, ns=(before.st_atime_ns, before.st_mtime_ns))
    next_process(monkeypatch)
    assert sha256_once(large) == sha256(b"x" * LEAST_BYTES)
    assert read == [large, large]


def test_a_torn_note_and_one_that_cannot_be_written_cost_time_only(
    large: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256_once(large)
    (note,) = (large.parent / "state" / "edgeconv" / "hashes").iterdir()
    note.write_bytes(note.read_bytes()[:40])
    next_process(monkeypatch)
    assert sha256_once(large) == sha256(bytes(LEAST_BYTES))
    (large.parent / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_STATE_HOME", str(large.parent / "file"))
    next_process(monkeypatch)
    assert sha256_once(large) == sha256(bytes(LEAST_BYTES))
    assert len(read) == 3


@pytest.mark.parametrize("why", ["young", "small", "read-only"])
def test_of_some_files_no_note_is_kept(
    why: str, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "young":
        monkeypatch.setattr(hash_notes, "LEAST_AGE_S", 60.0)
    elif why == "small":
        large.write_bytes(bytes(LEAST_BYTES - 1))
    else:
        image = SimpleNamespace(f_flag=os.ST_RDONLY)
        monkeypatch.setattr(hash_notes.os, "statvfs", lambda _: image)
    settle()
    sha256_once(large)
    assert not (large.parent / "state").exists()


def test_the_oldest_notes_go(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_notes, "_MOST_NOTES", 2)
    for number in range(4):
        path = large.with_name(f"{number}.npz")
        path.write_bytes(bytes(LEAST_BYTES))
        settle()
        sha256_once(path)
    assert len(list((large.parent / "state" / "edgeconv" / "hashes").iterdir())) == 2
