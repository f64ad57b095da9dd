"""The samples that measure a model: those chosen of a data set, or made-up ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from edgeconv.data.arrays import ended_list
from edgeconv.data.checks import input_dtype
from edgeconv.data.samples import (
    Array,
    Samples,
    SamplesHash,
    batch_size,
    check_whole_batches,
    chosen_indices,
    has_batch,
    stacked_spec,
)
from edgeconv.data.source import DataSet
from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused

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
