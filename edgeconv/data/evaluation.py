"""Which samples of a data set calibrate, verify and measure a model, and made-up ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from edgeconv.data.arrays import ended_list
from edgeconv.data.checks import input_dtype
from edgeconv.data.samples import (
    Array,
    Indices,
    Samples,
    SamplesHash,
    batch_size,
    has_batch,
    stacked_spec,
)
from edgeconv.data.source import DataSet
from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused, UsageError

_SEED = 20240607
# Verification needs samples as well as calibration: 14 of 100, and 64 of 448 or more.
_HELD_BACK_SHARE = 7
# Small enough to be quick, large enough for five halvings of an image.
_DYNAMIC_SIZE = 32
# Numbers of all samples of an input, each of which takes 8 bytes while it is made.
_MOST_NUMBERS = 2**28
# In no vocabulary: what a table does not know is part of what a model does.
_UNKNOWN = b"edgeconv-unknown"
# Small parts wake a process often, which then finds less of the model in its caches. Memory for
# larger arrays comes from the system each time.
_PART_BYTES = 16 << 20
_TOGETHER_BYTES = 512 << 20
_MOST_IN_PART = 1024
# How many samples are `first`, rounded to whole batches.
_FIRST = 64


class EvaluationSet:
    """Chosen samples of a data set, or synthetic samples.

    `indices`, ascending, are those in the source. `sha256` is the hash of the samples before any
    preprocessing, which the first pass over all parts computes.
    """

    def __init__(self, source: DataSet | Samples, count: int | None, batch: int) -> None:
        """`count` of None takes all. Raises as `seeded_choice` does."""
        self._source = source
        self.batch = batch
        self.indices = chosen_indices(source, source.count if count is None else count)
        check_whole_batches("the request is for", self.count, batch)
        self.text = source.source if isinstance(source, Samples) else source.text
        self.labels: Array | None = None
        if source.labels is not None:
            self.labels = source.labels[self.indices]
        self._sha256 = ""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.indices)

    @property
    def is_made_up(self) -> bool:
        """Whether the samples are synthetic."""
        return isinstance(self._source, Samples)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the labels 0, 1, …, where they are known."""
        return () if isinstance(self._source, Samples) else self._source.class_names

    @property
    def sha256(self) -> str:
        """The hash of the stored samples and their labels, as `SamplesHash` has it."""
        if not self._sha256:
            for _ in self.parts(self.part_size()):
                pass
        return self._sha256

    @cached_property
    def first(self) -> Samples:
        """The first 64, or all where there are fewer, in whole batches."""
        count = max(_FIRST // self.batch, 1) * self.batch
        return self._source.take(self.indices[:count])

    def part_size(self, unit: int = 1, workers: int = 1) -> int:
        """How many samples make a part: a multiple of `unit` and of the batch, some megabytes."""
        size = sum(array[:1].nbytes for array in self.first.arrays.values())
        part_bytes = min(_PART_BYTES, _TOGETHER_BYTES // workers)
        most = min(part_bytes // max(1, size), _MOST_IN_PART, -(-self.count // (8 * workers)))
        whole = int(np.lcm(unit, self.batch))
        return max(1, most // whole) * whole

    def parts(self, size: int) -> Iterator[Samples]:
        """All of them, `size` at a time, read when needed; see `DataSet.chunks`."""
        if self._sha256:
            yield from self._chunks(size)
            return
        digest = SamplesHash()
        yield from self._chunks(size, digest)
        self._sha256 = digest.hexdigest()

    def _chunks(self, size: int, digest: SamplesHash | None = None) -> Iterator[Samples]:
        if not isinstance(self._source, Samples):
            yield from self._source.chunks(self.indices, size, digest)
            return
        for start in range(0, self.count, size):
            part = self._source.take(self.indices[start : start + size])
            if digest:
                digest.update(part)
            yield part


def check_whole_batches(what: str, count: int, batch: int) -> None:
    """Refuse a count that is not a multiple of the batch: no sample is dropped or repeated.

    `what` begins the message, as in "the source has". Raises `InputRefused`.
    """
    if count % batch:
        raise InputRefused(
            f"{what} {count} samples, and the model takes {batch} at once",
            hint=f"use a multiple of {batch} samples",
        )


def split_calibration(
    samples: Samples | DataSet,
    count: int | None,
    *,
    held_back: int = 64,
    batch: int = 1,
    consecutive: bool = False,
) -> tuple[Indices, Indices]:
    """The indices of `count` calibration samples, and of up to `held_back` to verify with.

    With a count of None a seventh, from one to `held_back`, is held back, and all others
    calibrate.
    The choice is by a fixed seed, in equal shares of every label, in the order of the source. Both
    parts are whole batches. Where `count` leaves none, the last calibration samples are used for
    both. `consecutive`: the first `count` samples, and those that come next.

    Raises `UsageError` for a count below 1, `InputRefused` for one that is too large.
    """
    total = samples.count
    if count is None:
        check_whole_batches("the source has", total, batch)
        count = total - _held_back_of(total, held_back, batch) or total
    _check_count(count, total, batch)
    if consecutive:
        spare = min(_whole(held_back, batch), (total - count) // batch * batch)
        first = count if spare else count - min(_whole(held_back, batch), count)
        kept = np.arange(first, first + (spare or count - first))
        return np.arange(count), kept
    rng = np.random.default_rng(_SEED)
    chosen = _choose(rng, np.arange(total), samples.labels, count)
    others = np.setdiff1d(np.arange(total), chosen)
    spare = min(_whole(held_back, batch), others.size // batch * batch)
    if spare:
        kept = _choose(rng, others, samples.labels, spare)
    else:
        kept = chosen[-min(_whole(held_back, batch), count) :]
    return chosen, kept


def seeded_choice(samples: Samples | DataSet, count: int) -> Samples:
    """`count` samples by a fixed seed, in equal shares of every label where there are labels.

    They are in the order of the source. Raises as `split_calibration` does.
    """
    return samples.take(chosen_indices(samples, count))


def chosen_indices(samples: Samples | DataSet, count: int) -> Indices:
    """Which ones `seeded_choice` takes, ascending. Raises as it does."""
    _check_count(count, samples.count, 1)
    rng = np.random.default_rng(_SEED)
    return _choose(rng, np.arange(samples.count), samples.labels, count)


def _held_back_of(total: int, most: int, batch: int) -> int:
    return min(_whole(min(most, max(1, total // _HELD_BACK_SHARE)), batch), total)


def _whole(count: int, batch: int) -> int:
    """`count` rounded up to whole batches."""
    return -(-count // batch) * batch


def _check_count(count: int, total: int, batch: int) -> None:
    if count < 1:
        raise UsageError(f"the request is for {count} samples", hint="at least 1 is needed")
    if count > total:
        raise InputRefused(
            f"the request is for {count} samples, the source has {total}", hint=f"at most {total}"
        )
    check_whole_batches("the request is for", count, batch)


def _choose(
    rng: np.random.Generator, pool: Indices, labels: np.ndarray[Any, Any] | None, count: int
) -> Indices:
    """`count` of the indices in `pool`, ascending."""
    if labels is None or labels.ndim != 1 or labels.dtype.kind in "fV":
        return np.sort(rng.permutation(pool)[:count])
    classes, class_of, sizes = np.unique(labels[pool], return_inverse=True, return_counts=True)
    shares = _shares(rng, sizes, count)
    parts = [
        rng.permutation(pool[class_of == index])[: shares[index]] for index in range(len(classes))
    ]
    return np.sort(np.concatenate(parts))


def _shares(rng: np.random.Generator, sizes: np.ndarray[Any, Any], count: int) -> list[int]:
    """How many of each class: the largest-remainder method, ties in random order.

    Each share is less than 1 away from count * size / sum(sizes); they add up to count.
    """
    total = int(sizes.sum())
    whole, remainders = np.divmod(sizes * count, total)
    order = np.lexsort((rng.random(len(sizes)), -remainders))
    whole[order[: count - int(whole.sum())]] += 1
    return [int(share) for share in whole]


def synthetic_inputs(inputs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """The inputs as they take made-up samples: stacked where they cannot have a batch."""
    return inputs if has_batch(inputs) else tuple(map(stacked_spec, inputs))


def synthetic_samples(
    inputs: tuple[TensorSpec, ...],
    count: int,
    seed: int,
    vocabularies: Sequence[Sequence[bytes]] = (),
) -> Samples:
    """`count` samples for a model's inputs, rounded up to whole batches of a fixed batch.

    Floats are standard normal, integers 0 or 1 (valid as any index or mask), bools
    either; a dynamic dimension within a sample gets size 32. Strings are words of the
    `vocabularies` in turn, and in every last sample a word that none has. Equal arguments give
    equal samples. Raises `InputRefused` for an input of resources, and for one that is larger than
    any sample.
    """
    inputs = synthetic_inputs(inputs)
    batch = batch_size(inputs)
    count = -(-count // batch) * batch
    arrays = {
        spec.name: _made_up(spec, count, np.random.default_rng([seed, index]), vocabularies)
        for index, spec in enumerate(inputs)
    }
    return Samples(arrays, None, f"synthetic:seed={seed}")


def _made_up(
    spec: TensorSpec, count: int, rng: np.random.Generator, vocabularies: Sequence[Sequence[bytes]]
) -> Array:
    dtype = input_dtype(spec)
    shape = (count, *(_DYNAMIC_SIZE if size == -1 else size for size in spec.shape[1:]))
    if math.prod(shape) > _MOST_NUMBERS:
        raise InputRefused(
            f"{count} samples of input {spec.name!r} would be {math.prod(shape)} numbers",
            hint="check the shape of the input; a model this large needs real samples",
        )
    if dtype.kind == "S":
        return _words(shape, rng, [words for words in vocabularies if words])
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def _words(
    shape: tuple[int, ...], rng: np.random.Generator, vocabularies: Sequence[Sequence[bytes]]
) -> Array:
    each = math.prod(shape[1:])
    words = []
    for sample in range(shape[0]):
        vocabulary = vocabularies[sample % len(vocabularies)] if vocabularies else (b"",)
        if sample == shape[0] - 1:
            vocabulary = (_UNKNOWN,)
        words += [vocabulary[index] for index in rng.integers(0, len(vocabulary), each)]
    return ended_list(words, "made-up samples").reshape(shape)
