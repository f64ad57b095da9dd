"""Checked samples, and what can be asked of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from edgeconv.nouns import TensorSpec

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples for a model's inputs, in the order of its inputs.

    `arrays` maps an input's name to (n, *sample_shape), without the model's batch
    dimension; `labels` is int64 (n,) or None; `source` is where they came from.
    """

    arrays: dict[str, Array]
    labels: np.ndarray[tuple[int], np.dtype[np.int64]] | None
    source: str

    @property
    def count(self) -> int:
        """How many samples there are."""
        return int(next(iter(self.arrays.values())).shape[0])

    def take(self, indices: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Samples:
        """The samples at `indices`, in that order."""
        if len(indices) == self.count and bool((np.diff(indices) == 1).all()):
            return self
        return Samples(
            {name: array[indices] for name, array in self.arrays.items()},
            None if self.labels is None else self.labels[indices],
            self.source,
        )


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
    """Refuse a count that is no multiple of the batch: no sample is dropped or repeated.

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
    named: list[tuple[str, Array]] = sorted(samples.arrays.items())
    digest = hashlib.sha256()
    for name, array in named if samples.labels is None else [*named, ("", samples.labels)]:
        digest.update(msgspec.json.encode((name, array.dtype.str, array.shape)) + b"\n")
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
