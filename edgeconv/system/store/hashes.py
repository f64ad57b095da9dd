"""Content hashes: of files, of directory trees, and of values."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

_SHA256_CHARACTERS = 64
# The system's clock for files goes in steps of up to a hundredth of a second.
CLOCK_STEP_NS = 20_000_000
# The hashes of files by their state.
_hashes: dict[tuple[int, ...], str] = {}


def sha256_file(path: Path) -> str:
    """The sha256 of a file's bytes, as hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sha256_once(path: Path) -> str:
    """The sha256 of a file's bytes, which a process reads once while the file does not change.

    A file is unchanged while its device, inode, size, mtime and ctime are. No program can choose
    the ctime, so a change is noticed after which a tool has put the mtime back. Changes within one
    step of the clock look alike: the hash of a file that has only just changed is not remembered.
    Writes past the file system, or with the clock set back, are not noticed.
    """
    state = _state(path)
    known = _hashes.get(state)
    if known is not None:
        return known
    is_settled = time.time_ns() - max(state[-2:]) > CLOCK_STEP_NS
    known = sha256_file(path)
    if is_settled and _state(path) == state:
        _hashes[state] = known
    return known


def _state(path: Path) -> tuple[int, ...]:
    status = path.stat()
    identity = (status.st_dev, status.st_ino, status.st_size)
    return (*identity, status.st_mtime_ns, status.st_ctime_ns)


def sha256_tree(
    directory: Path,
    *,
    without: Collection[str] = (),
    follows_out: bool = True,
    sha256_of: Callable[[Path], str] = sha256_file,
) -> str:
    """The sha256 of a directory: of the relative names and contents of all its files.

    Links are followed, but not back into a directory above. Without `follows_out`, a link out of
    the directory counts by its text, and nothing there is read. Files named in `without`, relative
    to `directory`, do not count. `sha256_of` hashes a file.
    """
    digest = hashlib.sha256()
    root = None if follows_out else directory.resolve()
    for path in sorted(_files_below(directory, frozenset(), root)):
        if path.relative_to(directory).as_posix() in without:
            continue
        # A name is bytes to the system, and not always UTF-8.
        digest.update(os.fsencode(path.relative_to(directory).as_posix()) + b"\0")
        if root is not None and leads_out(path, root):
            digest.update(hashlib.sha256(b"link\0" + os.fsencode(path.readlink())).digest())
        else:
            digest.update(bytes.fromhex(sha256_of(path)))
    return digest.hexdigest()


def leads_out(path: Path, root: Path) -> bool:
    """Whether a path is a symbolic link to something that is not below `root`, a resolved path."""
    return path.is_symlink() and root not in path.resolve().parents


def _files_below(directory: Path, above: frozenset[Path], root: Path | None) -> Iterator[Path]:
    real = directory.resolve()
    if real in above:
        return
    for path in directory.iterdir():
        if root is not None and leads_out(path, root):
            yield path
        elif path.is_dir():
            yield from _files_below(path, above | {real}, root)
        elif path.is_file():
            yield path


def is_sha256(text: object) -> bool:
    """Whether a text is a sha256 as edgeconv writes it: 64 digits, lower case."""
    return (
        isinstance(text, str)
        and len(text) == _SHA256_CHARACTERS
        and set(text) <= set("0123456789abcdef")
    )


def hash_of(*values: Any) -> str:
    """The sha256 of JSON-able values and nouns: equal values, equal hash."""
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()
