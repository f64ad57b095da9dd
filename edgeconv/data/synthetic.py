"""Made-up samples, to verify a conversion with where no data was given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from edgeconv.data.checks import input_dtype
from edgeconv.data.samples import Array, Samples, batch_size
from edgeconv.data.strings import ended_list
from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import TensorSpec

# Small enough to be quick, large enough for five halvings of an image.
_DYNAMIC_SIZE = 32
# Numbers of all samples of an input, each of which takes 8 bytes while it is made.
_MOST_NUMBERS = 2**28
# In no vocabulary: what a table does not know is part of what a model does.
_UNKNOWN = b"edgeconv-unknown"


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
    batch = batch_size(inputs)
    count = -(-count // batch) * batch
    arrays = {
        spec.name: _made_up(spec, count, np.random.default_rng([seed, index]), vocabularies)
        for index, spec in enumerate(inputs)
    }
    return Samples(arrays, None, f"synthetic:seed={seed}")


def _made_up(
    spec: TensorSpec,
    count: int,
    rng: np.random.Generator,
    vocabularies: Sequence[Sequence[bytes]],
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
