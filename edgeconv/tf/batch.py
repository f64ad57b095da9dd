"""Fixing a dynamic batch dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Sequence


def fix_batch(directory: str, signature: str, batch: int, target: str) -> None:
    """Save one signature again in `target`, with the leading dimension of its inputs fixed.

    Raises `InputRefused` where an input's leading dimension is fixed to another number.
    """
    import tensorflow as tf

    loaded = tf.saved_model.load(directory)
    function = loaded.signatures[signature]
    specs = {
        name: tf.TensorSpec(with_batch(name, spec.shape, batch), spec.dtype, name=name)
        for name, spec in function.structured_input_signature[1].items()
    }

    def call(**inputs: Any) -> Any:
        return function(**inputs)

    module = tf.Module()
    module.model = loaded  # keeps the variables that the function reads
    fixed = tf.function(call).get_concrete_function(**specs)
    tf.saved_model.save(module, target, signatures={signature: fixed})


def with_batch(name: str, shape: Sequence[int | None], batch: int) -> list[int | None]:
    """`shape` of the input `name` with the leading dimension `batch`.

    Raises `InputRefused` where that dimension is fixed to another number.
    """
    dimensions = list(shape)
    if not dimensions or dimensions[0] not in (None, batch):
        raise InputRefused(
            f"--batch {batch}: input {name!r} has shape {dimensions}, whose leading dimension "
            "is not dynamic",
            hint="leave --batch away: the model's batch is fixed already",
        )
    return [batch, *dimensions[1:]]
