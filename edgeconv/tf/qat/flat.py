"""A Keras 3 or tf_keras model as one flat functional model of tf_keras in float32.

Nested models are expanded, operations become layers, and every layer is a new one of tf_keras with
the weights of the old. A layer with weights that is used more than once stays one layer; one
without weights becomes a layer for each use.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

import numpy as np

from edgeconv.tf.keras_io import (
    acts_in_training_only,
    graph_of,
    inputs_of,
    is_augmentation,
    output_names,
    served_shape,
)
from edgeconv.tf.lazy import keras, tf, tf_keras
from edgeconv.tf.qat import operations
from edgeconv.tf.qat.graph import LayerUse, walk
from edgeconv.tf.qat.kinds import class_name
from edgeconv.tf.qat.operations import (
    LayerFactory,
    NoCounterpart,
    apply_activation,
    fusable,
    valid_name,
)
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import first_line, listed


class LayerStep(NamedTuple):
    """A layer or operation of the walked model, by name and class, and its new tensors."""

    name: str
    kind: str
    outputs: tuple[Any, ...]


class Flat(NamedTuple):
    """A flat model of tf_keras, and how it was built, in `steps` of that order.

    A conversion of the original has the same `input_names` and `output_names` in its signature;
    the model's attributes of these names are set to them.
    """

    model: Any
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    steps: tuple[LayerStep, ...]
    notes: tuple[str, ...]


def flatten(model: Any) -> Flat:
    """The flat model with the weights of `model`, of Keras 3 or tf_keras.

    Raises `InputRefused` for a model without a graph, and for layers without a counterpart in
    tf_keras, with the names of all.
    """
    graph = graph_of(model)
    if graph is None:
        raise InputRefused(
            f"the model {model.name!r} ({type(model).__name__}) has no graph of layers that "
            "quantization can be added to: it is subclassed, or was never called",
            hint="build it as a functional or Sequential model, and save that as NAME.keras",
        )
    builder = _Builder()
    symbolic = inputs_of(graph)
    inputs = [builder.input(name, t, served_shape(model, t)) for name, t in symbolic.items()]
    outputs = walk(graph, inputs, builder.apply)
    builder.refuse_unmatched(model, outputs)
    # A model that returns an input has no layer for that output.
    passed = [id(tensor) for tensor in inputs]
    outputs = [builder.passed(t) if id(t) in passed else t for t in outputs]
    built = tf_keras.Model(inputs, outputs, name=valid_name(model.name))
    flat = Flat(built, tuple(symbolic), output_names(model), tuple(builder.steps), builder.notes)
    set_names(built, flat.input_names, flat.output_names)
    return flat


def set_names(model: Any, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    """Set the names under which inputs and outputs are exported; a configuration lacks them."""
    model.input_names, model.output_names = list(inputs), list(outputs)


class _Builder:
    """Builds a layer of tf_keras for each use of one, and notes those without a counterpart."""

    def __init__(self) -> None:
        self.steps: list[LayerStep] = []
        self._factory = LayerFactory()
        self._shared: dict[int, Counterpart] = {}
        self._unmatched: dict[str, str] = {}
        self._in_training_only: list[str] = []
        self._frozen: dict[int, str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """How the flat model differs from the walked one."""
        texts = {
            "left out, because they act in training only": self._in_training_only,
            "frozen in the model, and so in training": self._frozen.values(),
        }
        return tuple(
            f"{text}: {listed(dict.fromkeys(names), 6)}" for text, names in texts.items() if names
        )

    def input(self, name: str, tensor: Any, shape: tuple[int | None, ...]) -> Any:
        """An input like the walked model's, with the shape that it serves with."""
        self._factory.prefix = (name,)
        return _input(tensor, self._factory.name(), shape)

    def passed(self, tensor: Any) -> Any:
        """A tensor after a layer that does nothing."""
        return self._factory.layer("Activation", tensor, "out", activation="linear")

    def apply(self, use: LayerUse) -> Any:
        """The new tensors for a use of a layer or operation; inputs stand for missing ones."""
        self._factory.prefix = use.path
        kind = class_name(use.operation)
        try:
            results = self._results(use)
        # tf_keras raises the second and third for settings that it refuses.
        except (NoCounterpart, TypeError, ValueError) as error:
            self._unmatched["/".join(use.path)] = f"{_kind(use.operation)}: {first_line(error)}"
            results = tuple(
                _input(t, self._factory.name("missing"), tuple(t.shape)) for t in use.outputs
            )
        self.steps.append(LayerStep("/".join(use.path), kind, results))
        return list(results)

    def _results(self, use: LayerUse) -> tuple[Any, ...]:
        if use.always_trains:
            raise NoCounterpart("it is called with training=True, so it also trains when it serves")
        if operations.is_operation(use.operation):
            return tuple(tf.nest.flatten(operations.apply_operation(self._factory, use)))
        if self._leaves_out(use):
            return (use.args[0],)
        arguments, named = _bound(use)
        result = self._layer_for(use)(arguments, **named)
        return tuple(tf.nest.flatten(result))

    def _leaves_out(self, use: LayerUse) -> bool:
        if is_augmentation(use.operation):
            self._in_training_only.append("/".join(use.path))
            return True
        return use.frozen and acts_in_training_only(use.operation)

    def _layer_for(self, use: LayerUse) -> Any:
        """A function of tensors that calls the layer, with its weights and its activation."""
        operation = use.operation
        shared = self._shared.get(id(operation))
        if shared is None:
            name = self._factory.name()
            shared = counterpart(operation, name, frozen=use.frozen)
            if operation.weights:
                self._shared[id(operation)] = shared
                if not shared.layer.trainable:
                    self._frozen[id(operation)] = "/".join(use.path)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = shared.layer(*args, **kwargs)
            _copy_weights(operation, shared.layer)
            return self._activated(shared, result)

        return call

    def _activated(self, made: Counterpart, tensor: Any) -> Any:
        if made.activation_layer is not None:
            name = self._factory.name("activation")
            inner = counterpart(made.activation_layer, name, frozen=False)
            result = inner.layer(tensor)
            _copy_weights(made.activation_layer, inner.layer)
            return self._activated(inner, result)
        if made.activation == "linear":
            return tensor
        name = f"{made.layer.name}_activation"
        self._factory.prefix = (*self._factory.prefix[:-1], name)
        return apply_activation(self._factory, made.activation, tensor)

    def refuse_unmatched(self, model: Any, outputs: list[Any]) -> None:
        """Raise `InputRefused` with all that has no counterpart, if there is any."""
        for index, output in enumerate(outputs):
            is_input = class_name(output._keras_history.layer) == "InputLayer"
            if not is_input and not output.dtype.is_floating:
                self._unmatched[f"output {index}"] = f"{output.dtype.name}, which does not train"
        if not self._unmatched:
            return
        layers = "; ".join(f"{name} ({why})" for name, why in self._unmatched.items())
        raise InputRefused(
            f"{model.name!r} cannot be built in tf_keras, which quantization-aware training "
            f"needs. No counterpart for {len(self._unmatched)} of its layers: {layers}",
            hint="replace them by layers of Keras's own, save the model again, and train from "
            "that; or convert it without quantization-aware training (--to int8)",
        )


def _input(tensor: Any, name: str, shape: tuple[int | None, ...]) -> Any:
    """An input of tf_keras with this shape, and the type of a tensor of any Keras."""
    batch, *sample_shape = shape or (None,)
    dtype = getattr(tensor.dtype, "name", tensor.dtype)
    kept = float32_if_float(str(dtype))
    return tf_keras.Input(sample_shape, batch, name=name, dtype=kept)


def _bound(use: LayerUse) -> tuple[Any, dict[str, Any]]:
    """The first argument of a layer's call, and the others by name."""
    parameters = list(inspect.signature(use.operation.call).parameters)
    named = {**dict(zip(parameters, use.args, strict=False)), **use.kwargs}
    named.pop("training", None)
    first = named.pop(parameters[0])
    return first, {key: value for key, value in named.items() if value is not None}


def _copy_weights(operation: Any, layer: Any) -> None:
    """Give a layer the values of another's weights, position by position."""
    # Its statistics are among its settings.
    if class_name(operation) == "Normalization":
        return
    values = [np.asarray(value) for value in operation.get_weights()]
    shapes = [value.shape for value in values]
    expected = [tuple(weight.shape) for weight in layer.weights]
    if shapes != expected:
        raise NoCounterpart(f"its weights have shapes {shapes}, tf_keras's {expected}")
    layer.set_weights(values)


def _kind(operation: Any) -> str:
    if operations.is_operation(operation):
        return f"operation {operations.operation_name(operation)}"
    return class_name(operation)


# They compute their activation last, so that it can become another layer.
_ACTIVATED_LAST = re.compile(
    r"Dense|EinsumDense|Activation|(Depthwise|Separable)?Conv\dD(Transpose)?"
)
_RENAMED = {"LeakyReLU": {"negative_slope": "alpha"}}
# Settings of tf_keras that are not in the signatures.
_UNDECLARED: dict[str, dict[str, Any]] = {
    name: {"zero_output_for_mask": False} for name in ("RNN", "SimpleRNN", "LSTM", "GRU")
}
# Settings that are layers.
_NESTED = frozenset({"layer", "backward_layer", "cell", "cells"})
# Values that mean the same as no setting.
_SAME_AS_NONE = {"data_format": "channels_last"}
_FLOATS = frozenset(
    {"float16", "bfloat16", "float64", "mixed_float16", "mixed_bfloat16", "float32"}
)
_LIBRARIES = frozenset({"tf_keras", "tensorflow", "tensorflow_model_optimization"})
_CODE = "its function is code, which is not copied"


class Counterpart(NamedTuple):
    """A new layer and what follows it: an activation, by its name in Keras 3, or a layer."""

    layer: Any
    activation: str = "linear"
    activation_layer: Any = None


def float32_if_float(dtype: str) -> str:
    """The dtype of the new layer for a dtype or policy: QAT computes in float32."""
    return "float32" if dtype in _FLOATS else dtype


def counterpart(operation: Any, name: str, *, frozen: bool) -> Counterpart:
    """A new layer of tf_keras for a layer, without its weights. Raises `NoCounterpart`."""
    module = type(operation).__module__
    if module.startswith("keras.src.layers."):
        return _from_keras_3(operation, name, frozen)
    if class_name(operation) == "Lambda":
        raise NoCounterpart(_CODE)
    if not module.startswith("tf_keras.src.layers.") and not _is_users_own(operation):
        raise NoCounterpart("its class is not one of Keras's own")
    config = {**operation.get_config(), "name": name}
    config["dtype"] = float32_if_float(operation._dtype_policy.name)
    _finish(config, operation, frozen)
    return Counterpart(type(operation).from_config(config))


def _is_users_own(operation: Any) -> bool:
    """Whether a layer is of a class that the user derived from one of tf_keras."""
    package = type(operation).__module__.split(".")[0]
    return isinstance(operation, tf_keras.layers.Layer) and package not in _LIBRARIES


def _from_keras_3(operation: Any, name: str, frozen: bool) -> Counterpart:
    config, kind = operation.get_config(), _tf_keras_class(operation)
    last: tuple[str, Any] = ("linear", None)
    if _ACTIVATED_LAST.fullmatch(class_name(operation)):
        config["activation"], *rest = _split(operation, config["activation"])
        last = (rest[0], rest[1])
    settings = _translated(operation, config, kind)
    settings["name"] = name
    _finish(settings, operation, frozen)
    # Its configuration would need the shapes that it was called with.
    is_attention = class_name(operation) == "MultiHeadAttention"
    layer = kind(**settings) if is_attention else kind.from_config(settings)
    return Counterpart(layer, *last)


def _finish(config: dict[str, Any], operation: Any, frozen: bool) -> None:
    if class_name(operation) == "Normalization":
        _add_statistics(config, operation)
    # A batch normalization that does not train uses its moving averages, as before.
    if frozen and class_name(operation) == "BatchNormalization":
        config["trainable"] = False


def _tf_keras_class(operation: Any) -> Any:
    if class_name(operation) == "Lambda":
        raise NoCounterpart(_CODE)
    kind = getattr(tf_keras.layers, class_name(operation), None)
    if kind is None:
        raise NoCounterpart("tf_keras has no layer of this class")
    return kind


def _split(operation: Any, activation: Any) -> tuple[str, str, Any]:
    """The activation within the layer, and the function or layer to follow it."""
    if isinstance(activation, str):
        fused = fusable(activation)
        return (fused, "linear", None) if fused else ("linear", activation, None)
    if isinstance(operation.activation, keras.layers.Layer):
        return "linear", "linear", operation.activation
    if activation is None:
        return "linear", "linear", None
    raise NoCounterpart("its activation is a function of the model's own code")


def _translated(operation: Any, config: dict[str, Any], kind: Any) -> dict[str, Any]:
    """The settings of a Keras 3 layer for `kind`, its class in tf_keras."""
    ours, theirs = _settings_of(type(operation)), _settings_of(kind)
    renamed = _RENAMED.get(class_name(operation), {})
    settings: dict[str, Any] = {"trainable": operation.trainable, "dtype": _dtype(operation)}
    for key, value in _values(operation, config):
        if renamed.get(key, key) in theirs:
            settings[renamed.get(key, key)] = value
        elif key in ours and value not in (ours[key], _SAME_AS_NONE.get(key, ours[key])):
            raise NoCounterpart(f"in tf_keras it has no setting {key} ({key}={value!r})")
    return settings


def _values(operation: Any, config: dict[str, Any]) -> Any:
    """The settings that matter; initializers do not, since weights are copied."""
    left_out = {"name", "trainable", "dtype", "quantization_config"}
    for key, value in config.items():
        if key in left_out or key.endswith("_initializer"):
            continue
        if key == "seed":
            yield key, value if isinstance(value, int) else None
        elif key.endswith("activation"):
            yield key, _activation(value)
        elif key in _NESTED:
            yield key, _nested(operation, key)
        else:
            yield key, value


def _activation(value: Any) -> str:
    if not isinstance(value, str):
        raise NoCounterpart("its activation is not a name, and not the last thing it computes")
    fused = fusable(value)
    if fused is None:
        raise NoCounterpart(f"in tf_keras it has no activation {value!r}")
    return fused


def _nested(operation: Any, key: str) -> Any:
    is_forward = key == "layer" and class_name(operation) == "Bidirectional"
    value = getattr(operation, "forward_layer" if is_forward else key)
    return list(map(_inner, value)) if isinstance(value, (list, tuple)) else _inner(value)


def _inner(layer: Any) -> dict[str, Any]:
    """The configuration, for tf_keras, of a layer within a layer."""
    if isinstance(layer, (keras.Model, tf_keras.Model)):
        raise NoCounterpart("it contains a whole model")
    inner = counterpart(layer, layer.name, frozen=False)
    if inner.activation != "linear" or inner.activation_layer is not None:
        raise NoCounterpart("its inner layer has an activation that tf_keras does not have")
    config: dict[str, Any] = tf_keras.layers.serialize(inner.layer)
    return config


def _add_statistics(settings: dict[str, Any], operation: Any) -> None:
    """Make the statistics of a normalization constants: weights would need another step."""
    if operation.mean is None:
        raise NoCounterpart("it was never adapted to data")
    for key in ("mean", "variance"):
        value = np.asarray(getattr(operation, key), dtype="float32")
        kept = sorted(axis % value.ndim for axis in operation.axis)
        settings[key] = value.reshape([value.shape[axis] for axis in kept]).tolist()


def _dtype(operation: Any) -> str:
    policy = operation.dtype_policy
    if getattr(policy, "quantization_mode", None):
        raise NoCounterpart(f"its weights are quantized already ({policy.name})")
    return float32_if_float(policy.name)


def _settings_of(kind: Any) -> dict[str, Any]:
    """The settings of a layer class and its bases, with the defaults of the most derived."""
    settings: dict[str, Any] = {"activity_regularizer": None, **_UNDECLARED.get(kind.__name__, {})}
    for base in reversed(kind.__mro__):
        if base.__name__ in ("Layer", "Module", "object") or "__init__" not in vars(base):
            continue
        for name, parameter in inspect.signature(base.__init__).parameters.items():
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                settings[name] = parameter.default
    return settings
