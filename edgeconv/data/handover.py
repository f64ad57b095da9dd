"""Arrays handed over to another process part by part, or row by row.

A part is a directory, named by its number, which its reader removes: only a few are on the disk.
What a caller has in memory goes to one .npz, whole or batch by batch.
"""

import math
import os
import shutil
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgeconv.data.arrays import LARGEST_BYTES, holds_strings
from edgeconv.data.samples import Array, Samples, no_room, read_samples, write_samples
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import quoted

_POLL_S = 0.005


def put_part(samples: Samples, directory: Path, number: int) -> None:
    """Hand over part `number`, counted from 0. Raises `OutputRefused`."""
    unfinished = directory / f"{number}.part"
    write_samples(samples, unfinished)
    unfinished.rename(directory / str(number))


def waiting_parts(directory: Path) -> int:
    """How many parts have been handed over and not been taken."""
    return sum(entry.suffix != ".part" for entry in directory.iterdir())


def take_parts(directory: Path, count: int) -> Iterator[Samples]:
    """The parts in order, waiting for each, until there are `count` samples; each is removed."""
    taken, number = 0, 0
    while taken < count:
        part = directory / str(number)
        while not part.exists():
            time.sleep(_POLL_S)
        samples = read_samples(part)
        yield samples
        taken += samples.count
        number += 1
        shutil.rmtree(part)


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
            raise no_room(f"outputs to {path}", error) from error

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
            raise no_room(f"outputs to {self.path}", error) from error

    def close(self) -> None:
        """Nothing more is to be written."""
        os.close(self._file)
        if self._strings:
            rows = np.concatenate([self._strings[start] for start in sorted(self._strings)])
            try:
                np.save(self.path, rows, allow_pickle=False)
            except OSError as error:
                raise no_room(f"outputs to {self.path}", error) from error

    @property
    def _row_bytes(self) -> int:
        dtype, shape = self.row
        size: int = dtype.itemsize * math.prod(shape)
        return size


_LABEL_ARRAY = "labels"


class ArrayFiles:
    """The arrays (n, ...) of the argument `word`, by name, "" for a single one."""

    def __init__(self, word: str, directory: Path) -> None:
        self._word = word
        self._directory = directory
        self._columns: dict[str, _Column] = {}
        self._labels = ""
        self._label_names: tuple[str, ...] = ()
        self.count = 0

    def add(self, inputs: Any, labels: Any, most: int | None = None) -> None:
        """Write further samples, up to `most` in all. Raises `InputRefused`, `OutputRefused`."""
        arrays = self._named(inputs, labels)
        counts = {name: len(array) for name, array in arrays.items()}
        if len(set(counts.values())) > 1:
            each = ", ".join(f"{self._what(name)} {count}" for name, count in counts.items())
            raise InputRefused(
                f"{self._word}: the arrays have different numbers of samples: {each}",
                hint="each sample needs a value for every input, and a label if there are any; "
                "labels of several outputs are a dictionary by their names",
            )
        if self._columns and arrays.keys() != self._columns.keys():
            raise InputRefused(
                f"{self._word}: a batch has {quoted(arrays)}, and the first one "
                f"{quoted(self._columns)}"
            )
        first = next(iter(counts.values()))
        taken = first if most is None else min(first, most - self.count)
        for position, (name, array) in enumerate(arrays.items()):
            if name not in self._columns:
                path = self._directory / f"{position}.raw"
                self._columns[name] = _Column(f"{self._word}: {self._what(name)}", path, array)
            self._columns[name].write(array[:taken])
        self.count += taken
        if sum(column.size_bytes for column in self._columns.values()) > LARGEST_BYTES:
            raise InputRefused(
                f"{self._word}: more than {LARGEST_BYTES:,} bytes",
                hint="give fewer samples: a few hundred calibrate, a few thousand measure",
            )

    def close(self) -> tuple[Path, dict[str, str]]:
        """The .npz and the options that it is read with. Raises `OutputRefused`."""
        path = self._directory / "arrays.npz"
        try:
            with zipfile.ZipFile(path, "w") as archive:
                for name, column in self._columns.items():
                    member = zipfile.ZipInfo(f"{name}.npy")
                    with archive.open(member, "w", force_zip64=True) as file:
                        column.copy(file)
        except OSError as error:
            raise no_room("samples", error) from error
        return path, {"labels": self._labels} if self._labels else {}

    def _named(self, inputs: Any, labels: Any) -> dict[str, Array]:
        """The arrays by name; labels by output are under the names of these."""
        named = inputs if isinstance(inputs, Mapping) else {"": inputs}
        if not named or not all(isinstance(name, str) for name in named):
            raise InputRefused(
                f"{self._word} is a dictionary with the keys {list(named)[:5]}",
                hint="its keys are the names of the model's inputs",
            )
        given = dict(named)
        by_output = isinstance(labels, Mapping)
        if by_output:
            if not labels or not all(isinstance(name, str) and name for name in labels):
                raise InputRefused(
                    f"{self._word} has labels with the keys {list(labels)[:5]}",
                    hint="their keys are the names of the model's outputs",
                )
            if named.keys() & labels.keys():
                raise InputRefused(
                    f"{self._word} has labels by output, and inputs not named apart from them",
                    hint="give two dictionaries without a common key",
                )
            given |= labels
            self._label_names = tuple(labels)
        elif labels is not None:
            self._labels = next(
                n for n in (_LABEL_ARRAY, f"{_LABEL_ARRAY}_", "y_") if n not in named
            )
            given[self._labels] = labels
            self._label_names = (self._labels,)
        arrays = {name: self._array(name, value) for name, value in given.items()}
        return {name: self._with_samples(name, arrays) for name in arrays}

    def _with_samples(self, name: str, arrays: Mapping[str, Array]) -> Array:
        """The array with a first dimension: a label alone belongs to a single sample."""
        array = arrays[name]
        if not all(arrays[label].ndim for label in self._label_names):
            return array[None]
        if not array.ndim:
            raise InputRefused(
                f"{self._word}: {self._what(name)} is a single value, not an array",
                hint="the first dimension counts the samples: x[None]",
            )
        if not len(array):
            raise InputRefused(
                f"{self._word}: {self._what(name)} has no samples: shape {array.shape}",
                hint="give at least one",
            )
        if name and name == self._labels and array.shape[1:] == (1,):
            return array[:, 0]
        return array

    def _array(self, name: str, value: Any) -> Array:
        where = f"{self._word}: {self._what(name)}"
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InputRefused(
                f"{where} is no array: {error}", hint="all samples need the same shape"
            ) from error
        if array.dtype.kind == "O" and all(isinstance(each, str | bytes) for each in array.flat):
            array = array.astype("S" if any(isinstance(e, bytes) for e in array.flat) else "U")
        if array.dtype.kind not in "biufSU":
            raise InputRefused(
                f"{where} has the type {type(value).__name__}, of {array.dtype}: neither numbers "
                "nor texts",
                hint="for example np.stack(list(x)), if all samples have one shape",
            )
        return array

    def _what(self, name: str) -> str:
        if name and name == self._labels:
            return "the labels"
        return f"{name!r}" if name else "the array"


class _Column:
    """One array, whose rows are in a file of their values; texts are kept until the end."""

    def __init__(self, where: str, path: Path, first: Array) -> None:
        self._where = where
        self._path = path
        self._first = first[:0]
        self._count = 0
        self._texts: list[Array] = []
        self.size_bytes = 0

    def write(self, rows: Array) -> None:
        """Append rows. Raises `InputRefused` where they differ from the first in shape or dtype."""
        is_text = self._first.dtype.kind in "SU"
        if rows.shape[1:] != self._first.shape[1:] or (
            rows.dtype.kind not in "SU" if is_text else rows.dtype != self._first.dtype
        ):
            raise InputRefused(
                f"{self._where} has batches of {self._first.dtype} {self._first.shape[1:]} and of "
                f"{rows.dtype} {rows.shape[1:]}",
                hint="all samples need the same shape and dtype; arrays of several inputs are a "
                "dictionary, by input",
            )
        self._count += len(rows)
        self.size_bytes += rows.nbytes
        if is_text:
            self._texts.append(rows.copy())
            return
        try:
            with self._path.open("ab") as file:
                file.write(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
        except OSError as error:
            raise no_room("samples", error) from error

    def copy(self, file: IO[bytes]) -> None:
        """Write the array as .npy. Raises `OSError`."""
        if self._texts:
            np.lib.format.write_array(file, np.concatenate(self._texts), allow_pickle=False)
            return
        described: dict[str, Any] = {
            "descr": np.lib.format.dtype_to_descr(self._first.dtype),
            "fortran_order": False,
            "shape": (self._count, *self._first.shape[1:]),
        }
        np.lib.format.write_array_header_1_0(file, described)
        if math.prod(described["shape"]):
            with self._path.open("rb") as raw:
                shutil.copyfileobj(raw, file, 1 << 20)
        self._path.unlink(missing_ok=True)
