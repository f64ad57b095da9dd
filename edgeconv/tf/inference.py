"""The one place that has a Keras model answer: in inference mode, as its own `predict` does."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from edgeconv.tf.keras_io import graph_of, keras_of
from edgeconv.types.errors import Cause, RunsInTraining
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

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
