"""A data set for a model's inputs, whose samples are read when needed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from edgeconv.data.checks import alike, as_written, check_input, stacked
from edgeconv.data.memory import refuse_larger
from edgeconv.data.samples import Array, Samples, SamplesHash, as_slice
from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edgeconv.data.arrays import Items
    from edgeconv.data.reader import ChildDataSet
    from edgeconv.types import Preprocessing, TensorSpec

    Column: TypeAlias = Array | Items
    DataSet: TypeAlias = "LocalDataSet | ChildDataSet"

Indices = np.ndarray[tuple[int], np.dtype[np.intp]]


@dataclass(frozen=True, eq=False)
class LocalDataSet:
    """A data set for a model's inputs: counted and labeled, its samples not read yet.

    `labels` is int64 (n,), or (n, ...) of any numbers where metrics need them, or None.
    `preprocessing` is by input name, "" for those not named.
    """

    text: str
    inputs: tuple[TensorSpec, ...]
    columns: dict[str, Column]
    labels: Array | None
    is_text: bool
    preprocessing: Mapping[str, Preprocessing]
    class_names: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(next(iter(self.columns.values())))

    def take(self, indices: Indices) -> Samples:
        """The samples at `indices` (n,), each input (n, *sample_shape): preprocessed and checked.

        Raises `InputRefused` for what cannot be read or the model cannot take.
        """
        return self._part(indices, {}, None)

    def chunks(
        self,
        indices: Indices,
        size: int,
        digest: SamplesHash | None = None,
    ) -> Iterator[Samples]:
        """The samples at `indices`, `size` at a time, read when needed.

        `digest` is given them as they are stored, before preprocessing, and their labels.
        Raises as `take` does, also where later ones differ from the first in shape or dtype.
        """
        dtypes: dict[str, np.dtype[Any]] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for start in range(0, len(indices), size):
            samples = self._part(indices[start : start + size], dtypes, digest)
            for name, array in samples.arrays.items():
                if shapes.setdefault(name, array.shape[1:]) != array.shape[1:]:
                    raise InputRefused(
                        f"{self.text}: input {name!r}: the first samples have the shape "
                        f"{shapes[name]}, and some after number {start} {array.shape[1:]}",
                        hint="make them equal with --preprocess",
                    )
            yield samples

    def only(self, indices: Indices) -> LocalDataSet:
        """The samples at `indices` as another data set."""
        columns: dict[str, Column] = {
            name: column[indices]
            if isinstance(column, np.ndarray)
            else _ChosenItems(column, indices)
            for name, column in self.columns.items()
        }
        labels = None if self.labels is None else self.labels[indices]
        return replace(self, columns=columns, labels=labels)

    def stored(self, indices: Indices) -> dict[str, Array | list[Array]]:
        """The samples at `indices` as they are stored, by input: an array, or one a sample."""
        return {
            name: column[as_slice(indices)]
            if isinstance(column, np.ndarray)
            else [column[int(index)] for index in indices]
            for name, column in self.columns.items()
        }

    def row_hashes(self) -> Array | None:
        """The SHA-256 of each stored sample, S64 (n,); None where they are read one by one."""
        arrays = [self.columns[name] for name in sorted(self.columns)]
        if not all(isinstance(array, np.ndarray) for array in arrays):
            return None
        digests = (
            hashlib.sha256(b"".join(array[index].tobytes() for array in arrays)).hexdigest()
            for index in range(self.count)
        )
        return np.fromiter(digests, "S64", self.count)

    def _part(
        self,
        indices: Indices,
        dtypes: dict[str, np.dtype[Any]],
        digest: SamplesHash | None,
    ) -> Samples:
        arrays = {spec.name: self._taken(spec, indices, dtypes, digest) for spec in self.inputs}
        labels = None if self.labels is None else self.labels[indices]
        if digest and labels is not None:
            digest.add_labels(labels)
        return Samples(arrays, labels, self.text)

    def _taken(
        self,
        spec: TensorSpec,
        indices: Indices,
        dtypes: dict[str, np.dtype[Any]],
        digest: SamplesHash | None,
    ) -> Array:
        where = f"{self.text}: input {spec.name!r}"
        steps = self.preprocessing.get(spec.name, self.preprocessing.get(""))
        column = self.columns[spec.name]
        if isinstance(column, np.ndarray):
            array = column[as_slice(indices)]
            if self.is_text:
                array = as_written(where, array, spec, has_steps=steps is not None)
            if digest:
                digest.add(spec.name, array)
            array = _preprocessed(array, steps, where)
        else:
            stored = (column[int(index)] for index in indices)
            parts: list[Array] = []
            needed = 0
            for item in alike(where, stored, dtypes.get(spec.name)):
                dtypes[spec.name] = item.dtype
                if digest:
                    digest.add(spec.name, item[None])
                parts.append(_preprocessed(item[None], steps, where)[0])
                needed += 2 * parts[-1].nbytes
                refuse_larger(f"{where}: {len(parts)} samples", needed, "make them smaller")
            array = stacked(where, parts, spec)
        check_input(self.text, array, spec)
        return array


class _ChosenItems:
    """Some of the items, in another order."""

    def __init__(self, items: Items, indices: Indices) -> None:
        self._items = items
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Array:
        return self._items[int(self._indices[index])]


def _preprocessed(batch: Array, steps: Preprocessing | None, where: str) -> Array:
    if steps is None:
        return batch
    from edgeconv.data.preprocess import preprocess

    return preprocess(batch, steps, where)
