"""Cross-layer equalization before a training with quantization.

One scale serves all channels between two layers, and all columns of a Dense kernel. Where a few are
a hundred times larger, two or three integers remain for the others, which no training corrects.
The outputs of a channel are divided by a number and its weights in the next layer multiplied by it.
The model computes the same if the layers between commute with a positive factor, as a ReLU does.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeconv.statistics.balance import balancing_logarithms
from edgeconv.tf.qat.graph import LayerUse, Uses
from edgeconv.tf.qat.kinds import activation_of, class_name, is_channelwise_norm, operation_of

Array = NDArray[Any]


# Where ranges differ by less, training copes.
LEAST_SPREAD = 16.0
_SWEEPS = 3
_KERNELS = frozenset({"Conv1D", "Conv2D", "DepthwiseConv2D", "Dense"})
# They commute with a positive factor per channel.
_COMMUTING = frozenset(
    {
        *("Flatten", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "ActivityRegularization"),
        *("MaxPooling1D", "MaxPooling2D", "AveragePooling1D", "AveragePooling2D"),
        *("GlobalAveragePooling1D", "GlobalAveragePooling2D"),
        *("GlobalMaxPooling1D", "GlobalMaxPooling2D", "ZeroPadding1D", "ZeroPadding2D"),
        *("UpSampling1D", "UpSampling2D", "Cropping1D", "Cropping2D"),
    }
)


class KernelPair(NamedTuple):
    """A layer with a kernel, the batch normalization right after it, if any, and the next layer."""

    first: Any
    norm: Any | None
    second: Any


def equalize(model: Any) -> tuple[tuple[str, str], ...]:
    """Equalize pairs of layers of a flat functional tf_keras model, in place.

    The model computes the same, to rounding. Only pairs whose channels differ by a factor of
    `LEAST_SPREAD` or more change; returns the names of both layers of each.
    """
    pairs = _pairs(model)
    chosen = [pair for pair in pairs if _spread(_factors(pair)) >= LEAST_SPREAD]
    for _ in range(_SWEEPS):
        for pair in chosen:
            _scale(pair, _factors(pair))
    return tuple((pair.first.name, pair.second.name) for pair in chosen)


def _pairs(model: Any) -> list[KernelPair]:
    uses = Uses(model)
    return [pair for use in uses.in_order if (pair := _pair(uses, use)) is not None]


def _pair(uses: Uses, use: LayerUse) -> KernelPair | None:
    first = use.operation
    if not _has_kernel(uses, first) or activation_of(first) not in ("linear", "relu"):
        return None
    norm, after = None, uses.follower(use)
    if after is not None and is_channelwise_norm(after.operation):
        norm, after = after.operation, uses.follower(after)
        is_scaled = norm.scale and norm.center and uses.calls[norm.name] == 1
        if activation_of(first) != "linear" or not is_scaled:
            return None
    while after is not None and _commutes(after):
        after = uses.follower(after)
    if after is None or not _has_kernel(uses, after.operation):
        return None
    return KernelPair(first, norm, after.operation)


def _has_kernel(uses: Uses, layer: Any) -> bool:
    return (
        class_name(layer) in _KERNELS
        and uses.calls[layer.name] == 1
        and getattr(layer, "data_format", "channels_last") == "channels_last"
        and getattr(layer, "groups", 1) == 1
    )


def _commutes(use: LayerUse) -> bool:
    layer = use.operation
    if class_name(layer) == "ReLU":
        return layer.max_value is None and not layer.threshold
    if class_name(layer) == "Activation":
        return activation_of(layer) in ("linear", "relu")
    if operation_of(layer) == "pad":
        channels: tuple[int, int] = (use.args[0][0].shape[-1], use.outputs[0].shape[-1])
        return channels[0] == channels[1]
    return class_name(layer) in _COMMUTING


def _factors(pair: KernelPair) -> Array:
    """The divisor of each channel between the two layers, float64 (channels,); 1 for unused ones.

    With it both kernels have the same range in each channel. The geometric mean is 1: only the
    balance between channels changes. No offset becomes larger than the largest is: a channel that
    died in training has almost no weights, and an offset that would be all that is left.
    """
    ranges = _output_ranges(pair)
    taken = np.abs(_by_channel(pair.second, len(ranges))).max(axis=(0, 2))
    alive = (ranges > 0) & (taken > 0)
    if not alive.any():
        return np.ones_like(ranges)
    with np.errstate(divide="ignore"):
        logarithms = balancing_logarithms(np.log(ranges), np.log(taken))
    factors = np.where(alive, np.exp(logarithms - logarithms[alive].mean()), 1.0)
    offsets = _offsets(pair, len(ranges))
    least: Array = offsets / (offsets.max() or 1.0)
    return np.maximum(factors, least)


def _spread(factors: Array) -> float:
    return float(factors.max() / factors.min())


def _output_ranges(pair: KernelPair) -> Array:
    kernel = pair.first.get_weights()[0].astype(np.float64)
    if class_name(pair.first) == "DepthwiseConv2D":
        kernel = kernel.reshape(*kernel.shape[:2], -1)
    ranges: Array = np.abs(kernel).reshape(-1, kernel.shape[-1]).max(axis=0)
    if pair.norm is not None:
        gamma, _, _, variance = pair.norm.get_weights()
        ranges = ranges * np.abs(gamma) / np.sqrt(variance + pair.norm.epsilon)
    return ranges


def _offsets(pair: KernelPair, channels: int) -> Array:
    """The magnitude of each output channel's offset, float64 (channels,)."""
    # A kernel and its bias, or gamma and beta.
    _, *offsets = (pair.norm or pair.first).get_weights()
    return np.abs(offsets[0].astype(np.float64)) if offsets else np.zeros(channels)


def _by_channel(layer: Any, channels: int) -> Array:
    """A layer's kernel as float64 (positions, input channels, output channels)."""
    kernel: Array = layer.get_weights()[0].astype(np.float64)
    return kernel.reshape(-1, channels, kernel.shape[-1])


def _scale(pair: KernelPair, factors: Array) -> None:
    """Divide the outputs of the first layer by the factors, and multiply the second's weights."""
    if pair.norm is None:
        kernel, *bias = pair.first.get_weights()
        is_depthwise = class_name(pair.first) == "DepthwiseConv2D"
        last = kernel.shape[2:] if is_depthwise else kernel.shape[-1:]
        divided = [kernel / factors.reshape(last), *(offset / factors for offset in bias)]
        pair.first.set_weights(divided)
    else:
        gamma, beta, *statistics = pair.norm.get_weights()
        pair.norm.set_weights([gamma / factors, beta / factors, *statistics])
    kernel, *others = pair.second.get_weights()
    scaled = _by_channel(pair.second, len(factors)) * factors[:, None]
    pair.second.set_weights([scaled.reshape(kernel.shape), *others])
