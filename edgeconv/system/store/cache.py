"""The stage cache: what a stage made, under the hash of all that went into it.

An entry is a directory; it appears whole or not at all, and is never changed. So any number of
processes may share a cache without a lock. The hash of its content has a seal (`seals`): a damaged
entry is removed when it is looked up. One with another key's seal is passed over, for anybody may
have made it. `prune` makes the cache smaller.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from edgeconv.system.store.files import publish_all, sha256_file, sha256_tree
from edgeconv.system.store.locks import alone, used_at
from edgeconv.system.store.seals import is_sealed, key_fault, seal
from edgeconv.system.store.unfinished import (
    remove_directory,
    sweep_unfinished,
    unfinished_directory,
    unfinished_file,
)
from edgeconv.types.errors import OutputRefused

_CONTENT, _SEAL = "content", "seal"
_HEX_DIGITS = 64
_MOST_LOGS = 50
_FOREIGN = (
    "what was sealed with another key in the cache does not count and is made again "
    "(machines that share a cache share EDGECONV_CACHE_KEY)"
)
_warned: list[str] = []


def cache_directory() -> Path:
    """Where stages are cached: $EDGECONV_CACHE_DIR, else the user's cache directory."""
    chosen = os.environ.get("EDGECONV_CACHE_DIR")
    if chosen:
        return Path(chosen).absolute()
    from platformdirs import user_cache_path

    return user_cache_path("edgeconv")


def keep_log(log: Path, name: str) -> Path | None:
    """Copy what a child printed into the cache; None if there is nothing or no room.

    It replaces the copy of the same name; the newest of all are kept.
    """
    directory = cache_directory() / "logs"
    try:
        if not log.stat().st_size:
            return None
        directory.mkdir(parents=True, exist_ok=True)
        target = directory / f"{name}.log"
        publish_all({target: log})
        logs = sorted(directory.glob("*.log"), key=lambda path: -path.stat().st_mtime)
        for old in logs[_MOST_LOGS:]:
            old.unlink(missing_ok=True)
    except (OSError, OutputRefused):
        # The log explains an error, which must be raised in any case.
        return None
    return target


class Cache:
    """Entries by key in `root`. A `root` of None keeps nothing.

    `on_foreign` gets one warning in a process where entries have another key's seal.
    """

    def __init__(
        self, root: Path | None, on_foreign: Callable[[str], None] = lambda _: None
    ) -> None:
        self._root = root
        self._on_foreign = on_foreign

    def find(self, stage: str, key: str) -> Path | None:
        """The directory of an entry's files, None if no entry was sealed with this key.

        Raises `OutputRefused` if the cache cannot be read.
        """
        if self._root is None:
            return None
        entry = self._root / stage / key
        with self._refusals():
            if not entry.is_dir():
                return None
        tree = _sealed_tree(entry)
        if tree is None:
            if not _warned:
                _warned.append(key_fault() or _FOREIGN)
                self._on_foreign(_warned[0])
            return None
        if _is_whole(entry, tree):
            # For `prune`; a cache may be read-only.
            with contextlib.suppress(OSError):
                os.utime(entry / _CONTENT)
            return entry / _CONTENT
        discard(entry)
        return None

    def find_promised(self, stage: str, key: str, name: str, sha256: str) -> Path | None:
        """A file with this hash in an entry, whoever made it; or None."""
        if self._root is None:
            return None
        file = self._root / stage / key / _CONTENT / name
        with contextlib.suppress(OSError):
            if not file.is_symlink() and file.is_file() and sha256_file(file) == sha256:
                return file
        return None

    def refuse_unwritable(self) -> None:
        """Raise `OutputRefused` if nothing could be kept, before the work is done."""
        if self._root is not None:
            with self._refusals():
                self._root.mkdir(parents=True, exist_ok=True)
                sweep_unfinished(self._root)
                with unfinished_file(self._root):
                    pass

    def keep(self, stage: str, key: str, files: Mapping[str, Path]) -> None:
        """Copy files and directories into a new entry, by name, unless there is one of this key.

        Raises `OutputRefused` if the cache cannot be written.
        """
        if self._root is None:
            return
        entry = self._root / stage / key
        with self._refusals():
            if entry.is_dir():
                if _sealed_tree(entry) is not None:
                    return
                discard(entry)
            entry.parent.mkdir(parents=True, exist_ok=True)
            sweep_unfinished(entry.parent)
            with unfinished_directory(entry.parent) as temporary:
                content = temporary / _CONTENT
                content.mkdir()
                for name, path in files.items():
                    copy = shutil.copytree if path.is_dir() else shutil.copyfile
                    copy(path, content / name)
                tree = sha256_tree(content)
                sealed = tree + seal(stage, key, tree)
                (temporary / _SEAL).write_text(sealed, encoding="ascii")
                _rename_new(temporary, entry)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputRefused(
                f"cannot use the cache {self._root}: {error.strerror or error}",
                hint="set EDGECONV_CACHE_DIR to a writable directory, or use --no-cache",
            ) from error


def _sealed_tree(entry: Path) -> str | None:
    """The hash that the content must have; None if this key has not sealed the entry."""
    try:
        text = (entry / _SEAL).read_bytes()[: 3 * _HEX_DIGITS].decode("latin-1")
    except OSError:
        return None
    tree, sealed = text[:_HEX_DIGITS], text[_HEX_DIGITS:]
    return tree if is_sealed(sealed, entry.parent.name, entry.name, tree) else None


def _is_whole(entry: Path, tree: str) -> bool:
    try:
        return sha256_tree(entry / _CONTENT) == tree
    except OSError:
        return False


def discard(entry: Path) -> None:
    """Remove an entry where that is possible."""
    with contextlib.suppress(OSError):
        remove_directory(entry)


def _rename_new(temporary: Path, entry: Path) -> None:
    try:
        temporary.rename(entry)
    except OSError:
        # Another process made the same entry first; its bytes are the same.
        if not entry.is_dir():
            raise


# The size of the cache, and making it smaller.

# The environments of runtimes together; a run that makes one removes others beyond it.
ENVIRONMENTS_BYTES = 10 * 10**9
_ENVIRONMENTS = "runtimes"
# One of them is written last into an environment, and its time is when it was last used.
_MARKERS = ("ready.json", "ready")
# For this long a run may use what it has found in the cache; that is never removed.
GRACE_SECONDS = 3600.0


class CacheEntry(NamedTuple):
    """An entry of the cache: its stage, its size in bytes, when it was last used (Unix time)."""

    path: Path
    stage: str
    size_bytes: int
    used: float


def entries(root: Path, stages: str = "*") -> tuple[CacheEntry, ...]:
    """The entries of the stages of this pattern, the last used first. Raises `OutputRefused`."""
    try:
        return tuple(sorted(_entries(root, stages), key=lambda entry: -entry.used))
    except OSError as error:
        raise OutputRefused(
            f"cannot read the cache {root}: {error.strerror}",
            hint="set EDGECONV_CACHE_DIR to the right directory",
        ) from error


def prune(
    root: Path, most_bytes: int, *, grace_seconds: float = GRACE_SECONDS
) -> tuple[CacheEntry, ...]:
    """Remove entries until the others have at most `most_bytes`; returns the removed ones.

    The least recently used goes first. An entry that was used within `grace_seconds` stays, for a
    run may be reading it, and so does the environment of a runtime that a process holds. What
    killed runs left unfinished is removed too. Any number of processes may prune, read and write at
    the same time.
    """
    for directory in (root, *root.glob("*")):
        sweep_unfinished(directory)
    return _pruned(entries(root), most_bytes, grace_seconds)


def prune_environments(
    root: Path, most_bytes: int = ENVIRONMENTS_BYTES, *, grace_seconds: float = GRACE_SECONDS
) -> tuple[CacheEntry, ...]:
    """As `prune`, for the environments of runtimes alone."""
    return _pruned(entries(root, _ENVIRONMENTS), most_bytes, grace_seconds)


def _pruned(
    all_entries: Sequence[CacheEntry], most_bytes: int, grace_seconds: float
) -> tuple[CacheEntry, ...]:
    left = sum(entry.size_bytes for entry in all_entries)
    newest = time.time() - grace_seconds
    removed = []
    for entry in reversed(all_entries):
        if left <= most_bytes:
            break
        # A run may have used it since.
        if entry.used <= newest and _used_now(entry) <= newest and _removed(entry):
            left -= entry.size_bytes
            removed.append(entry)
    return tuple(removed)


def _removed(entry: CacheEntry) -> bool:
    """Remove an entry, unless it is an environment in use; returns whether it is gone."""
    if entry.stage != _ENVIRONMENTS:
        discard(entry.path)
        return True
    with alone(entry.path) as is_free:
        if is_free:
            discard(entry.path)
        return is_free


def size_bytes(directory: Path) -> int:
    """The bytes of all files below."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.lstat().st_size if not path.is_dir() else 0
    return total


def _used_now(entry: CacheEntry) -> float:
    with contextlib.suppress(FileNotFoundError):
        return _used(entry.path, entry.stage) or 0.0
    return 0.0


def _used(path: Path, stage: str) -> float | None:
    """When an entry was last used, as Unix time; None for a directory that is not an entry."""
    if stage == _ENVIRONMENTS:
        return next(filter(None, (used_at(path / name) for name in _MARKERS)), None)
    content = path / _CONTENT
    is_entry = content.is_dir() and not path.name.startswith(".")
    return content.stat().st_mtime if is_entry else None


def _entries(root: Path, stages: str) -> Iterator[CacheEntry]:
    for stage in sorted(root.glob(stages)):
        if not stage.is_dir():
            continue
        for path in stage.iterdir():
            with contextlib.suppress(FileNotFoundError):
                used = _used(path, stage.name)
                if used is not None:
                    yield CacheEntry(path, stage.name, size_bytes(path), used)
