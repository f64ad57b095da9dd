"""The copy of a trained model that the converter gets: operator by operator what it will fuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.tf.qat.configs import KERNELS, Scales, classes
from edgeconv.tf.qat.convolutions import Core, channelwise, factors_of, folded
from edgeconv.tf.qat.graph import walk
from edgeconv.tf.qat.kinds import class_name, is_channelwise_norm
from edgeconv.tf.qat.parts import copy_of, function_layer, new_inputs, new_model
from edgeconv.tf.qat.uses import Uses

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from edgeconv.tf.qat.graph import LayerUse

# What is always zero has no range, and the converter no scale for it; any will do.
_NO_RANGE = 1e-6
_IMAGE_RANK = 4


def plain_copy(model: Any) -> Any:
    """A model that computes what an annotated and trained one does at inference.

    Its variables are its own and no strategy's, each batch normalization has gone into the
    convolution before it or has become a 1x1 depthwise one, and what the training had to keep
    of the kernels is in them. Equal weights give equal copies, whatever strategy they are from.
    To be called outside of any strategy's scope.
    """
    work, inputs = _Copying(model), new_inputs(model)
    return new_model(model, inputs, walk(model, inputs, work.apply))


class _Copying:
    """The work on one model."""

    def __init__(self, model: Any) -> None:
        self._uses, self._classes = Uses(model), classes()
        self._made: dict[str, Any] = {}
        self._ready: dict[int, Any] = {}

    def apply(self, use: LayerUse) -> Any:
        layer = use.operation
        if id(use.outputs[0]) in self._ready:
            return self._ready[id(use.outputs[0])]
        if layer.name not in self._made:
            self._made[layer.name] = self._copy(use)
        made = self._made[layer.name]
        if isinstance(layer, self._classes.wrapper):
            norm = self._norm_after(use)
            tensor = made(use.args[0])
            if norm is not None:
                self._ready[id(norm.outputs[0])] = tensor
            return tensor
        return made(*use.args, **use.kwargs) if not isinstance(made, list) else _chain(made, use)

    def _copy(self, use: LayerUse) -> Any:
        layer, tensor = use.operation, use.args[0]
        if isinstance(layer, self._classes.range_layer):
            return self._range(layer, tensor)
        if isinstance(layer, self._classes.wrapper):
            return self._kernel(use, tensor)
        if class_name(layer) == "Rescaling":
            numbers = channelwise(layer, tensor.shape[-1])
            return self._depthwise(layer.name, tensor, *numbers) if numbers else _copied(layer, use)
        if is_channelwise_norm(layer) and len(tensor.shape) in (2, 3, 4):
            return self._depthwise(layer.name, tensor, *factors_of(layer))
        return _copied(layer, use)

    def _norm_after(self, use: LayerUse) -> LayerUse | None:
        after = self._uses.follower(use)
        fuses = KERNELS[class_name(use.operation.layer)][1] != "tensor"
        if after is None or not fuses or self._uses.calls[use.operation.name] != 1:
            return None
        return after if is_channelwise_norm(after.operation) else None

    def _range(self, layer: Any, tensor: Any) -> Any:
        made = self._classes.range_layer(layer.quantizer, name=layer.name)
        made.build(tensor.shape)
        made.built = True
        _set_range(made.quantizer_vars, *(layer.quantizer_vars[one] for one in _ENDS))
        made.supports_masking = True
        return made

    def _kernel(self, use: LayerUse, tensor: Any) -> Any:
        inner, ((kernel, quantizer, variables),) = use.operation.layer, use.operation._weight_vars
        attribute, scales = KERNELS[class_name(inner)]
        structured = quantizer.structured(kernel, variables).numpy()
        others = [one for one in inner.weights if one is not kernel]
        core = Core(_new(inner), [structured, *(one.numpy() for one in others)])
        largest = variables["max_var"].numpy()
        norm = self._norm_after(use)
        if norm is not None:
            factor, offset = factors_of(norm.operation)
            core = folded(core, factor, offset)
            largest = largest * abs(factor)
        return self._wrapped(core, use.operation.name, tensor, largest, attribute, scales)

    def _wrapped(
        self,
        core: Core,
        name: str,
        tensor: Any,
        largest: NDArray[Any],
        attribute: str,
        scales: Scales,
    ) -> Any:
        import numpy as np

        core.layer.build(tensor.shape)
        core.layer.set_weights(core.weights)
        if class_name(core.layer) in _DILATED and max(core.layer.dilation_rate) > 1:
            core.layer.call = lambda inputs: _dilated(core.layer, inputs)
        made = self._classes.wrapper(
            core.layer, self._classes.kernel_config(attribute, scales, "nothing"), name=name
        )
        made.supports_masking = core.layer.supports_masking
        made.build(tensor.shape)
        made.built = True
        ((_, _, variables),) = made._weight_vars
        high = np.broadcast_to(largest, variables["max_var"].shape)
        _set_range(variables, -high, high)
        return made

    def _depthwise(
        self, name: str, tensor: Any, factor: NDArray[Any], offset: NDArray[Any]
    ) -> list[Any]:
        """The layers that multiply each channel by a factor and add an offset, as one operator."""
        import numpy as np
        import tf_keras

        rank, channels = len(tensor.shape), tensor.shape[-1]
        inner = tf_keras.layers.DepthwiseConv2D(1, name=f"{name}_depthwise")
        core = Core(inner, [factor.reshape(1, 1, channels, 1), offset])
        kernel, scales = KERNELS["DepthwiseConv2D"]
        image = _Shaped((None, *[1] * (_IMAGE_RANK - rank), *tensor.shape[1:]))
        middle = self._wrapped(core, name, image, np.abs(factor), kernel, scales)
        added = list(range(1, 1 + _IMAGE_RANK - rank))
        return [*(_lift(f"{name}_lift_{axis}") for axis in added), middle, *_lower(name, added)]


class _Shaped(NamedTuple):
    """Stands for a tensor that has this shape."""

    shape: tuple[int | None, ...]


_DILATED = frozenset({"Conv2D", "DepthwiseConv2D"})
_ENDS = ("min_var", "max_var")


def _lift(name: str) -> Callable[[Any], Any]:
    import tensorflow as tf

    layer = function_layer(tf.expand_dims, name)
    return lambda tensor: layer(tensor, 1)


def _lower(name: str, added: list[int]) -> list[Callable[[Any], Any]]:
    import tensorflow as tf

    layer = function_layer(tf.squeeze, f"{name}_lower")
    return [lambda tensor: layer(tensor, added)] if added else []


def _chain(layers: list[Any], use: LayerUse) -> Any:
    tensor = use.args[0]
    for layer in layers:
        tensor = layer(tensor)
    return tensor


def _copied(layer: Any, use: LayerUse) -> Any:
    """A copy of a layer, built by calling it once."""
    made = copy_of(layer, layer.name)
    if layer.weights:
        made(*use.args, **use.kwargs)
        made.set_weights([one.numpy() for one in layer.weights])
    return made


def _new(layer: Any) -> Any:
    return type(layer).from_config(layer.get_config())


def _dilated(layer: Any, inputs: Any) -> Any:
    """What a dilated convolution computes, as one operator.

    tf_keras makes several of it, which the converter does not put together where ranges are
    in between; and TensorFlow has no gradient of the one on a CPU, so that it is only for here.
    """
    import tensorflow as tf

    padding, dilations = layer.padding.upper(), [1, *layer.dilation_rate, 1]
    if class_name(layer) == "Conv2D":
        made = tf.nn.conv2d(inputs, layer.kernel, layer.strides, padding, dilations=dilations)
    else:
        made = tf.raw_ops.DepthwiseConv2dNative(
            input=inputs,
            filter=layer.depthwise_kernel,
            strides=[1, *layer.strides, 1],
            padding=padding,
            dilations=dilations,
        )
    return tf.nn.bias_add(made, layer.bias) if layer.use_bias else made


def _set_range(variables: Any, low: Any, high: Any) -> None:
    import numpy as np

    low, high = np.asarray(low), np.asarray(high)
    empty = high - low < np.finfo(np.float32).tiny
    variables["min_var"].assign(np.where(empty, -_NO_RANGE, low))
    variables["max_var"].assign(np.where(empty, _NO_RANGE, high))
