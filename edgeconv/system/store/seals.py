"""Seals: they tell what was made here from what somebody else put into the cache.

Whoever writes a file can write its hash too. A seal is an HMAC-SHA256 under a key that is not in
the cache: the user's, made at the first use, or $EDGECONV_CACHE_KEY, by which machines share a
cache.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from edgeconv.system.store.files import publish_bytes, sha256_file
from edgeconv.system.store.hashes import hash_of
from edgeconv.system.store.unfinished import sweep_unfinished, unfinished_file
from edgeconv.types.decoding import ready
from edgeconv.types.errors import OutputRefused, UsageError

_VARIABLE = "EDGECONV_CACHE_KEY"
_LEAST_CHARACTERS = 16
_KEY_BYTES = 32


def seal(*parts: str) -> str:
    """The seal of these texts in this order, as 64 hexadecimal digits.

    Raises `UsageError` for an EDGECONV_CACHE_KEY that can be guessed, and `OutputRefused` for a
    key of the user that others can read.
    """
    return hmac.new(_key(), hash_of(*parts).encode("ascii"), hashlib.sha256).hexdigest()


def is_sealed(text: str, *parts: str) -> bool:
    """Whether `text` is the seal of these parts. Raises as `seal` does."""
    return text.isascii() and hmac.compare_digest(text, seal(*parts))


def publish_sealed(data: bytes, target: Path, *what: str) -> None:
    """Write `data` under its seal, as being `what`. Raises as `seal` and `publish_bytes` do."""
    sealed = seal(*what, hashlib.sha256(data).hexdigest())
    publish_bytes(sealed.encode("ascii") + b"\n" + data, target)


def read_sealed(path: Path, *what: str) -> bytes | None:
    """What `publish_sealed` wrote as being `what`; None if there is nothing with that seal."""
    try:
        sealed, _, data = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    is_valid = is_sealed(sealed.decode("latin-1"), *what, hashlib.sha256(data).hexdigest())
    return data if is_valid else None


class _SealedTree(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of programs as it was sealed: the hash of the sizes, times and inodes of all
    files, the hash of their contents, and the caller's data.
    """

    states: str
    contents: str
    data: bytes


def seal_directory(directory: Path, marker: Path, data: bytes) -> None:
    """Write `data` to `marker`, with a seal of the directory's content."""
    tree = _SealedTree(states=_states(directory), contents=_contents(directory), data=data)
    publish_sealed(msgspec.json.encode(tree), marker, str(directory))


def sealed_directory(directory: Path, marker: Path) -> bytes | None:
    """The data of a directory that is as it was sealed, else None.

    The files are read only where their times or inodes changed, as in a cache that a CI system
    restored.
    """
    content = read_sealed(marker, str(directory))
    if content is None:
        return None
    with contextlib.suppress(OSError):
        tree = msgspec.json.decode(content, type=ready(_SealedTree))
        if tree.states == _states(directory):
            return tree.data
        if tree.contents == _contents(directory):
            # For the next time; a cache may be read-only.
            with contextlib.suppress(OutputRefused):
                seal_directory(directory, marker, tree.data)
            return tree.data
    return None


def _states(directory: Path) -> str:
    digest = hashlib.sha256()
    for path, state in sorted(_files_below(os.fspath(directory))):
        numbers = (state.st_mode, state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)
        digest.update(os.fsencode(path) + f"\0{numbers}\0".encode("ascii"))
    return digest.hexdigest()


def _contents(directory: Path) -> str:
    digest = hashlib.sha256()
    for path, state in sorted(_files_below(os.fspath(directory))):
        content = b""
        if stat.S_ISLNK(state.st_mode):
            content = os.fsencode(Path(path).readlink())
        elif stat.S_ISREG(state.st_mode):
            content = sha256_file(Path(path)).encode("ascii")
        kind = f"\0{stat.filemode(state.st_mode)}\0".encode("ascii")
        digest.update(os.fsencode(path) + kind + content + b"\0")
    return digest.hexdigest()


def _files_below(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    """All files and links with their states; links are not followed."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(entry.path)
            else:
                yield entry.path, entry.stat(follow_symlinks=False)


def _key() -> bytes:
    text = os.environ.get(_VARIABLE, "")
    if not text:
        return _user_key(_key_file())
    if len(text) < _LEAST_CHARACTERS:
        raise UsageError(
            f"{_VARIABLE} has {len(text)} characters, and could be guessed",
            hint="make one with `openssl rand -hex 32`, and keep it as a secret of the CI system",
        )
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def state_directory() -> Path:
    """Where the key is, and notes of what was converted; it outlives every cache."""
    from platformdirs import user_state_path

    return user_state_path("edgeconv")


def _key_file() -> Path:
    return state_directory() / "cache-key"


def key_fault() -> str:
    """Why the cache is not used, where the key file of the user is damaged, else ""."""
    if os.environ.get(_VARIABLE):
        return ""
    with contextlib.suppress(OSError):
        size_bytes = _key_file().stat().st_size
        if size_bytes != _KEY_BYTES:
            return (
                f"the cache is not used: its key {_key_file()} has {size_bytes} bytes instead of "
                f"{_KEY_BYTES}; remove that file, and a new key is made"
            )
    return ""


@cache
def _user_key(path: Path) -> bytes:
    """The key in a file, which is made if there is none.

    Where no file can be made, or it is damaged, a key for this process alone: nothing in the cache
    counts then.
    """
    # A run that was killed in its last step left another name of the key.
    sweep_unfinished(path.parent)
    with contextlib.suppress(OSError):
        if not path.exists():
            _make_key(path)
        state = path.stat()
        if state.st_uid != os.geteuid() or state.st_mode & 0o077:
            raise OutputRefused(
                f"{path} can be read or was written by others, and seals your cache",
                hint="remove it: a new key is made, and so is what is in the cache",
            )
        key = path.read_bytes()
        if len(key) == _KEY_BYTES:
            return key
    return secrets.token_bytes(_KEY_BYTES)


def _make_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Private from the start, and whole: of two at once, one is linked, and both read that one.
    with unfinished_file(path.parent) as (temporary, file):
        file.write(secrets.token_bytes(_KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
