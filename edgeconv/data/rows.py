"""Rows of an array written to a file as they come."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.data.strings import holds_strings
from edgeconv.errors import InputRefused, OutputRefused

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.data.samples import Array


class RowsFile:
    """A .npy file of `count` rows that are written in any order, and never all in memory.

    Strings are the exception: how much room they need is known once all of them are there.
    Rows of different positions may be written at the same time by different threads.
    """

    def __init__(self, path: Path, count: int, like: Array) -> None:
        """`like` has the dtype of the file and, after its first dimension, the shape of a row.

        Raises `OutputRefused` where there is no room.
        """
        self.path = path
        self.row = (like.dtype, like.shape[1:])
        self._strings: dict[int, Array] = {}
        header: dict[str, Any] = {
            "descr": np.lib.format.dtype_to_descr(like.dtype),
            "fortran_order": False,
            "shape": (count, *like.shape[1:]),
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                np.lib.format.write_array_header_1_0(file, header)
                self._begin = file.tell()
                if not holds_strings(like):
                    file.truncate(self._begin + count * self._row_bytes)
            self._file = os.open(path, os.O_WRONLY)
        except OSError as error:
            raise _no_room(path, error) from error

    def write(self, start: int, rows: Array) -> None:
        """Write rows (n, *shape) from row `start` on.

        Raises `InputRefused` for rows of another shape or dtype, `OutputRefused`.
        """
        is_alike = rows.dtype == self.row[0] or (holds_strings(rows) and self.row[0].kind == "S")
        if not is_alike or rows.shape[1:] != self.row[1]:
            raise InputRefused(
                f"rows of {rows.dtype} {rows.shape[1:]} after some of {self.row[0]} {self.row[1]}"
            )
        if holds_strings(rows):
            self._strings[start] = rows
            return
        data = memoryview(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
        position = self._begin + start * self._row_bytes
        try:
            while data:
                written = os.pwrite(self._file, data, position)
                data, position = data[written:], position + written
        except OSError as error:
            raise _no_room(self.path, error) from error

    def close(self) -> None:
        """Nothing more is to be written."""
        os.close(self._file)
        if self._strings:
            rows = np.concatenate([self._strings[start] for start in sorted(self._strings)])
            try:
                np.save(self.path, rows, allow_pickle=False)
            except OSError as error:
                raise _no_room(self.path, error) from error

    @property
    def _row_bytes(self) -> int:
        dtype, shape = self.row
        size: int = dtype.itemsize * math.prod(shape)
        return size


def _no_room(path: Path, error: OSError) -> OutputRefused:
    return OutputRefused(
        f"cannot write outputs to {path}: {error.strerror or error}",
        hint="free some space, or choose another temporary directory with TMPDIR",
    )
