"""Whether both Keras versions read the same function from one file."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeconv.errors import ConversionRefused
from edgeconv.tf.lazy import tf
from edgeconv.types.words import first_line

_TOLERANCE = 1e-4
# For an open dimension: most networks take it, however often they halve it.
_OPEN_SIZE = 64


def refuse_another_function(path: str, first: Any, second: Any) -> None:
    """Raise `ConversionRefused` unless two models compute the same on random inputs.

    Some names mean different functions in the two, such as the hard sigmoid. The models are of
    Keras 3 and of tf_keras, in either order, with numeric inputs.
    """
    random = np.random.default_rng(7)
    inputs = [_random_input(tensor, random) for tensor in first.inputs]
    values = inputs[0] if len(inputs) == 1 else inputs
    try:
        outputs = [
            [output.numpy() for output in tf.nest.flatten(model(values, training=False))]
            for model in (first, second)
        ]
    except (ValueError, TypeError, tf.errors.OpError) as error:
        why = f"it does not run on random inputs: {first_line(error)}"
        raise _not_the_same(path, why) from error
    for expected, output in zip(*outputs, strict=True):
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        is_same = expected.shape == output.shape
        if not is_same or not np.allclose(expected, output, atol=_TOLERANCE * scale):
            raise _not_the_same(path, "the outputs differ")


def _random_input(tensor: Any, random: Any) -> Any:
    batch, *sizes = tensor.shape
    shape = [batch or 1, *(_OPEN_SIZE if size is None else size for size in sizes)]
    name = getattr(tensor.dtype, "name", tensor.dtype)
    if name.startswith("float"):
        return random.standard_normal(shape).astype(name)
    return random.integers(0, 2, shape).astype(np.dtype(name))


def _not_the_same(path: str, why: str) -> ConversionRefused:
    return ConversionRefused(
        f"{path} may be a different model in the other Keras: {why}",
        hint="export it as a SavedModel where it was trained, and convert that",
    )
