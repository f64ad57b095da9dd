"""The stage cache: what a stage made, under the hash of all that went into it.

An entry is a directory; it appears whole or not at all, and is never changed. So any
number of processes may share a cache without a lock: who loses the race to make an
entry finds the same bytes there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.errors import OutputRefused

if TYPE_CHECKING:
    from collections.abc import Mapping


def cache_directory() -> Path:
    """Where stages are cached: $EDGECONV_CACHE_DIR, else the user's cache directory."""
    chosen = os.environ.get("EDGECONV_CACHE_DIR")
    if chosen:
        return Path(chosen).absolute()
    from platformdirs import user_cache_path

    return user_cache_path("edgeconv")


class Cache:
    """Entries by key in `root`. A `root` of None keeps nothing."""

    def __init__(self, root: Path | None) -> None:
        self._root = root

    def find(self, stage: str, key: str) -> Path | None:
        """The directory of a cached entry, or None."""
        if self._root is None:
            return None
        entry = self._root / stage / key
        return entry if entry.is_dir() else None

    def keep(self, stage: str, key: str, files: Mapping[str, Path]) -> None:
        """Copy files and directories into a new entry, by name; one that is there is left alone.

        Raises `OutputRefused` where the cache cannot be written.
        """
        if self._root is None:
            return
        entry = self._root / stage / key
        if entry.is_dir():
            return
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=entry.parent))
            try:
                for name, path in files.items():
                    copy = shutil.copytree if path.is_dir() else shutil.copyfile
                    copy(path, temporary / name)
                _rename_new(temporary, entry)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        except OSError as error:
            raise OutputRefused(
                f"cannot write the cache {self._root}: {error.strerror or error}",
                hint="set EDGECONV_CACHE_DIR to a writable directory, or use --no-cache",
            ) from error


def _rename_new(temporary: Path, entry: Path) -> None:
    try:
        temporary.rename(entry)
    except OSError:
        # Another process made the same entry first; its bytes are the same.
        if not entry.is_dir():
            raise
