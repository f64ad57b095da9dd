"""Calibrating the ranges of a model before its weights change, and freezing batch normalization."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeconv.tf.lazy import tf
from edgeconv.tf.qat.configs import classes
from edgeconv.tf.qat.graph import LayerUse, walk
from edgeconv.tf.qat.kinds import is_channelwise_norm
from edgeconv.tf.qat.parts import PREFIX
from edgeconv.types.errors import InputRefused


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


# Batch normalizations whose moving statistics lag behind the weights.
#
# After a short training (momentum .999, 16 steps) they are still near 0 and 1. At inference each
# layer then scales its values a little differently than in training, and in a deep model they
# vanish. Ranges that are observed then clip what a step of training computes, and its gradients
# overflow.
# How far the farthest layer may be off, without the farthest quarter: 1 is a deviation of half or
# twice as much, or a mean that is one deviation away.
_MOST_APART, _COUNTED = 1.0, 0.75


class ChannelMoments(NamedTuple):
    """Mean and variance of each channel, float64 (channels,)."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


class NormInputs(NamedTuple):
    """What a batch normalization gets at inference, and in training."""

    layer: Any
    serving: ChannelMoments
    training: ChannelMoments

    @property
    def distance(self) -> float:
        """How far apart they are; 0 for equal ones."""
        spread = self.training.variance + self.layer.epsilon
        octaves = np.abs(np.log(spread / (self.serving.variance + self.layer.epsilon)))
        shifts = np.abs(self.training.mean - self.serving.mean) / np.sqrt(spread)
        return float(max(octaves.mean() / (2 * math.log(2)), shifts.mean()))


def norm_inputs(model: Any, batches: Sequence[Sequence[Any]]) -> tuple[NormInputs, ...]:
    """What each batch normalization gets from some batches, in the mean over them.

    `model` is flat, and does not change. A batch has an array (batch, *input_shape) for each input
    of the model, in order. Layers that are frozen always compute as at inference, and are left out.
    """
    if not any(map(_moves, model.layers)):
        return ()
    serving = _moments(model, batches, trains=False)
    training = _moments(model, batches, trains=True)
    layers = {layer.name: layer for layer in model.layers}
    return tuple(NormInputs(layers[name], serving[name], training[name]) for name in training)


def _moves(layer: Any) -> bool:
    return is_channelwise_norm(layer) and bool(layer.trainable)


def _moments(
    model: Any, batches: Iterable[Sequence[Any]], *, trains: bool
) -> dict[str, ChannelMoments]:
    """The moments of the inputs of each layer that moves, by its name."""
    moments: dict[str, list[tuple[Any, Any]]] = {}

    def apply(use: LayerUse) -> Any:
        layer = use.operation
        if not _moves(layer) or use.frozen:
            return layer(*use.args, **use.kwargs)
        values = use.args[0]
        mean, variance = tf.nn.moments(values, list(range(len(values.shape) - 1)))
        moments.setdefault(layer.name, []).append((mean.numpy(), variance.numpy()))
        if not trains:
            return layer(values)
        return tf.nn.batch_normalization(
            values, mean, variance, layer.beta, layer.gamma, layer.epsilon
        )

    for batch in batches:
        walk(model, list(map(tf.convert_to_tensor, batch)), apply)
    means = {name: np.asarray(each, np.float64).mean(axis=0) for name, each in moments.items()}
    return {name: ChannelMoments(mean[0], mean[1]) for name, mean in means.items()}


def lag_behind(inputs: Sequence[NormInputs]) -> bool:
    """Whether the model computes something else at inference than in training."""
    distances = [each.distance for each in inputs]
    return bool(distances) and float(np.quantile(distances, _COUNTED)) > _MOST_APART


def renew(inputs: Iterable[NormInputs]) -> None:
    """Set the layers' moving statistics to the moments of their inputs in training."""
    for each in inputs:
        each.layer.moving_mean.assign(each.training.mean.astype(np.float32))
        each.layer.moving_variance.assign(each.training.variance.astype(np.float32))
