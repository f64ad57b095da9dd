"""The copy of a trained model for the converter, in the operators that it fuses."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeconv.model.tflite import with_needs_declared
from edgeconv.system.store import publish_bytes, scratch_directory
from edgeconv.tf import lean
from edgeconv.tf.export import export_inference
from edgeconv.tf.lazy import tf, tf_keras
from edgeconv.tf.qat.configs import KERNELS, Scales, classes
from edgeconv.tf.qat.convolutions import Core, channelwise, factors_of, fold_norm
from edgeconv.tf.qat.graph import LayerUse, Uses, walk
from edgeconv.tf.qat.kinds import BATCH_NORMALIZATIONS, class_name, is_channelwise_norm
from edgeconv.tf.qat.operations import op_layer
from edgeconv.tf.qat.parts import copy_of, new_inputs, new_model
from edgeconv.tf.shapes import FixedShapes
from edgeconv.types import Recipe
from edgeconv.types.words import SERVING_DEFAULT

# The range of values that are always zero, for which the converter has no scale. If an
# activation's were as small as a kernel's, the next layer's biases would not fit their integers.
_NO_ACTIVATION, _NO_KERNEL = 1.0, 1e-6
# A bias is stored in units of the input's scale times the kernel's: nearly zero weights next to it
# would make the unit too small for 32 bits.
_LEAST_TO_BIAS = 1e-4
_IMAGE_RANK = 4
# They become other layers, which take one tensor.
_TAKE_ONE = frozenset({*BATCH_NORMALIZATIONS, "Rescaling"})
_DILATED = frozenset({"Conv2D", "DepthwiseConv2D"})


def plain_copy(model: Any) -> Any:
    """A model that computes what an annotated and trained one does at inference.

    Its variables belong to no strategy. Each batch normalization is folded into the convolution
    before it or is a 1x1 depthwise one. Equal weights give equal copies, from any strategy. Call it
    outside of any strategy's scope.
    """
    copying, inputs = _PlainCopy(model), new_inputs(model)
    return new_model(model, inputs, walk(model, inputs, copying.apply))


def qat_to_tflite(model: Any, recipe: Recipe, batch: int | None, path: Path) -> int:
    """Write an annotated and trained model as a .tflite; returns its size in bytes.

    Its signature is `serving_default` with the names of the model's inputs and outputs, whose
    first dimension is `batch`. What could not be quantized computes in float, which the
    verification compares with the recipe. Call it outside of any strategy's scope. Raises an
    `InputRefused` for operators that the converter does not take.
    """
    copy = plain_copy(model)
    with scratch_directory() as scratch:
        directory = str(scratch)
        export_inference(copy, directory, FixedShapes(batch=batch))
        converter = tf.lite.TFLiteConverter.from_saved_model(
            directory, signature_keys=[SERVING_DEFAULT]
        )
        # The converter uses the ranges in the model with this.
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.exclude_conversion_metadata = True
        converter.inference_input_type = tf.as_dtype(recipe.input_type)
        converter.inference_output_type = tf.as_dtype(recipe.output_type)
        with lean.ConverterErrors():
            data = with_needs_declared(converter.convert())
    publish_bytes(data, path)
    return len(data)


class _PlainCopy:
    """The copies of one model's layers."""

    def __init__(self, model: Any) -> None:
        self._uses, self._classes = Uses(model), classes()
        # The layers that stand for one, in order.
        self._copies: dict[str, list[Any]] = {}
        self._ready: dict[int, Any] = {}

    def apply(self, use: LayerUse) -> Any:
        layer = use.operation
        if id(use.outputs[0]) in self._ready:
            return self._ready[id(use.outputs[0])]
        if layer.name not in self._copies:
            self._copies[layer.name] = self._copy(use)
        first, *others = self._copies[layer.name]
        is_wrapped = isinstance(layer, self._classes.wrapper)
        takes_one = is_wrapped or class_name(layer) in _TAKE_ONE
        tensor = first(use.args[0]) if takes_one else first(*use.args, **use.kwargs)
        for other in others:
            tensor = other(tensor)
        norm = self._norm_after(use) if is_wrapped else None
        if norm is not None:
            self._ready[id(norm.outputs[0])] = tensor
        return tensor

    def _copy(self, use: LayerUse) -> list[Any]:
        layer, tensor = use.operation, use.args[0]
        if isinstance(layer, self._classes.range_layer):
            return [self._range(layer, tensor)]
        if isinstance(layer, self._classes.wrapper):
            return [self._kernel(use, tensor)]
        numbers = None
        if class_name(layer) == "Rescaling":
            numbers = channelwise(layer, tensor.shape[-1])
        elif is_channelwise_norm(layer) and len(tensor.shape) in (2, 3, 4):
            numbers = factors_of(layer)
        if numbers is not None:
            return self._depthwise(layer.name, tensor, *numbers)
        copy = copy_of(layer, layer.name)
        if layer.weights:
            # Calling it builds it.
            copy(*use.args, **use.kwargs)
            copy.set_weights([weight.numpy() for weight in layer.weights])
        return [copy]

    def _norm_after(self, use: LayerUse) -> LayerUse | None:
        fuses = KERNELS[class_name(use.operation.layer)][1] != "tensor"
        return self._uses.norm_after(use) if fuses else None

    def _range(self, layer: Any, tensor: Any) -> Any:
        copy = self._classes.range_layer(layer.quantizer, name=layer.name)
        copy.build(tensor.shape)
        copy.built = True
        limits = layer.quantizer_vars
        _set_range(copy.quantizer_vars, limits["min_var"], limits["max_var"], _NO_ACTIVATION)
        copy.supports_masking = True
        return copy

    def _kernel(self, use: LayerUse, tensor: Any) -> Any:
        inner, ((kernel, _, variables),) = use.operation.layer, use.operation._weight_vars
        attribute, scales = KERNELS[class_name(inner)]
        others = [weight.numpy() for weight in inner.weights if weight is not kernel]
        core = Core(type(inner).from_config(inner.get_config()), [kernel.numpy(), *others])
        largest = variables["max_var"].numpy()
        norm = self._norm_after(use)
        if norm is not None:
            factor, offset = factors_of(norm.operation)
            core = fold_norm(core, factor, offset)
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
        core.layer.build(tensor.shape)
        core.layer.set_weights(core.weights)
        if class_name(core.layer) in _DILATED and max(core.layer.dilation_rate) > 1:
            core.layer.call = lambda inputs: _dilated(core.layer, inputs)
        config = self._classes.kernel_config(attribute, scales)
        wrapper = self._classes.wrapper(core.layer, config, name=name)
        wrapper.supports_masking = core.layer.supports_masking
        wrapper.build(tensor.shape)
        wrapper.built = True
        ((_, _, variables),) = wrapper._weight_vars
        high = np.broadcast_to(largest, variables["max_var"].shape)
        high = np.maximum(high, _least_range(core, high.shape))
        _set_range(variables, -high, high, _NO_KERNEL)
        return wrapper

    def _depthwise(
        self, name: str, tensor: Any, factor: NDArray[Any], offset: NDArray[Any]
    ) -> list[Any]:
        """The layers that multiply each channel by a factor and add an offset, as one operator."""
        rank, channels = len(tensor.shape), tensor.shape[-1]
        inner = tf_keras.layers.DepthwiseConv2D(1, name=f"{name}_depthwise")
        core = Core(inner, [factor.reshape(1, 1, channels, 1), offset])
        kernel, scales = KERNELS["DepthwiseConv2D"]
        # It stands for a tensor of this shape.
        image = SimpleNamespace(shape=(None, *[1] * (_IMAGE_RANK - rank), *tensor.shape[1:]))
        middle = self._wrapped(core, name, image, np.abs(factor), kernel, scales)
        added = list(range(1, 1 + _IMAGE_RANK - rank))
        lift = partial(tf.expand_dims, axis=1)
        layers = [op_layer(lift, "expand_dims", f"{name}_lift_{axis}") for axis in added]
        layers.append(middle)
        if added:
            lower = partial(tf.squeeze, axis=added)
            layers.append(op_layer(lower, "squeeze", f"{name}_lower"))
        return layers


def _dilated(layer: Any, inputs: Any) -> Any:
    """A dilated convolution as one operator.

    tf_keras uses several, which the converter does not fuse across ranges. TensorFlow has no
    gradient of this one on a CPU, which is not needed here.
    """
    padding, dilations = layer.padding.upper(), [1, *layer.dilation_rate, 1]
    if class_name(layer) == "Conv2D":
        output = tf.nn.conv2d(inputs, layer.kernel, layer.strides, padding, dilations=dilations)
    else:
        output = tf.raw_ops.DepthwiseConv2dNative(
            input=inputs,
            filter=layer.depthwise_kernel,
            strides=[1, *layer.strides, 1],
            padding=padding,
            dilations=dilations,
        )
    return tf.nn.bias_add(output, layer.bias) if layer.use_bias else output


def _least_range(core: Core, shape: tuple[int, ...]) -> Any:
    """The least range of a kernel with which its bias fits, of this shape: (channels,) or ()."""
    _, *biases = core.weights
    if not biases:
        return 0.0
    least = _LEAST_TO_BIAS * np.abs(biases[0])
    return least if shape else least.max()


def _set_range(variables: Any, low: Any, high: Any, none: float) -> None:
    """Set a range, and -`none` to `none` if there is none."""
    low, high = np.asarray(low), np.asarray(high)
    empty = high - low < np.finfo(np.float32).tiny
    variables["min_var"].assign(np.where(empty, -none, low))
    variables["max_var"].assign(np.where(empty, none, high))
