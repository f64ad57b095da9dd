"""Writes the files of an embedding: all of them or none, and no foreign file is touched.

A journal with their names is written first; the record is written last, and then the journal is
removed. So a run that is killed at any moment leaves only files that the next one knows.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from edgeconv.embedding.plan import JOURNAL, RECORD
from edgeconv.errors import InputRefused, OutputRefused
from edgeconv.store import (
    json_with_checksum,
    owned,
    publish_all,
    publish_bytes,
    read_noun,
    sha256_file,
    sweep_unfinished,
)
from edgeconv.types import Embedded, EmbeddedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Files = Mapping[str, bytes | Path]


class WriteJournal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files that a run was about to write or remove."""

    files: tuple[str, ...]


def listed(files: Files) -> tuple[EmbeddedFile, ...]:
    """The files with their hashes, sorted by path."""
    return tuple(
        EmbeddedFile(path=path, sha256=_sha256(content)) for path, content in sorted(files.items())
    )


def write_embedding(
    directory: Path, files: Files, embedded: Embedded, *, on_wait: Callable[[], None] = lambda: None
) -> None:
    """Make the directory contain these files, and no others of an earlier run.

    An unchanged file is not touched, so that builds see no change. Raises `OutputRefused` where it
    cannot be written, and, before any change, where a foreign file is in the way.
    """
    with owned(directory, on_wait=on_wait):
        record, journal = _record(directory), _journal(directory)
        earlier = {*record, *journal}
        for path in files:
            _refuse_foreign(directory, path, earlier)
        for folder in {(directory / path).parent for path in journal}:
            sweep_unfinished(folder)
        changed = [path for path in sorted(files) if not _is_same(directory / path, files[path])]
        stale = _stale(directory, record, journal, files)
        text = json_with_checksum(embedded, indent=2)
        if changed or stale or journal or not _is_same(directory / RECORD, text):
            _put(directory, files, changed, stale, sorted(earlier | set(files)), text)


def _put(
    directory: Path,
    files: Files,
    changed: list[str],
    stale: list[str],
    all_paths: list[str],
    record: bytes,
) -> None:
    journal = directory / JOURNAL
    publish_bytes(msgspec.json.encode(WriteJournal(files=tuple(all_paths))), journal)
    with _refusals(directory):
        for path in changed:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
    try:
        publish_all({directory / path: files[path] for path in changed})
    except OutputRefused:
        _forget(directory, files, changed)
        raise
    with _refusals(directory):
        for path in stale:
            (directory / path).unlink(missing_ok=True)
            _remove_empty(directory, (directory / path).parent)
    publish_bytes(record, directory / RECORD)
    with _refusals(directory):
        journal.unlink(missing_ok=True)


def _forget(directory: Path, files: Files, changed: list[str]) -> None:
    """Remove the journal and empty folders, where no file was written."""
    if not any(_is_same(directory / path, files[path]) for path in changed):
        for path in changed:
            _remove_empty(directory, (directory / path).parent)
        with contextlib.suppress(OSError):
            (directory / JOURNAL).unlink()


def _stale(
    directory: Path, record: Mapping[str, str], journal: tuple[str, ...], files: Files
) -> list[str]:
    """The unchanged files that earlier runs wrote and this one does not."""
    return sorted(
        path
        for path in {*record, *journal} - set(files)
        if path in journal or _is_what(directory / path, record[path])
    )


def _record(directory: Path) -> dict[str, str]:
    """The files of an earlier run and their hashes. Raises `InputRefused` for a bad record."""
    if not (directory / RECORD).is_file():
        return {}
    embedded = read_noun(directory / RECORD, Embedded, what="record of an embedding")
    files = {file.path: file.sha256 for file in embedded.files}
    _safe(directory / RECORD, tuple(files))
    return files


def _journal(directory: Path) -> tuple[str, ...]:
    """The files of a run that did not finish."""
    if not (directory / JOURNAL).is_file():
        return ()
    journal = read_noun(directory / JOURNAL, WriteJournal, what="journal of an embedding")
    return _safe(directory / JOURNAL, journal.files)


def _safe(source: Path, paths: tuple[str, ...]) -> tuple[str, ...]:
    """`paths`; `InputRefused` for one outside of the directory, which must not be deleted."""
    directory = source.parent
    for path in paths:
        parts = PurePosixPath(path)
        is_below = not parts.is_absolute() and ".." not in parts.parts
        links = any((directory / each).is_symlink() for each in parts.parents)
        if not is_below or links or path != str(parts) or path == ".":
            raise InputRefused(
                f"{source} names the file {path!r}, which is not below its directory",
                hint="it was edited; remove it and the files that edgeconv wrote",
            )
    return paths


def _refuse_foreign(directory: Path, path: str, earlier: set[str]) -> None:
    target = directory / path
    if path not in earlier and (target.exists() or target.is_symlink()):
        raise OutputRefused(
            f"{target} exists, and edgeconv did not write it",
            hint="move it, or choose another directory with -o",
        )
    for parent in target.relative_to(directory).parents[:-1]:
        folder = directory / parent
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise OutputRefused(
                f"{folder} is not a directory", hint="move it, or choose another -o"
            )


def _remove_empty(directory: Path, folder: Path) -> None:
    while folder != directory:
        try:
            folder.rmdir()
        except OSError:
            return  # It is not empty.
        folder = folder.parent


def _is_same(target: Path, content: bytes | Path) -> bool:
    return _is_what(target, _sha256(content))


def _is_what(target: Path, sha256: str) -> bool:
    return target.is_file() and not target.is_symlink() and sha256_file(target) == sha256


def _sha256(content: bytes | Path) -> str:
    if isinstance(content, Path):
        return sha256_file(content)
    return hashlib.sha256(content).hexdigest()


@contextlib.contextmanager
def _refusals(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputRefused(
            f"cannot write in {directory}: {error.strerror}",
            hint="choose another directory with -o",
        ) from error
