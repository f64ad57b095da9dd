"""A Keras 3 or tf_keras model as one flat functional model of tf_keras.

Nested models are put in their place, operations become layers, and every layer is a new one of
tf_keras with the weights of the old. A layer that has weights and is used more than once stays
one layer; one without weights becomes a layer for each use. All computes in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.errors import InputRefused
from edgeconv.tf.keras_io import graph_of, inputs_of, output_names, served_shape
from edgeconv.tf.qat import counterparts, operations
from edgeconv.tf.qat.activations import activated
from edgeconv.tf.qat.graph import walk
from edgeconv.tf.qat.making import LayerFactory, NoCounterpart, Unmatched, valid_name

if TYPE_CHECKING:
    from edgeconv.tf.qat.counterparts import Counterpart
    from edgeconv.tf.qat.graph import LayerUse

_MAX_REASON = 200


class LayerStep(NamedTuple):
    """What a layer or operation of the walked model, by name and class, became a tensor of."""

    name: str
    kind: str
    outputs: tuple[Any, ...]


class Flat(NamedTuple):
    """A flat model of tf_keras, and how it came about.

    `input_names` and `output_names` are those of the signature that a conversion of the
    original has; the model's own attributes of that name are set to them. `steps` are in the
    order in which they were taken.
    """

    model: Any
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    steps: tuple[LayerStep, ...]
    notes: tuple[str, ...]


def flattened(model: Any) -> Flat:
    """The flat model with the weights of `model`, of Keras 3 or tf_keras.

    Raises `InputRefused` for a model without a graph, and with the names of all layers for
    which tf_keras has none.
    """
    import tf_keras

    graph = graph_of(model)
    if graph is None:
        raise InputRefused(
            f"the model {model.name!r} ({type(model).__name__}) has no graph of layers that "
            "quantization could be added to: it is code of its own, or was never called",
            hint="build it as a functional or Sequential model, and save that as NAME.keras",
        )
    builder = _Builder()
    given = inputs_of(graph)
    inputs = [builder.input(name, one, served_shape(model, one)) for name, one in given.items()]
    outputs = walk(graph, inputs, builder.apply)
    builder.refuse_unmatched(model, outputs)
    # A model that gives out what it is given has no layer for that output.
    passed = [id(one) for one in inputs]
    outputs = [builder.passed(one) if id(one) in passed else one for one in outputs]
    built = tf_keras.Model(inputs, outputs, name=valid_name(model.name))
    flat = Flat(built, tuple(given), output_names(model), tuple(builder.steps), builder.notes)
    name_ends(built, flat.input_names, flat.output_names)
    return flat


def name_ends(model: Any, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    """Give a tf_keras model the names under which it is exported.

    They are no part of its configuration: a model made from that has to be given them anew.
    """
    model.input_names, model.output_names = list(inputs), list(outputs)


class _Builder:
    """Makes a layer of tf_keras for each use of one, and keeps what it could not make."""

    def __init__(self) -> None:
        self.steps: list[LayerStep] = []
        self._making = LayerFactory()
        self._shared: dict[int, Counterpart] = {}
        self._unmatched: dict[str, str] = {}
        self._in_training_only: list[str] = []
        self._frozen: dict[int, str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the walked model the flat one does not have."""
        notes = []
        if self._in_training_only:
            names = _listed(self._in_training_only)
            notes.append(f"left out, because they act in training only: {names}")
        if self._frozen:
            notes.append(
                f"frozen in the model, and so in training: {_listed(self._frozen.values())}"
            )
        return tuple(notes)

    def input(self, name: str, tensor: Any, shape: tuple[int | None, ...]) -> Any:
        """An input like that of the walked model, of the shape that it serves with."""
        self._making.prefix = (name,)
        return _input(tensor, self._making.name(), shape)

    def passed(self, tensor: Any) -> Any:
        """A tensor behind a layer that does nothing."""
        return self._making.layer("Activation", tensor, "out", activation="linear")

    def apply(self, use: LayerUse) -> Any:
        """The new tensors for one use of a layer or operation; stand-ins where there are none."""
        self._making.prefix = use.path
        # One of tf_keras has the name of its function, with dots.
        kind = counterparts.class_name(use.operation)
        try:
            results = self._results(use)
        # The second and third are what tf_keras raises for settings that it does not take.
        except (NoCounterpart, TypeError, ValueError) as error:
            self._unmatched["/".join(use.path)] = f"{_kind(use.operation)}: {_reason(error)}"
            results = tuple(
                _input(one, self._making.name("missing"), tuple(one.shape)) for one in use.outputs
            )
        self.steps.append(LayerStep("/".join(use.path), kind, results))
        return list(results)

    def _results(self, use: LayerUse) -> tuple[Any, ...]:
        import tensorflow as tf

        if use.always_trains:
            raise NoCounterpart("it is called with training=True, so it also trains when it serves")
        if operations.is_operation(use.operation):
            return tuple(tf.nest.flatten(operations.made_of_layers(self._making, use)))
        if self._leaves_out(use):
            return (use.args[0],)
        arguments, named = _bound(use)
        result = self._layer_for(use)(arguments, **named)
        return tuple(tf.nest.flatten(result))

    def _leaves_out(self, use: LayerUse) -> bool:
        operation, name = use.operation, "/".join(use.path)
        never_acts = use.frozen and counterparts.acts_in_training_only(operation)
        if counterparts.is_augmentation(operation):
            self._in_training_only.append(name)
            return True
        return never_acts

    def _layer_for(self, use: LayerUse) -> Any:
        """A function of tensors that calls the layer, with its weights and its activation."""
        operation = use.operation
        shared = self._shared.get(id(operation))
        if shared is None:
            name = self._making.name()
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

    def _activated(self, made: Counterpart, tensor: Any) -> Any:
        if made.activation_layer is not None:
            name = self._making.name("activation")
            inner = counterparts.counterpart(made.activation_layer, name, frozen=False)
            result = inner.layer(tensor)
            _copy_weights(made.activation_layer, inner.layer)
            return self._activated(inner, result)
        if made.activation == "linear":
            return tensor
        self._making.prefix = (*self._making.prefix[:-1], made.layer.name + "_activation")
        return activated(self._making, made.activation, tensor)

    def refuse_unmatched(self, model: Any, outputs: list[Any]) -> None:
        """Raise `InputRefused` with all that has no counterpart, if there is any."""
        for index, one in enumerate(outputs):
            if isinstance(one, Unmatched):
                self._unmatched[f"output {index}"] = "a shape or a mask"
        if not self._unmatched:
            return
        each = "; ".join(f"{name} ({why})" for name, why in self._unmatched.items())
        raise InputRefused(
            f"{model.name!r} cannot be built in tf_keras, which quantization-aware training "
            f"needs. No counterpart for {len(self._unmatched)} of its layers: {each}",
            hint="put layers of Keras's own in their place, save the model again, and train from "
            "that; or convert it without quantization-aware training (--to int8)",
        )


def _input(tensor: Any, name: str, shape: tuple[int | None, ...]) -> Any:
    """A symbolic tensor of tf_keras, of a shape and of the type of one of any Keras."""
    import tf_keras

    batch, *sample_shape = shape or (None,)
    dtype = getattr(tensor.dtype, "name", tensor.dtype)
    kept = counterparts.float32_if_float(str(dtype))
    return tf_keras.Input(sample_shape, batch, name=name, dtype=kept)


def _bound(use: LayerUse) -> tuple[Any, dict[str, Any]]:
    """What a layer is called with: its first argument, and the others by name."""
    import inspect

    parameters = list(inspect.signature(use.operation.call).parameters)
    named = {**dict(zip(parameters, use.args, strict=False)), **use.kwargs}
    named.pop("training", None)
    first = named.pop(parameters[0])
    if any(isinstance(one, Unmatched) for one in named.values()):
        raise NoCounterpart("it is called with a mask of its own")
    return first, {key: value for key, value in named.items() if value is not None}


def _copy_weights(operation: Any, layer: Any) -> None:
    """Give a layer the values of another's weights, position by position."""
    import numpy as np

    # Its statistics are among its settings.
    if counterparts.class_name(operation) == "Normalization":
        return
    values = [np.asarray(one) for one in operation.get_weights()]
    shapes, wanted = [one.shape for one in values], [tuple(one.shape) for one in layer.weights]
    if shapes != wanted:
        raise NoCounterpart(f"its weights have shapes {shapes}, tf_keras's {wanted}")
    layer.set_weights(values)


def _kind(operation: Any) -> str:
    if operations.is_operation(operation):
        return f"operation {operations.operation_name(operation)}"
    return counterparts.class_name(operation)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:_MAX_REASON] if lines else type(error).__name__


def _listed(names: Any) -> str:
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - 6} more" if len(each) > 6 else ""
    return ", ".join(each[:6]) + more
