"""Atomic publishing: a reader sees the old file or the new one, never a part.

A file is written next to its target, flushed to the disk, and renamed: that holds after a power
failure too. The next run that writes there removes what a killed run left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import TYPE_CHECKING, TypeVar

import msgspec

from edgeconv.system.store.checksums import json_checksum, without_checksum
from edgeconv.system.store.inputs import refuse_inputs
from edgeconv.system.store.pointers import is_pointer, pointer_refusal
from edgeconv.system.store.unfinished import sweep_unfinished, unfinished_file
from edgeconv.types.errors import InputRefused, OutputRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from edgeconv.system.store.checksums import ChecksumState

# A report of a million samples has a tenth of it.
_MOST_NOUN_BYTES = 2**28
Noun = TypeVar("Noun", bound=msgspec.Struct)


def publish_bytes(data: bytes, target: Path) -> None:
    """Write `data` to `target`, atomically and durably; a device or pipe is written into.

    Raises `OutputRefused`; `target` is then as it was, or all new where only its directory could
    not be synced.
    """
    if not is_device(target):
        publish_all({target: data})
        return
    with _refusals(target), target.open("wb") as device:
        device.write(data)


def is_device(path: Path) -> bool:
    """Whether it is written into and never replaced, as /dev/stdout or a pipe."""
    try:
        return path.exists() and not (path.is_file() or path.is_dir())
    except OSError:
        # Writing there gives the reason.
        return False


def publish_all(contents: Mapping[Path, bytes | Path]) -> None:
    """Write each content, bytes or a file to copy, to its target, in this order.

    All are written next to their targets before the first is renamed: a full disk changes
    nothing. Raises `OutputRefused` as `publish_bytes` does, and `UsageError` for a target that is
    an input.
    """
    refuse_inputs(contents)
    with contextlib.ExitStack() as stack:
        for directory in dict.fromkeys(target.parent for target in contents):
            sweep_unfinished(directory)
        written = {
            target: stack.enter_context(_written_next_to(target, content))
            for target, content in contents.items()
        }
        for target, temporary in written.items():
            with _refusals(target):
                os.replace(temporary, target)
        _sync_directories(written)


def publish_new(data: bytes, target: Path) -> None:
    """Write `data` to `target` as `publish_bytes` does. Raises `OutputRefused` if it exists."""
    sweep_unfinished(target.parent)
    with _written_next_to(target, data) as temporary, _refusals(target):
        # Unlike a rename, it never replaces anything.
        os.link(temporary, target)
    _sync_directories([target])


def writable_directory(directory: Path) -> Path | None:
    """Make `directory`, and make sure that files can be made in it.

    Returns the topmost directory that had to be made, which a run that publishes nothing removes
    again, None if all were there. Raises `OutputRefused`.
    """
    with _refusals(directory):
        # `exists` can fail too: for a name that is too long, or below a private directory.
        above = (*reversed(directory.parents), directory)
        topmost = next((path for path in above if not path.exists()), None)
        directory.mkdir(parents=True, exist_ok=True)
        sweep_unfinished(directory)
        with unfinished_file(directory):
            pass
    return topmost


def read_noun(path: Path, kind: type[Noun], *, what: str) -> Noun:
    """The noun in the JSON file `path`. Raises `InputRefused`."""
    return read_checked(path, kind, what=what)[0]


def read_checked(path: Path, kind: type[Noun], *, what: str) -> tuple[Noun, ChecksumState]:
    """The noun in the JSON file `path`, and whether it is as it was written; see `read_noun`."""
    try:
        if path.stat().st_size > _MOST_NOUN_BYTES:
            raise InputRefused(
                f"{path} has more than {_MOST_NOUN_BYTES >> 20} MiB, so it is not a {what}"
            )
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputRefused(f"{what} {path} does not exist") from None
    except OSError as error:
        raise InputRefused(f"{what} {path} cannot be read: {error.strerror}") from error
    if is_pointer(content):
        raise pointer_refusal(path)
    return decode_checked(content, kind, what=what, path=path)


def decode_checked(
    content: bytes, kind: type[Noun], *, what: str, path: Path
) -> tuple[Noun, ChecksumState]:
    """The same for bytes that were read from `path`."""
    try:
        noun = msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InputRefused(f"{path} is not a {what} of this version: {error}") from error
    return without_checksum(noun), json_checksum(content, noun)


@contextlib.contextmanager
def _written_next_to(target: Path, content: bytes | Path) -> Iterator[Path]:
    """A file next to `target` with its content, on the disk; removed if still there."""
    with _refusals(target):
        if is_device(target):
            # Renaming would put a file in its place.
            raise OutputRefused(f"cannot write {target}: it is not a file", hint="name a file")
        with unfinished_file(target.parent) as (temporary, file):
            # It is private; a published file is as readable as any other.
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            if isinstance(content, bytes):
                file.write(content)
            else:
                with content.open("rb") as source:
                    shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
            yield temporary


@contextlib.contextmanager
def _refusals(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "free some space" if error.errno == errno.ENOSPC else "choose another path"
        raise OutputRefused(f"cannot write {target}: {error.strerror}", hint=hint) from error


def _sync_directories(targets: Iterable[Path]) -> None:
    for target in {target.parent: target for target in targets}.values():
        with _refusals(target):
            handle = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _umask() -> int:
    # The umask can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
