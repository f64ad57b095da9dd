"""Finding the ranges of a model before its weights change, and freezing batch normalization."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused
from edgeconv.tf.qat.configs import classes
from edgeconv.tf.qat.graph import walk
from edgeconv.tf.qat.parts import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edgeconv.tf.qat.graph import LayerUse


def warm_up(model: Any, batches: Iterable[Sequence[Any]]) -> int:
    """Set all ranges from some batches, and change nothing else; gives the number of batches.

    A batch has an array for each input of the model, in its inputs' order. The ranges become
    the least and the largest numbers seen, computed with quantized weights as at inference.
    Under a strategy every worker has to call it with the same batches, outside of
    `strategy.run`; its variables are set alike on all replicas. Raises `InputRefused` for
    numbers that are not finite.
    """
    import tensorflow as tf

    kinds, found, count = classes(), _RangeTracker(), 0

    def apply(use: LayerUse) -> Any:
        if isinstance(use.operation, kinds.range_layer):
            found.see(use.operation, use.args[0])
            return use.args[0]
        # In training a wrapper takes the range of its kernel from the kernel.
        extra = {"training": True} if isinstance(use.operation, kinds.wrapper) else {}
        return use.operation(*use.args, **use.kwargs, **extra)

    for batch in batches:
        walk(model, [tf.convert_to_tensor(one) for one in batch], apply)
        count += 1
    found.assign()
    return count


class _RangeTracker:
    """The ends of the ranges seen so far, by layer."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[Any, float, float]] = {}

    def see(self, layer: Any, values: Any) -> None:
        import tensorflow as tf

        values = layer.quantizer.seen(values)
        low, high = float(tf.reduce_min(values)), float(tf.reduce_max(values))
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InputRefused(
                f"the numbers at {layer.name.removeprefix(PREFIX)} are not finite",
                hint="look at the model's weights, and at the samples: are they scaled as in "
                "training?",
            )
        # An integer for zero there has to be.
        _, least, largest = self._ends.get(layer.name, (layer, 0.0, 0.0))
        self._ends[layer.name] = (layer, min(least, low), max(largest, high))

    def assign(self) -> None:
        for layer, low, high in self._ends.values():
            layer.quantizer_vars["min_var"].assign(low)
            layer.quantizer_vars["max_var"].assign(high)


def freeze_batch_norm(model: Any) -> int:
    """Let no batch normalization follow its batches any more; gives how many there are.

    They use their moving statistics and leave them as they are; scale and offset are trained
    on. What was traced before has to be traced anew.
    """
    norms = [one for one in model.layers if isinstance(one, classes().batch_norm)]
    for layer in norms:
        layer.trainable = False
    return len(norms)
