"""A Keras 3 or tf_keras model as one flat functional model of tf_keras in float32.

Nested models are expanded, operations become layers, and every layer is a new one of tf_keras with
the weights of the old. A layer with weights that is used more than once stays one layer; one
without weights becomes a layer for each use.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.errors import InputRefused
from edgeconv.tf.keras_io import graph_of, inputs_of, output_names, served_shape
from edgeconv.tf.lazy import tf, tf_keras
from edgeconv.tf.qat import counterparts, operations
from edgeconv.tf.qat.activations import apply_activation
from edgeconv.tf.qat.factory import LayerFactory, NoCounterpart, Unmatched, valid_name
from edgeconv.tf.qat.graph import walk
from edgeconv.tf.qat.kinds import class_name
from edgeconv.types.words import first_line, listed

if TYPE_CHECKING:
    from edgeconv.tf.qat.counterparts import Counterpart
    from edgeconv.tf.qat.graph import LayerUse


class LayerStep(NamedTuple):
    """A layer or operation of the walked model, by name and class, and its new tensors."""

    name: str
    kind: str
    outputs: tuple[Any, ...]


class Flat(NamedTuple):
    """A flat model of tf_keras, and how it was built, in `steps` of that order.

    `input_names` and `output_names` are those of the signature of a conversion of the original;
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
        """An input like that of the walked model, with the shape that it serves with."""
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
            return tuple(tf.nest.flatten(operations.layers_for(self._factory, use)))
        if self._leaves_out(use):
            return (use.args[0],)
        arguments, named = _bound(use)
        result = self._layer_for(use)(arguments, **named)
        return tuple(tf.nest.flatten(result))

    def _leaves_out(self, use: LayerUse) -> bool:
        if counterparts.is_augmentation(use.operation):
            self._in_training_only.append("/".join(use.path))
            return True
        return use.frozen and counterparts.acts_in_training_only(use.operation)

    def _layer_for(self, use: LayerUse) -> Any:
        """A function of tensors that calls the layer, with its weights and its activation."""
        operation = use.operation
        shared = self._shared.get(id(operation))
        if shared is None:
            name = self._factory.name()
            shared = counterparts.counterpart(operation, name, frozen=use.frozen)
            if operation.weights:
                self._shared[id(operation)] = shared
                if not shared.layer.trainable:
                    self._frozen[id(operation)] = "/".join(use.path)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = shared.layer(*args, **kwargs)
            _copy_weights(operation, shared.layer)
            return self._activated(shared, result)

        return call

    def _activated(self, counterpart: Counterpart, tensor: Any) -> Any:
        if counterpart.activation_layer is not None:
            name = self._factory.name("activation")
            inner = counterparts.counterpart(counterpart.activation_layer, name, frozen=False)
            result = inner.layer(tensor)
            _copy_weights(counterpart.activation_layer, inner.layer)
            return self._activated(inner, result)
        if counterpart.activation == "linear":
            return tensor
        name = f"{counterpart.layer.name}_activation"
        self._factory.prefix = (*self._factory.prefix[:-1], name)
        return apply_activation(self._factory, counterpart.activation, tensor)

    def refuse_unmatched(self, model: Any, outputs: list[Any]) -> None:
        """Raise `InputRefused` with all that has no counterpart, if there is any."""
        for index, output in enumerate(outputs):
            if isinstance(output, Unmatched):
                self._unmatched[f"output {index}"] = "a shape or a mask"
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
    kept = counterparts.float32_if_float(str(dtype))
    return tf_keras.Input(sample_shape, batch, name=name, dtype=kept)


def _bound(use: LayerUse) -> tuple[Any, dict[str, Any]]:
    """The first argument of a layer's call, and the others by name."""
    parameters = list(inspect.signature(use.operation.call).parameters)
    named = {**dict(zip(parameters, use.args, strict=False)), **use.kwargs}
    named.pop("training", None)
    first = named.pop(parameters[0])
    if any(isinstance(value, Unmatched) for value in named.values()):
        raise NoCounterpart("it is called with its own mask")
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
