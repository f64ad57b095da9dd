"""A model of Keras 3 or tf_keras from outside: inputs, outputs, shapes, and how it answers.

Names and shapes are read from its graph, since a Sequential of Keras 3 from a file raises at
`model.input` and `model.output`. `infer` is the one place that has a model answer.
"""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from edgeconv.model.source.keras_names import is_usable, unusable_names
from edgeconv.tf.lazy import keras, tf_keras
from edgeconv.types.errors import Cause, RunsInTraining
from edgeconv.types.words import quoted


def keras_of(model: Any) -> Any:
    """The package of a model: `tf_keras`, or `keras` 3."""
    if isinstance(model, tf_keras.Model):
        return tf_keras
    return keras


def graph_of(operation: Any) -> Any | None:
    """The object with the functional graph of a model; None for a layer or a model without one."""
    if isinstance(operation, keras.Model):
        graph = getattr(operation, "_functional", operation)
        return graph if hasattr(graph, "_nodes_by_depth") else None
    if isinstance(operation, tf_keras.Model):
        return operation if operation._is_graph_network else None
    return None


def inputs_of(model: Any) -> dict[str, Any]:
    """The symbolic inputs of a model by the name of the input layer, in order; {} if unknown."""
    tensors = getattr(model, "inputs", None) or ()
    if keras_of(model).__name__ == "keras":
        return {tensor._keras_history.operation.name: tensor for tensor in tensors}
    return dict(zip(model.input_names or (), tensors, strict=True))


def pack_inputs(model: Any, values: Sequence[Any]) -> Any:
    """Values in the order of a model's inputs, in the structure that it is called with."""
    structure = getattr(graph_of(model), "_inputs_struct", None)
    if structure is None:
        return values[0] if len(values) == 1 else list(values)
    return keras.tree.pack_sequence_as(structure, list(values))


def arrange_inputs(model: Any, inputs: Mapping[str, Any]) -> Any:
    """Inputs by name in the structure that a model is called with."""
    return pack_inputs(model, [inputs[name] for name in inputs_of(model)])


def fit_inputs(model: Any, inputs: Mapping[str, Any]) -> Any:
    """The same as an element of a dataset for `fit`, which would make one tensor of a list."""
    values = arrange_inputs(model, inputs)
    return tuple(values) if isinstance(values, list) else values


def served_shape(model: Any, tensor: Any) -> tuple[int | None, ...]:
    """The shape of one of a model's inputs when the model serves, None for an open dimension.

    The batch is open, as in Keras's exports: a Sequential without an Input has the batch of its
    first call or of `fit`. Only a layer that keeps its state needs a fixed batch.
    """
    shape = tuple(tensor.shape)
    keeps_state = any(getattr(layer, "stateful", False) for layer in model._flatten_layers())
    return shape if keeps_state or not shape else (None, *shape[1:])


def output_names(model: Any) -> tuple[str, ...]:
    """The name of each output of a model; () where no graph has them.

    It is the key where the outputs are a dictionary, otherwise the name of the layer or operation
    that it comes from, numbered from the second of the same name on.
    """
    graph = graph_of(model)
    if keras_of(model).__name__ == "tf_keras":
        keys = _keys(getattr(graph, "_nested_outputs", None), model.outputs)
        return keys or tuple(model.output_names or ())
    # The outputs of a user's `call` need not be the graph's.
    if graph is None or not type(model).call.__module__.startswith("keras."):
        return ()
    keys = _keys(graph._outputs_struct, graph.outputs)
    return keys or _numbered(tensor._keras_history.operation.name for tensor in graph.outputs)


def refuse_names(where: str, model: Any) -> None:
    """Raise `InputRefused` for names of layers that Keras 3 accepts and TensorFlow does not."""
    layers = [(layer.name, bool(layer.weights)) for layer in model._flatten_layers()]
    refused = [name for name, has_weights in layers if not is_usable(name, has_weights)]
    if refused:
        raise unusable_names(where, refused)


def _keys(outputs: Any, tensors: Sequence[Any]) -> tuple[str, ...]:
    """The key of each tensor in a dictionary of them; () for any other structure."""
    if not isinstance(outputs, dict) or not all(isinstance(key, str) for key in outputs):
        return ()
    remaining = dict(outputs)
    keys = []
    for tensor in tensors:
        key = next((key for key, value in remaining.items() if value is tensor), None)
        if key is None:
            return ()
        del remaining[key]
        keys.append(key)
    return tuple(keys)


def _numbered(names: Iterable[str]) -> tuple[str, ...]:
    """The names, each with the lowest number that makes it unique, as tf_keras numbers outputs."""
    unique: list[str] = []
    for name in names:
        candidate, number = name, 0
        while candidate in unique:
            number += 1
            candidate = f"{name}_{number}"
        unique.append(candidate)
    return tuple(unique)


_TRAINING_ONLY = re.compile(r"Dropout|SpatialDropout\dD|GaussianDropout|AlphaDropout|GaussianNoise")
_AUGMENTATION = re.compile(r"Random(?!Crop)\w+|AugMix|RandAugment")
_NORMALIZES_BATCHES = re.compile(r"(Sync)?BatchNormalization")
_MOST_NAMED = 5


def infer(model: Any, inputs: Any) -> Any:
    """The outputs of a model of Keras 3 or tf_keras, in its own structure.

    `inputs` are tensors or arrays in the structure that it is called with. `predict` of Keras 3
    says training=False only to a model whose `call` takes it: the layers in any other have their
    own defaults.
    """
    if keras_of(model).__name__ == "tf_keras" or model._call_has_training_arg:
        return model(inputs, training=False)
    return model(inputs)


def is_augmentation(operation: Any) -> bool:
    """Whether a layer changes samples in training, and nothing else."""
    return _AUGMENTATION.fullmatch(type(operation).__name__) is not None


def acts_in_training_only(operation: Any) -> bool:
    """Whether a layer passes its input on at inference."""
    return _TRAINING_ONLY.fullmatch(type(operation).__name__) is not None


def refuse_training_layers(path: str, model: Any) -> None:
    """Raise `RunsInTraining` for layers that the model's author called with training=True."""
    layers = {"/".join(names): layer for names, layer in _always_training(graph_of(model), ())}
    if not layers:
        return
    runs = "runs" if len(layers) == 1 else "run"
    normalizes = any(_NORMALIZES_BATCHES.fullmatch(type(each).__name__) for each in layers.values())
    why = "answers depend on the other samples of a batch" if normalizes else "answers are random"
    overruled = "" if keras_of(model).__name__ == "tf_keras" else ", which model.predict ignores"
    raise RunsInTraining(
        f"{path}: {quoted(layers, _MOST_NAMED)} {runs} in training mode: called with training=True"
        f"{overruled}, so that {why}",
        hint="build the model without that training=True, load the weights into it, and save it; "
        "give random numbers that are wanted, as those of a generator, to the model as an input",
        cause=Cause(layers=tuple(layers)),
    )


def _always_training(graph: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The layers of a functional graph that are called with training=True, with their paths."""
    if graph is None:
        return
    for node in (node for nodes in graph._nodes_by_depth.values() for node in nodes):
        if node.is_input:
            continue
        if hasattr(node, "arguments"):
            layer, kwargs = node.operation, node.arguments.kwargs
        else:
            layer, kwargs = node.layer, node.call_kwargs
        names, inner = (*path, layer.name), graph_of(layer)
        # Keras 3 also stores the default of a layer, such as an augmentation.
        default = inspect.signature(layer.call).parameters.get("training")
        trains = kwargs.get("training") is True and default and default.default is not True
        if not trains:
            yield from _always_training(inner, names)
        elif inner is None:
            yield from [(names, layer)] if _acts(layer) else []
        else:
            within = layer._flatten_layers(include_self=False)
            yield from (((*names, each.name), each) for each in within if _acts(each))


def _acts(layer: Any) -> bool:
    """Whether one of Keras's layers computes something else in training."""
    is_batch = _NORMALIZES_BATCHES.fullmatch(type(layer).__name__) is not None
    return is_batch or acts_in_training_only(layer)
