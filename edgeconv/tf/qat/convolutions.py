"""Layers with kernels as the kinds of convolution that integer operators know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.tf.lazy import tf_keras
from edgeconv.tf.qat.kinds import activation_of, class_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeconv.tf.qat.graph import LayerUse

_ONE_DIMENSIONAL = frozenset({"Conv1D", "DepthwiseConv1D", "Conv1DTranspose", "SeparableConv1D"})
_IN_2D = {
    "Conv1D": "Conv2D",
    "DepthwiseConv1D": "DepthwiseConv2D",
    "Conv1DTranspose": "Conv2DTranspose",
}
_SIZES = ("kernel_size", "strides", "dilation_rate")
# How far values of a column reach from its mean, and how many deviations one scale may span.
_DEVIATIONS, _MOST_DEVIATIONS = 3.0, 32.0
# The smallest divisor, as in Keras.
_SMALLEST_DEVIATION = 1e-7
_WEIGHTLESS = ("initializer", "regularizer", "constraint", "activation", "activity_regularizer")


class Core(NamedTuple):
    """A layer with a linear activation, and its weights."""

    layer: Any
    weights: list[NDArray[Any]]


class Convolution(NamedTuple):
    """What a layer computes: `cores` in order, then the activation.

    `lifted`: sequences (batch, time, channels) are taken as images (batch, 1, time, channels).
    `causal_steps` are padded before the sequence.
    """

    cores: list[Core]
    activation: str
    lifted: bool = False
    causal_steps: int = 0


def convolution_of(layer: Any, rank: int) -> Convolution:
    """A layer with a kernel, for tensors of `rank` dimensions, as convolutions."""
    name, activation = class_name(layer), activation_of(layer)
    if name.startswith("Separable"):
        return Convolution(_separated(layer), activation, name in _ONE_DIMENSIONAL, _causal(layer))
    if name in _ONE_DIMENSIONAL:
        config = _image_config(layer)
        kernel, *bias = layer.get_weights()
        core = Core(_new(_IN_2D[name], config), [kernel[None], *bias])
        return Convolution([core], activation, lifted=True, causal_steps=_causal(layer))
    if name == "Dense" and rank > 2:
        kernel, *bias = layer.get_weights()
        config = {"name": layer.name, "filters": layer.units, "kernel_size": 1}
        pointwise = _new("Conv2D", {**config, "use_bias": layer.use_bias})
        return Convolution([Core(pointwise, [kernel[None, None], *bias])], activation, rank == 3)
    config = {**layer.get_config(), "trainable": True}
    if "activation" in config:
        config["activation"] = "linear"
    return Convolution([Core(type(layer).from_config(config), layer.get_weights())], activation)


def _new(kind: str, config: dict[str, Any]) -> Any:
    return getattr(tf_keras.layers, kind)(**config)


def _causal(layer: Any) -> int:
    if getattr(layer, "padding", "") != "causal":
        return 0
    return int(layer.dilation_rate[0] * (layer.kernel_size[0] - 1))


def _image_config(layer: Any) -> dict[str, Any]:
    """The settings of a one-dimensional convolution for images of one row."""
    config = {
        key: value
        for key, value in layer.get_config().items()
        if not key.endswith(_WEIGHTLESS) and key not in ("batch_input_shape", "trainable")
    }
    for key in _SIZES:
        config[key] = (1, *_as_tuple(config[key]))
    if class_name(layer) in ("DepthwiseConv1D", "SeparableConv1D"):
        # Depthwise convolutions need equal strides.
        config["strides"] = (config["strides"][1],) * 2
    if config.get("output_padding") is not None:
        config["output_padding"] = (0, *_as_tuple(config["output_padding"]))
    if class_name(layer).startswith("Depthwise"):
        config = {key: config[key] for key in config if key not in ("filters", "groups")}
    config["padding"] = "valid" if config["padding"] == "causal" else config["padding"]
    return config


def _as_tuple(value: Any) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _separated(layer: Any) -> list[Core]:
    """The depthwise and the pointwise part of a separable convolution."""
    one_dimensional = class_name(layer) in _ONE_DIMENSIONAL
    config = _image_config(layer) if one_dimensional else layer.get_config()
    depthwise, pointwise, *bias = layer.get_weights()
    if one_dimensional:
        depthwise, pointwise = depthwise[None], pointwise[None]
    kept = ("kernel_size", "strides", "padding", "dilation_rate", "depth_multiplier")
    first = {**{key: config[key] for key in kept}, "name": f"{layer.name}_depthwise"}
    second = {"name": f"{layer.name}_pointwise", "filters": layer.filters, "kernel_size": 1}
    return [
        Core(_new("DepthwiseConv2D", {**first, "use_bias": False}), [depthwise]),
        Core(_new("Conv2D", {**second, "use_bias": layer.use_bias}), [pointwise, *bias]),
    ]


def factors_of(batch_norm: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Factor and offset of a batch normalization at inference, float32, each (channels,)."""
    mean, variance = batch_norm.moving_mean.numpy(), batch_norm.moving_variance.numpy()
    factor = 1.0 / np.sqrt(variance.astype(np.float64) + batch_norm.epsilon)
    if batch_norm.gamma is not None:
        factor = factor * batch_norm.gamma.numpy()
    offset = -mean * factor
    if batch_norm.beta is not None:
        offset = offset + batch_norm.beta.numpy()
    return factor.astype(np.float32), offset.astype(np.float32)


def times_channels(kernel: NDArray[Any], factor: NDArray[Any], kind: str) -> NDArray[Any]:
    """A kernel with its output channels multiplied by `factor`, (channels,)."""
    shape = {"DepthwiseConv2D": kernel.shape[2:], "Conv2DTranspose": (-1, 1)}.get(kind, (-1,))
    scaled: NDArray[Any] = kernel * factor.reshape(shape)
    return scaled


def fold_norm(core: Core, factor: NDArray[Any], offset: NDArray[Any]) -> Core:
    """A new core with the output of `core` times `factor` plus `offset`, both (channels,)."""
    kind = class_name(core.layer)
    kernel, *bias = core.weights
    layer = type(core.layer).from_config({**core.layer.get_config(), "use_bias": True})
    before = bias[0] * factor if bias else 0.0
    return Core(layer, [times_channels(kernel, factor, kind), before + offset])


def normalizes_unlike_columns(use: LayerUse) -> bool:
    """Whether a layer normalizes a model's input whose columns differ much in range.

    One scale for the whole input would leave its narrowest column only a few steps of 8 bits.
    """
    if class_name(use.operation) not in ("Normalization", "Rescaling"):
        return False
    tensor = use.args[0]
    if class_name(tensor._keras_history.layer) != "InputLayer" or tensor.shape[-1] is None:
        return False
    numbers = channelwise(use.operation, tensor.shape[-1])
    if numbers is None or not (numbers[0] > 0).all() or len({*numbers[0].tolist()}) == 1:
        return False
    deviations = 1 / numbers[0]
    reach = (abs(numbers[1]) * deviations + _DEVIATIONS * deviations).max()
    return bool(reach / deviations.min() > _MOST_DEVIATIONS)


def channelwise(layer: Any, channels: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Factor and offset of a Rescaling or Normalization, each float32 (channels,), or None."""
    if class_name(layer) == "Rescaling":
        factor, offset = np.asarray(layer.scale), np.asarray(layer.offset)
    elif getattr(layer, "invert", False):
        return None
    else:
        mean, deviation = np.asarray(layer.mean), np.sqrt(np.asarray(layer.variance))
        factor = 1.0 / np.maximum(deviation, _SMALLEST_DEVIATION)
        offset = -mean * factor
    if factor.size not in (1, channels) or offset.size not in (1, channels):
        return None
    spread = [np.broadcast_to(v.reshape(-1), (channels,)) for v in (factor, offset)]
    return spread[0].astype(np.float32), spread[1].astype(np.float32)
