"""Files that are read and hashed, and those that are published.

Publishing is atomic: a reader sees the old file or the new one, never a part. A file is written
next to its target, flushed to the disk, and renamed: that holds after a power failure too. The next
run that writes there removes what a killed run left.

A verb never replaces what it reads. `reading` holds for one verb; `also_reading` adds what is found
later, such as the models of a configuration. Every file that is published is compared; a verb with
long work asks before it.

Git LFS pointers, small texts in place of large files until `git lfs pull`, are refused.
"""

import contextlib
import errno
import glob
import hashlib
import itertools
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

import msgspec

from edgeconv.system.store.hashes import ChecksumState, json_checksum, without_checksum
from edgeconv.system.store.unfinished import sweep_unfinished, unfinished_file
from edgeconv.types.decoding import ready
from edgeconv.types.errors import InputRefused, OutputRefused, UsageError

# A report of a million samples has a tenth of it.
_MOST_NOUN_BYTES = 2**28
# More names than a directory of a user's has, where one is like what was typed.
_MOST_ENTRIES = 1000
_ALIKE = 0.85
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


def absent(path: Path, hint: str = "check the path", *, what: str = "") -> InputRefused:
    """The refusal of a path where nothing is, with the name there that is most like it."""
    if path.is_symlink():
        return InputRefused(f"{what}{path} is a symbolic link to nothing", hint=hint)
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        names = [entry.name for entry in itertools.islice(entries, _MOST_ENTRIES)]
        for near in get_close_matches(path.name, names, n=1, cutoff=_ALIKE):
            hint = f"did you mean {path.with_name(near)}? Else {hint}"
    return InputRefused(f"{what}{path} does not exist", hint=hint)


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
        raise absent(path, what=f"{what} ") from None
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
        noun = msgspec.json.decode(content, type=ready(kind))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InputRefused(f"{path} is not a {what} of this version: {error}") from error
    if not hasattr(noun, "checksum"):
        return noun, "none"
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


_READ: ContextVar[list[Path] | None] = ContextVar("read", default=None)
# What a directory of samples has. Other files may be there too, such as an earlier report.
_SAMPLES = r".*\.(bmp|gif|jpe?g|np[yz]|parquet|png|tfrecord|tiff?|wav|webp)"


@contextmanager
def reading(paths: Iterable[Path]) -> Iterator[None]:
    """For the block, the files, globs and directories that a verb reads."""
    token = _READ.set([*(_READ.get() or ()), *paths])
    try:
        yield
    finally:
        _READ.reset(token)


def also_reading(paths: Iterable[Path]) -> None:
    """Further ones, until the verb ends; outside of a verb nothing."""
    if (read := _READ.get()) is not None:
        read += [path for path in paths if path not in read]


def refuse_inputs(targets: Iterable[Path], further: Iterable[Path] = ()) -> None:
    """Raise `UsageError` if a target is a file that is read, under whichever name.

    `further` are read too. For a directory these are samples, and all files of a SavedModel.
    Devices and pipes are never inputs.
    """
    read = [*(_READ.get() or ()), *further]
    for target in targets:
        if found := next((path for path in read if _is_changed_by(target, path)), None):
            raise UsageError(
                f"writing {target} would change {found}, which is read", hint="choose another path"
            )


def _is_changed_by(target: Path, read: Path) -> bool:
    try:
        is_special = target.exists() and not target.is_file()
        return not is_special and _would_change(target, read)
    except (OSError, ValueError):
        # A name that the system does not take is of no file.
        return False


def _would_change(target: Path, read: Path) -> bool:
    real = Path(os.path.realpath(target))
    if read.is_dir():
        top = Path(os.path.realpath(read))
        folders = [each for each in real.parents if each == top or top in each.parents]
        is_of_model = any((each / "saved_model.pb").is_file() for each in folders)
        is_sample = bool(folders and re.fullmatch(_SAMPLES, real.name.lower()) and real.is_file())
        return is_of_model or is_sample
    if real.is_file() and (files := [*_files(read)]):
        return any(real.samefile(file) for file in files)
    return str(real) == os.path.realpath(read)


def _files(read: Path) -> Iterator[Path]:
    """The file, or those that match a glob."""
    names = [str(read)] if read.exists() else glob.glob(str(read))  # noqa: PTH207
    yield from (Path(name) for name in names if Path(name).is_file())


_BEGINNING = b"version https://git-lfs.github.com/spec/v1"
_LARGEST_BYTES = 1024
# At most this many files are read to count the pointers.
_MOST_COUNTED = 10_000


def is_pointer(content: bytes) -> bool:
    """Whether the bytes of a whole file are a Git LFS pointer."""
    return len(content) < _LARGEST_BYTES and content.startswith(_BEGINNING)


def refuse_pointer(path: Path) -> None:
    """Raise `InputRefused` if the file `path` can be read and is a Git LFS pointer."""
    if _holds_pointer(path):
        raise pointer_refusal(path)


def refuse_pointers_in(directory: Path) -> None:
    """Raise `InputRefused` if a file in `directory`, or below it, is a Git LFS pointer."""
    pointers = sorted(_pointers_below(directory))
    if pointers:
        raise _refusal(pointers[0], len(pointers) - 1, directory)


def pointer_refusal(path: Path) -> InputRefused:
    """The refusal of a file that is a pointer, with the number of others in its directory."""
    return _refusal(path, sum(other != path for other in _pointers_below(path.parent)), path.parent)


def _refusal(path: Path, others: int, directory: Path) -> InputRefused:
    files = "file" if others == 1 else "files"
    also = f"; so {'is' if others == 1 else 'are'} {others} other {files} in {directory}"
    return InputRefused(
        f"{path} is a Git LFS pointer, not the file itself{also if others else ''}",
        hint="run git lfs pull; in CI, check out with LFS (actions/checkout: lfs: true)",
    )


def _pointers_below(directory: Path) -> Iterator[Path]:
    count = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            count += 1
            if count > _MOST_COUNTED:
                return
            path = directory.joinpath(folder, name)
            if _holds_pointer(path):
                yield path


def _holds_pointer(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size < _LARGEST_BYTES:
            return is_pointer(path.read_bytes())
    return False


def sha256_file(path: Path) -> str:
    """The sha256 of a file's bytes, as hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


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
