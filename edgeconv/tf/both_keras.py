"""Whether both Keras versions read the same function from one file."""

from __future__ import annotations

from typing import Any

from edgeconv.errors import ConversionRefused

_TOLERANCE = 1e-4
# For a dimension that is left open: what most networks take, however often they halve it.
_OPEN_SIZE = 64
_SEED = 7


def refuse_another_function(path: str, first: Any, second: Any) -> None:
    """Raise `ConversionRefused` unless two models answer the same to made-up inputs.

    Names mean other things in the two: one has another hard sigmoid, for instance. The models are
    of Keras 3 and of tf_keras, in either order, with numeric inputs.
    """
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(_SEED)
    inputs = [_made_up(tensor, random) for tensor in first.inputs]
    try:
        answers = [
            [value.numpy() for value in tf.nest.flatten(_called(model, inputs))]
            for model in (first, second)
        ]
    except (ValueError, TypeError, tf.errors.OpError) as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise _not_the_same(path, f"it does not run on made-up inputs: {line[:300]}") from error
    for one, other in zip(*answers, strict=True):
        scale = max(1.0, float(np.abs(one).max(initial=0.0)))
        if one.shape != other.shape or not np.allclose(one, other, atol=_TOLERANCE * scale):
            raise _not_the_same(path, "the answers differ")


def _made_up(tensor: Any, random: Any) -> Any:
    import numpy as np

    batch, *sizes = tensor.shape
    shape = [batch or 1, *(_OPEN_SIZE if size is None else size for size in sizes)]
    name = getattr(tensor.dtype, "name", tensor.dtype)
    if name.startswith("float"):
        return random.standard_normal(shape).astype(name)
    return random.integers(0, 2, shape).astype(np.dtype(name))


def _called(model: Any, inputs: list[Any]) -> Any:
    return model(inputs[0] if len(inputs) == 1 else inputs, training=False)


def _not_the_same(path: str, why: str) -> ConversionRefused:
    return ConversionRefused(
        f"{path} is not certain to be the same model in the other Keras: {why}",
        hint="export it as a SavedModel where it was trained, and convert that",
    )
