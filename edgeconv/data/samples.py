"""Checked samples, and what can be asked of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from edgeconv.data.strings import STRING, holds_strings, plain
from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from edgeconv.types import TensorSpec

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples for a model's inputs, in the order of its inputs.

    `arrays` maps an input's name to (n, *sample_shape), without the model's batch
    dimension, those of strings as `edgeconv.data.strings` has them; `labels` is int64 (n,), or
    (n, ...) of any numbers where metrics need them, or None; `source` is where they came from.
    """

    arrays: dict[str, Array]
    labels: Array | None
    source: str

    @property
    def count(self) -> int:
        """How many samples there are."""
        return int(next(iter(self.arrays.values())).shape[0])

    def take(self, indices: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Samples:
        """The samples at `indices`, in that order; not copied where they are next to each other."""
        chosen = as_slice(indices)
        return Samples(
            {name: array[chosen] for name, array in self.arrays.items()},
            None if self.labels is None else self.labels[chosen],
            self.source,
        )


def as_slice(
    indices: np.ndarray[tuple[int], np.dtype[np.intp]],
) -> slice | np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The indices (n,) as a slice, which copies nothing, where they are consecutive."""
    if len(indices) and bool((np.diff(indices) == 1).all()):
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices


def batch_size(inputs: tuple[TensorSpec, ...]) -> int:
    """How many samples the model takes at once: its fixed batch, 1 where that is dynamic.

    Raises `InputRefused` for a model whose inputs differ in it.
    """
    sizes = {spec.name: spec.shape[0] for spec in inputs if spec.shape and spec.shape[0] != -1}
    if len(set(sizes.values())) > 1:
        each = ", ".join(f"{name!r} {size}" for name, size in sizes.items())
        raise InputRefused(f"the model's inputs take different numbers of samples: {each}")
    return next(iter(sizes.values()), 1)


def check_whole_batches(what: str, count: int, batch: int) -> None:
    """Refuse a count that is not a multiple of the batch: no sample is dropped or repeated.

    `what` begins the message, as in "the source has". Raises `InputRefused`.
    """
    if count % batch:
        raise InputRefused(
            f"{what} {count} samples, and the model takes {batch} at once",
            hint=f"use a multiple of {batch} samples",
        )


def sha256_samples(samples: Samples) -> str:
    """The hash of the content: names, dtypes, shapes and bytes, of the labels as well.

    The order of the inputs and the source do not count.
    """
    digest = SamplesHash()
    digest.update(samples)
    return digest.hexdigest()


class SamplesHash:
    """`sha256_samples` of samples that come in parts, never all in memory.

    They may differ in shape and dtype: these count as much as the bytes.
    """

    def __init__(self) -> None:
        self._hexdigest = ""
        # The labels are under a key that no input can have.
        self._columns: dict[tuple[str, bool], _ColumnHash] = {}

    def update(self, samples: Samples) -> None:
        """Take the next samples into account; all have the same inputs."""
        for name, array in samples.arrays.items():
            self.add(name, array)
        if samples.labels is not None:
            self.add_labels(samples.labels)

    def add(self, name: str, rows: Array) -> None:
        """Take the next samples (n, *shape) of an input into account."""
        self._columns.setdefault((name, False), _ColumnHash()).add(rows)

    def add_labels(self, labels: Array) -> None:
        """Take the labels (n, ...) of the next samples into account."""
        self._columns.setdefault(("", True), _ColumnHash()).add(labels)

    def take_over(self, hexdigest: str) -> None:
        """Take the hash of all of them from a process that has read them."""
        self._hexdigest = hexdigest

    def hexdigest(self) -> str:
        """The hash of all of them."""
        if self._hexdigest:
            return self._hexdigest
        named = [(key, *column.parts()) for key, column in sorted(self._columns.items())]
        return hashlib.sha256(msgspec.json.encode(named)).hexdigest()


class _ColumnHash:
    """The bytes of the rows of one array, and how many in a row have which dtype and shape."""

    def __init__(self) -> None:
        self._bytes = hashlib.sha256()
        self._runs: list[tuple[int, str, tuple[int, ...]]] = []

    def add(self, rows: Array) -> None:
        kind = (STRING if holds_strings(rows) else rows.dtype.str, rows.shape[1:])
        before = 0
        if self._runs and self._runs[-1][1:] == kind:
            before = self._runs.pop()[0]
        self._runs.append((before + len(rows), *kind))
        if holds_strings(rows):
            # Not as they are stored, which depends on the longest of those that came together.
            for value in plain(rows).ravel():
                self._bytes.update(len(value).to_bytes(8, "little") + value)
            return
        self._bytes.update(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)

    def parts(self) -> tuple[list[tuple[int, str, tuple[int, ...]]], str]:
        return self._runs, self._bytes.hexdigest()
