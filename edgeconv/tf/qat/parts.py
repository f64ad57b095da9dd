"""The new layers of a model to train with quantization, each with a unique name."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from edgeconv.tf.lazy import tf, tf_keras
from edgeconv.tf.qat.configs import KERNELS, classes
from edgeconv.tf.qat.convolutions import Convolution, Core, channelwise
from edgeconv.tf.qat.flat import set_names
from edgeconv.tf.qat.graph import Hard, LayerUse
from edgeconv.tf.qat.kinds import (
    BATCH_NORMALIZATIONS,
    class_name,
    is_channelwise_norm,
    is_rectifier,
)
from edgeconv.tf.qat.operations import op_layer, valid_name

PREFIX = "quant_"
# The activations that integer operators contain, by their names in tf_keras.
_FUSED = frozenset({"linear", "relu", "relu6"})
_FIXED = frozenset({"softmax", "sigmoid", "tanh"})
_AFFINE_RANKS = (2, 3, 4)


class EmulatedLayers:
    """Builds layers of tf_keras and tfmot, and tracks which tensors have a range."""

    def __init__(self) -> None:
        self._classes = classes()
        self._layers: dict[str, Any] = {}
        # By the id of a tensor: the tensor with its range emulated. The layers that take them keep
        # the tensors alive.
        self._with_range: dict[int, Any] = {}

    def ranged(self, tensors: Any, *, before_softmax: bool = False) -> Any:
        """Tensors, each with its range emulated, except integers."""
        return tf.nest.map_structure(lambda tensor: self._ranged(tensor, before_softmax), tensors)

    def _ranged(self, tensor: Any, before_softmax: bool) -> Any:
        if not _is_float_tensor(tensor):
            return tensor
        if id(tensor) not in self._with_range:
            name = f"{tensor._keras_history[0].name.removeprefix(PREFIX)}_range"
            quantizer = self._classes.range_quantizer(before_softmax)
            layer = self._classes.range_layer(quantizer, name=self._free_name(name))
            layer.supports_masking = True
            ranged = layer(tensor)
            self._with_range[id(tensor)] = self._with_range[id(ranged)] = ranged
        return self._with_range[id(tensor)]

    def have_ranges(self, tensors: Any) -> bool:
        """Whether there are float tensors, and all have a range."""
        floats = list(filter(_is_float_tensor, tf.nest.flatten(tensors)))
        return bool(floats) and all(id(tensor) in self._with_range for tensor in floats)

    def mark(self, tensors: Any) -> Any:
        """Note that tensors have the range of their inputs, or a fixed one."""
        for tensor in tf.nest.flatten(tensors):
            self._with_range[id(tensor)] = tensor
        return tensors

    def with_ranges(self, use: LayerUse) -> LayerUse:
        """A use whose float tensors all have ranges."""
        return use._replace(args=self.ranged(use.args), kwargs=self.ranged(use.kwargs))

    def copied(self, use: LayerUse) -> Any:
        """The outputs of a copy of a use's layer, with its weights, for the tensors of the use."""
        layer = use.operation
        if class_name(layer) in BATCH_NORMALIZATIONS:
            return self.normed(use, use.args[0])
        if layer.name in self._layers:
            return self._layers[layer.name](*use.args, **use.kwargs)
        copy = self._layers[layer.name] = copy_of(layer, PREFIX + layer.name)
        tensors = copy(*use.args, **use.kwargs)
        if layer.weights:
            copy.set_weights(layer.get_weights())
        return tensors

    def normed(self, use: LayerUse, tensor: Any) -> Any:
        """A tensor after a copy of a batch normalization that can be frozen."""
        layer = use.operation
        if layer.name not in self._layers:
            config = {**layer.get_config(), "name": PREFIX + layer.name}
            # It may follow an image of one row where it followed a sequence.
            axis = [-1] if is_channelwise_norm(layer) else config["axis"]
            config |= {"axis": axis, "trainable": layer.trainable and not use.frozen}
            copy = self._layers[layer.name] = self._classes.batch_norm.from_config(config)
            copy.build(tensor.shape)
            copy.set_weights(layer.get_weights())
        return self._layers[layer.name](tensor)

    def affine(self, use: LayerUse, tensor: Any) -> Any:
        """A tensor times a factor plus an offset per channel; None where they vary otherwise."""
        layer = use.operation
        if len(tensor.shape) not in _AFFINE_RANKS or tensor.shape[-1] is None:
            return None
        if class_name(layer) in BATCH_NORMALIZATIONS:
            return self.normed(use, tensor) if is_channelwise_norm(layer) else None
        numbers = channelwise(layer, tensor.shape[-1])
        if numbers is None or not tensor.dtype.is_floating:
            return None
        factor, offset = (values.tolist() for values in numbers)
        if len({*factor}) == len({*offset}) == 1:
            return self._scaled(tensor, factor[0], offset[0], layer.name)
        name = self._free_name(layer.name)
        return tf_keras.layers.Rescaling(factor, offset, name=name)(tensor)

    def normalized(self, use: LayerUse) -> Any:
        """A model's input after a copy of its normalization, which computes in float."""
        if class_name(use.operation) == "Normalization":
            return self.copied(use)
        numbers = channelwise(use.operation, use.args[0].shape[-1])
        assert numbers is not None, "normalizes_unlike_columns sees to it"
        deviations = 1 / numbers[0]
        statistics = {
            "mean": (-numbers[1] * deviations).tolist(),
            "variance": (deviations**2).tolist(),
        }
        name = self._free_name(use.operation.name)
        return tf_keras.layers.Normalization(**statistics, name=name)(use.args[0])

    def _scaled(self, tensor: Any, factor: float, offset: float, name: str) -> Any:
        """A tensor times a number plus a number, as the operators of these."""
        if offset == 0:
            return self._function(tf.math.multiply, name, tensor, y=factor)
        if factor != 1:
            tensor = self.ranged(self._function(tf.math.multiply, name, tensor, y=factor))
        return self._function(tf.math.add, name, tensor, y=offset)

    def core(self, core: Core, tensor: Any) -> Any:
        """A tensor after a layer with a kernel, in emulated integers."""
        name = PREFIX + core.layer.name
        if name not in self._layers:
            core.layer.build(tensor.shape)
            core.layer.set_weights(core.weights)
            attribute, scales = KERNELS[class_name(core.layer)]
            config = self._classes.kernel_config(attribute, scales)
            wrapper = self._layers[name] = self._classes.wrapper(core.layer, config, name=name)
            wrapper.supports_masking = core.layer.supports_masking
        return self._layers[name](tensor)

    def activated(self, tensor: Any, activation: str, name: str) -> Any:
        """A tensor after an activation, with its range."""
        to_softmax = activation == "softmax"
        if activation not in _FUSED:
            tensor = self.ranged(tensor, before_softmax=to_softmax)
        layer = tf_keras.layers.Activation(activation, name=self._free_name(f"{name}_activation"))
        activated = layer(tensor)
        return self.mark(activated) if activation in _FIXED else self.ranged(activated)

    def hard(self, tensor: Any, hard: Hard) -> Any:
        """A hard sigmoid or hard swish of a tensor, in the converter's form."""
        x, name = self.ranged(tensor), hard.uses[0].operation.name
        shifted = self._function(tf.math.add, name, x, y=3.0)
        clipped = self._function(tf.nn.relu6, name, shifted)
        if not hard.swish:
            clipped = self.ranged(clipped)
        gate = self._function(tf.math.multiply, name, clipped, y=1 / 6)
        return self.ranged(self._function(tf.math.multiply, name, x, gate) if hard.swish else gate)

    def relu(self, use: LayerUse, tensor: Any) -> Any:
        """A ReLU of a tensor; a bound that no operator contains becomes another one."""
        layer = use.operation
        if layer.max_value is None or is_rectifier(layer):
            return self.copied(use._replace(args=(tensor,)))
        slope = float(layer.negative_slope)
        open_ended = tf_keras.layers.ReLU(negative_slope=slope, name=self._free_name(layer.name))
        unbounded = self.ranged(open_ended(tensor))
        return self._function(tf.math.minimum, layer.name, unbounded, y=float(layer.max_value))

    def _function(self, function: Any, name: str, *tensors: Any, **constants: Any) -> Any:
        symbol = function.__name__
        call = partial(function, **constants)
        return op_layer(call, symbol, self._free_name(f"{name}_{symbol}"))(list(tensors))

    def lifted(self, tensor: Any, convolution: Convolution) -> Any:
        """A sequence as an image of one row, where the convolution takes one."""
        if not convolution.lifted:
            return tensor
        name = convolution.cores[0].layer.name
        if convolution.causal_steps:
            padding = (convolution.causal_steps, 0)
            before = tf_keras.layers.ZeroPadding1D(padding, name=self._free_name(f"{name}_causal"))
            tensor = self.mark(before(tensor))
        return self.mark(self._function(tf.expand_dims, name, tensor, axis=1))

    def lowered(self, tensor: Any, name: str) -> Any:
        """The image of one row as a sequence."""
        return self.mark(self._function(tf.squeeze, name, tensor, axis=[1]))

    def _free_name(self, name: str) -> str:
        number, free = 1, PREFIX + name
        while free in self._layers:
            number += 1
            free = f"{PREFIX}{name}_{number}"
        self._layers[free] = None
        return free


def new_inputs(model: Any) -> list[Any]:
    """Inputs like a model's."""
    return [
        tf_keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=valid_name(name))
        for name, tensor in zip(model.input_names, model.inputs, strict=True)
    ]


def new_model(model: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """A model with the name, and the names of inputs and outputs, of another."""
    created = tf_keras.Model(inputs, outputs, name=model.name)
    set_names(created, model.input_names, model.output_names)
    return created


def copy_of(layer: Any, name: str) -> Any:
    """A new layer with another's settings, whose weights all train."""
    if class_name(layer) == "Lambda":
        return tf_keras.layers.Lambda(layer.function, arguments=layer.arguments, name=name)
    copy = type(layer).from_config({**layer.get_config(), "name": name})
    copy.trainable = True
    return copy


def _is_float_tensor(tensor: Any) -> bool:
    return hasattr(tensor, "_keras_history") and bool(tensor.dtype.is_floating)
