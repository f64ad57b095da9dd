"""Content hashes of files, of directory trees, and of values; and checksums in documents.

A checksum is the sha256 of its document with 64 zeros in its place. It detects damage and mistakes,
not forgery: whoever changes a document can compute it again.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

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


ChecksumState = Literal["whole", "changed", "none"]
Document = TypeVar("Document", bound=msgspec.Struct)

_BLANK = "0" * 64
_JSON = re.compile(rb'"checksum":\s*"([0-9a-f]{64})"\s*\}\s*\Z')
_HTML = re.compile(rb"<!-- edgeconv checksum ([0-9a-f]{64}) -->\s*\Z")
# What is left of the checksum of a page where one byte of it changed.
_HTML_LIKE = re.compile(rb"edgeconv checksum|[0-9a-f]{31}")
# A checksum, and what may surround it, is in the last bytes of a document.
_END_BYTES = 200


def json_with_checksum(noun: msgspec.Struct, *, indent: int) -> bytes:
    """A noun whose last field is `checksum` as JSON, with its checksum."""
    blank = msgspec.structs.replace(noun, checksum=_BLANK)
    return _completed(msgspec.json.format(msgspec.json.encode(blank), indent=indent) + b"\n", _JSON)


def html_with_checksum(page: str) -> bytes:
    """A page that ends with its checksum in a comment."""
    return _completed(f"{page}<!-- edgeconv checksum {_BLANK} -->\n".encode(), _HTML)


def without_checksum(noun: Document) -> Document:
    """The noun without it, so that it equals the noun that was written."""
    return msgspec.structs.replace(noun, checksum=msgspec.UNSET) if _has_checksum(noun) else noun


def json_checksum(content: bytes, noun: msgspec.Struct) -> ChecksumState:
    """Whether the document that `noun` was read from is as it was written.

    "none" for one that an edgeconv without checksums wrote.
    """
    return _checksum_state(content, _JSON, is_marked=_has_checksum(noun))


def html_checksum(content: bytes) -> ChecksumState:
    """The same for a page."""
    end = content[-_END_BYTES:]
    is_cut = b"</html>" not in end
    return _checksum_state(content, _HTML, is_marked=is_cut or _HTML_LIKE.search(end) is not None)


def _has_checksum(noun: msgspec.Struct) -> bool:
    return getattr(noun, "checksum", msgspec.UNSET) is not msgspec.UNSET


def _checksum_state(
    content: bytes, pattern: re.Pattern[bytes], *, is_marked: bool
) -> ChecksumState:
    span = _span(content, pattern)
    if span is None:
        return "changed" if is_marked else "none"
    start, end = span
    return "whole" if content[start:end] == _checksum(content, start, end) else "changed"


def _completed(content: bytes, pattern: re.Pattern[bytes]) -> bytes:
    span = _span(content, pattern)
    if span is None:
        raise ValueError("the document does not end with space for its checksum")
    start, end = span
    return content[:start] + _checksum(content, start, end) + content[end:]


def _span(content: bytes, pattern: re.Pattern[bytes]) -> tuple[int, int] | None:
    match = pattern.search(content, max(0, len(content) - _END_BYTES))
    return match.span(1) if match else None


def _checksum(content: bytes, start: int, end: int) -> bytes:
    view = memoryview(content)
    digest = hashlib.sha256(view[:start])
    digest.update(_BLANK.encode())
    digest.update(view[end:])
    return digest.hexdigest().encode()
