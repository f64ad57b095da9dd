"""Blobs in a directory and in an object store: whole, by their content, and never another one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fsspec", reason="edgeconv[ray] is not installed")

from edgeconv.errors import InputRefused, ToolFailed, UsageError
from edgeconv.store.blobs import Blobs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["directory", "file", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    places = {
        "directory": str(tmp_path / "cache"),
        "file": f"file://{tmp_path / 'cache'}",
        "memory": f"memory://{tmp_path.name}",
    }
    return Blobs(places[request.param])


def test_what_was_put_comes_back(blobs: Blobs, tmp_path: Path) -> None:
    for content in (b"", b"a" * 3_000_000):
        (tmp_path / "file").write_bytes(content)
        digest = blobs.put(tmp_path / "file")
        assert digest == hashlib.sha256(content).hexdigest()
        assert blobs.put(tmp_path / "file") == digest
        blobs.get(digest, tmp_path / "deep" / "copy")
        assert (tmp_path / "deep" / "copy").read_bytes() == content


def test_an_entry_is_the_last_one_written_until_it_is_removed(blobs: Blobs) -> None:
    assert blobs.read("cells/a.json") is None
    for content in (b"1", b"2"):
        blobs.write("cells/a.json", content)
        assert blobs.read("cells/a.json") == content
    for _ in range(2):
        blobs.remove("cells/a.json")
        assert blobs.read("cells/a.json") is None


def test_a_blob_that_somebody_changed_is_refused(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path / "cache"))
    (tmp_path / "file").write_bytes(b"good")
    digest = blobs.put(tmp_path / "file")
    (stored,) = (tmp_path / "cache" / "blobs").rglob(digest)
    stored.write_bytes(b"evil")
    with pytest.raises(InputRefused, match="has other content"):
        blobs.get(digest, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_blob_that_is_not_there_is_named(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path / "cache"))
    with pytest.raises(ToolFailed, match=f"FileNotFoundError: .*{64 * '0'}"):
        blobs.get("0" * 64, tmp_path / "copy")


def test_nothing_unfinished_stays_and_a_full_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    blobs = Blobs(str(tmp_path / "cache"))
    digest = blobs.put(tmp_path / "file")
    names = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert names == [digest]
    (tmp_path / "cache" / "cells").write_bytes(b"a file where a directory must be")
    with pytest.raises(ToolFailed, match="the shared cache"):
        blobs.write("cells/a.json", b"1")


@pytest.mark.parametrize("url", ["nothing://x", "s4://bucket"])
def test_an_unknown_protocol_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="Protocol not known"):
        Blobs(url)
