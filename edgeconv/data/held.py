"""Arrays by name, whole or batch by batch, to one .npz: never all of them in memory twice."""

from __future__ import annotations

import math
import shutil
import zipfile
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

from edgeconv.data.memory import LARGEST_BYTES
from edgeconv.types.errors import InputRefused, OutputRefused
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    Array = np.ndarray[Any, Any]

_LABELS = "labels"


class ArrayFiles:
    """The arrays (n, ...) of the argument `word`, by name, "" for a single one."""

    def __init__(self, word: str, directory: Path) -> None:
        self._word = word
        self._directory = directory
        self._columns: dict[str, _Column] = {}
        self._labels = ""
        self.count = 0

    def add(self, inputs: Any, labels: Any, most: int | None = None) -> None:
        """Write further samples, up to `most` in all. Raises `InputRefused`, `OutputRefused`."""
        arrays = self._named(inputs, labels)
        counts = {name: len(array) for name, array in arrays.items()}
        if len(set(counts.values())) > 1:
            each = ", ".join(f"{self._what(name)} {count}" for name, count in counts.items())
            raise InputRefused(
                f"{self._word}: the arrays have different numbers of samples: {each}",
                hint="each sample needs a value for every input, and a label if there are any",
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
            raise no_room(error) from error
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
            if "" in named or named.keys() & labels.keys():
                raise InputRefused(
                    f"{self._word} has labels by output, and inputs not named apart from them",
                    hint="give two dictionaries without a common key",
                )
            given |= labels
        elif labels is not None:
            self._labels = next(n for n in (_LABELS, f"{_LABELS}_", "y_") if n not in named)
            given[self._labels] = labels
        arrays = {name: self._array(name, value) for name, value in given.items()}
        return {name: self._with_samples(name, arrays) for name in arrays}

    def _with_samples(self, name: str, arrays: Mapping[str, Array]) -> Array:
        """The array with a first dimension: a label alone is that of a single sample."""
        array = arrays[name]
        if self._labels and not arrays[self._labels].ndim:
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
        if name == self._labels and array.ndim == 2 and array.shape[1] == 1:
            return array[:, 0]
        return array

    def _array(self, name: str, value: Any) -> Array:
        import numpy as np

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
        import numpy as np

        is_text = self._first.dtype.kind in "SU"
        if rows.shape[1:] != self._first.shape[1:] or (
            rows.dtype.kind not in "SU" if is_text else rows.dtype != self._first.dtype
        ):
            raise InputRefused(
                f"{self._where} has batches of {self._first.dtype} {self._first.shape[1:]} and of "
                f"{rows.dtype} {rows.shape[1:]}",
                hint="all samples need the same shape and dtype",
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
            raise no_room(error) from error

    def copy(self, file: IO[bytes]) -> None:
        """Write the array as .npy. Raises `OSError`."""
        import numpy as np

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


def no_room(error: OSError) -> OutputRefused:
    """What a full disk raises."""
    return OutputRefused(
        f"the samples cannot be written: {error.strerror or error}",
        hint="free some space, or choose another temporary directory with TMPDIR",
    )
