"""Channels of very different ranges brought to like ones, before a training with quantization.

One scale serves all the channels between two layers, and all the columns of a Dense kernel: where
a few are a hundred times larger, the others are left with two or three integers, from which no
training finds back. What comes out of a channel can be divided by a number, and what the next
layer makes of it multiplied by it, and the model computes the same as long as what lies between
commutes with a positive factor, as a ReLU does: cross-layer equalization.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.statistics.balance import balancing_logarithms
from edgeconv.tf.qat.graph import walk
from edgeconv.tf.qat.kinds import activation_of, class_name, is_channelwise_norm
from edgeconv.tf.qat.uses import Uses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeconv.tf.qat.graph import LayerUse

    Array = NDArray[Any]

# Where ranges differ by less, training copes, and the model is left as it was trained.
LEAST_SPREAD = 16.0
_SWEEPS = 3
_KERNELS = frozenset({"Conv1D", "Conv2D", "DepthwiseConv2D", "Dense"})
# With a positive factor a channel before them they give the same as with it behind them.
_COMMUTING = frozenset(
    {
        *("Flatten", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "ActivityRegularization"),
        *("MaxPooling1D", "MaxPooling2D", "AveragePooling1D", "AveragePooling2D"),
        *("GlobalAveragePooling1D", "GlobalAveragePooling2D"),
        *("GlobalMaxPooling1D", "GlobalMaxPooling2D", "ZeroPadding1D", "ZeroPadding2D"),
        *("UpSampling1D", "UpSampling2D", "Cropping1D", "Cropping2D"),
    }
)


class LayerPair(NamedTuple):
    """A layer with a kernel, the batch normalization right after it if any, and the next layer."""

    first: Any
    norm: Any | None
    second: Any


def equalize(model: Any) -> tuple[tuple[str, str], ...]:
    """Equalize pairs of layers of a flat functional tf_keras model, in place.

    The model computes the same, to rounding. Returns the names of both layers of each pair whose
    channels differed by a factor of `LEAST_SPREAD` or more; the others are not touched.
    """
    pairs = _pairs(model)
    chosen = [pair for pair in pairs if _spread(_factors(pair)) >= LEAST_SPREAD]
    for _ in range(_SWEEPS):
        for pair in chosen:
            _scale(pair, _factors(pair))
    return tuple((pair.first.name, pair.second.name) for pair in chosen)


def _pairs(model: Any) -> list[LayerPair]:
    found: list[LayerUse] = []

    def note(use: LayerUse) -> Any:
        found.append(use)
        return use.outputs

    walk(model, model.inputs, note)
    uses = Uses(model)
    return [pair for use in found if (pair := _pair(uses, use)) is not None]


def _pair(uses: Uses, use: LayerUse) -> LayerPair | None:
    first = use.operation
    if not _has_kernel(uses, first) or activation_of(first) not in ("linear", "relu"):
        return None
    norm, after = None, uses.follower(use)
    if after is not None and is_channelwise_norm(after.operation):
        if activation_of(first) != "linear" or not _is_scaled(uses, after.operation):
            return None
        norm, after = after.operation, uses.follower(after)
    while after is not None and _commutes(after.operation):
        after = uses.follower(after)
    if after is None or not _has_kernel(uses, after.operation):
        return None
    return LayerPair(first, norm, after.operation)


def _has_kernel(uses: Uses, layer: Any) -> bool:
    return (
        class_name(layer) in _KERNELS
        and uses.calls[layer.name] == 1
        and getattr(layer, "data_format", "channels_last") == "channels_last"
        and getattr(layer, "groups", 1) == 1
    )


def _is_scaled(uses: Uses, norm: Any) -> bool:
    return bool(norm.scale and norm.center) and uses.calls[norm.name] == 1


def _commutes(layer: Any) -> bool:
    if class_name(layer) == "ReLU":
        return layer.max_value is None and not layer.threshold
    if class_name(layer) == "Activation":
        return activation_of(layer) in ("linear", "relu")
    if class_name(layer) == "TFOpLambda":
        return bool(layer.symbol == "nn.relu")
    return class_name(layer) in _COMMUTING


def _factors(pair: LayerPair) -> Array:
    """What each channel between the two layers is to be divided by, one for those at rest.

    With it both kernels have the same range in each channel; their geometric mean is one,
    so that only the balance between channels changes.
    """
    gives = _given_ranges(pair)
    takes = np.abs(_by_channel(pair.second, len(gives))).max(axis=(0, 2))
    alive = (gives > 0) & (takes > 0)
    if not alive.any():
        return np.ones_like(gives)
    with np.errstate(divide="ignore"):
        logarithms = balancing_logarithms(np.log(gives), np.log(takes))
    factors: Array = np.where(alive, np.exp(logarithms - logarithms[alive].mean()), 1.0)
    return factors


def _spread(factors: Array) -> float:
    return float(factors.max() / factors.min())


def _given_ranges(pair: LayerPair) -> Array:
    kernel = pair.first.get_weights()[0].astype(np.float64)
    if class_name(pair.first) == "DepthwiseConv2D":
        kernel = kernel.reshape(*kernel.shape[:2], -1)
    ranges: Array = np.abs(kernel).reshape(-1, kernel.shape[-1]).max(axis=0)
    if pair.norm is not None:
        gamma, _, _, variance = pair.norm.get_weights()
        ranges = ranges * np.abs(gamma) / np.sqrt(variance + pair.norm.epsilon)
    return ranges


def _by_channel(layer: Any, channels: int) -> Array:
    """A layer's kernel as (places, channels it takes, what it makes of each)."""
    kernel: Array = layer.get_weights()[0].astype(np.float64)
    return kernel.reshape(-1, channels, kernel.shape[-1])


def _scale(pair: LayerPair, factors: Array) -> None:
    """Divide what the first layer gives by the factors, and multiply what the second takes."""
    if pair.norm is None:
        _divide(pair.first, factors)
    else:
        gamma, beta, *statistics = pair.norm.get_weights()
        pair.norm.set_weights([gamma / factors, beta / factors, *statistics])
    kernel, *others = pair.second.get_weights()
    scaled = _by_channel(pair.second, len(factors)) * factors[:, None]
    pair.second.set_weights([scaled.reshape(kernel.shape), *others])


def _divide(layer: Any, factors: Array) -> None:
    kernel, *bias = layer.get_weights()
    last = kernel.shape[2:] if class_name(layer) == "DepthwiseConv2D" else kernel.shape[-1:]
    layer.set_weights([kernel / factors.reshape(last), *(one / factors for one in bias)])
