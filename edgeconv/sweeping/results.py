"""The results of a sweep in its directory: a file for each cell, called by the cell's key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from edgeconv.errors import InputRefused
from edgeconv.store.files import publish_bytes, read_noun, writable_directory
from edgeconv.types import CellResult

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from edgeconv.errors import EdgeconvError


class Keyed(Protocol):
    """What has the key of a cell."""

    @property
    def key(self) -> str:
        """The key."""


class Results:
    """Reads and writes results. A file is whole or not there, also after a power failure."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, key: str) -> CellResult | None:
        """A cell's result; None where there is none, or a damaged one."""
        path = self._path(key)
        try:
            result = read_noun(path, CellResult, what="result") if path.is_file() else None
        except InputRefused:
            return None
        return result if result and result.key == key else None

    def write(self, result: CellResult) -> None:
        """Keep a result. Raises `OutputRefused`."""
        path = self._path(result.key)
        writable_directory(path.parent)
        publish_bytes(msgspec.json.encode(result), path)

    def fail(self, cells: Iterable[Keyed], error: EdgeconvError) -> None:
        """Keep a failure for each cell, by the first line of its message."""
        for cell in cells:
            name, reason = type(error).__name__, error.headline
            self.write(CellResult(key=cell.key, error=name, reason=reason, hint=error.hint))

    def remove(self, key: str) -> None:
        """Forget a result."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.directory / "cells" / key[:2] / f"{key}.json"
