"""Calibrating the ranges of a model before its weights change, and freezing batch normalization."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused
from edgeconv.tf.lazy import tf
from edgeconv.tf.qat.configs import classes
from edgeconv.tf.qat.graph import walk
from edgeconv.tf.qat.parts import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edgeconv.tf.qat.graph import LayerUse


def warm_up(model: Any, batches: Iterable[Sequence[Any]]) -> int:
    """Set all ranges from some batches, and nothing else; returns the number of batches.

    A batch has an array (batch, *input_shape) for each input of the model, in order. A range goes
    from the smallest to the largest value, computed with quantized weights as at inference. Under a
    strategy every worker has to call it with the same batches, outside of `strategy.run`. Raises
    `InputRefused` for values that are not finite.
    """
    kinds, tracker, count = classes(), _RangeTracker(), 0

    def apply(use: LayerUse) -> Any:
        if isinstance(use.operation, kinds.range_layer):
            tracker.add(use.operation, use.args[0])
            return use.args[0]
        # In training a wrapper reads the range of its kernel.
        extra = {"training": True} if isinstance(use.operation, kinds.wrapper) else {}
        return use.operation(*use.args, **use.kwargs, **extra)

    for batch in batches:
        walk(model, list(map(tf.convert_to_tensor, batch)), apply)
        count += 1
    tracker.assign()
    return count


class _RangeTracker:
    """The ranges so far, by layer."""

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[Any, float, float]] = {}

    def add(self, layer: Any, values: Any) -> None:
        """Widen the range of a layer to its values."""
        values = layer.quantizer.counted(values)
        low, high = float(tf.reduce_min(values)), float(tf.reduce_max(values))
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InputRefused(
                f"the values at {layer.name.removeprefix(PREFIX)} are not finite",
                hint="check the model's weights, and that the samples are scaled as in training",
            )
        # A range includes 0, which needs an integer.
        _, least, largest = self._ranges.get(layer.name, (layer, 0.0, 0.0))
        self._ranges[layer.name] = (layer, min(least, low), max(largest, high))

    def assign(self) -> None:
        """Write the ranges to the layers."""
        for layer, low, high in self._ranges.values():
            layer.quantizer_vars["min_var"].assign(low)
            layer.quantizer_vars["max_var"].assign(high)


def freeze_batch_norm(model: Any) -> int:
    """Freeze the moving statistics of batch normalizations; returns how many there are.

    They use these statistics; scale and offset are trained on. Steps have to be traced again.
    """
    norms = [layer for layer in model.layers if isinstance(layer, classes().batch_norm)]
    for layer in norms:
        layer.trainable = False
    return len(norms)
