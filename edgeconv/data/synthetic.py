"""Made-up samples, to verify a conversion with where no data was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgeconv.data.checks import input_dtype
from edgeconv.data.samples import Array, Samples, batch_size

if TYPE_CHECKING:
    from edgeconv.nouns import TensorSpec

# Small enough to be quick, large enough for five halvings of an image.
_DYNAMIC_SIZE = 32


def synthetic_samples(inputs: tuple[TensorSpec, ...], count: int, seed: int) -> Samples:
    """`count` samples for a model's inputs, rounded up to whole batches of a fixed batch.

    Floats are standard normal, integers 0 or 1 (valid as any index or mask), bools
    either; a dynamic dimension within a sample gets size 32. Equal arguments give equal
    samples. Raises `InputRefused` for an input of strings or resources.
    """
    batch = batch_size(inputs)
    count = -(-count // batch) * batch
    arrays = {
        spec.name: _made_up(spec, count, np.random.default_rng([seed, index]))
        for index, spec in enumerate(inputs)
    }
    return Samples(arrays, None, f"synthetic:seed={seed}")


def _made_up(spec: TensorSpec, count: int, rng: np.random.Generator) -> Array:
    dtype = input_dtype(spec)
    shape = (count, *(_DYNAMIC_SIZE if size == -1 else size for size in spec.shape[1:]))
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)
