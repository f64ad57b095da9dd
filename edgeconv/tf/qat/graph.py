"""The functional graph of a Keras 3 or tf_keras model, walked node by node into nested models."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.errors import InputRefused
from edgeconv.tf.keras_io import graph_of, inputs_of
from edgeconv.tf.lazy import tf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class LayerUse(NamedTuple):
    """One use of a layer or operation in a model.

    `path` is its name after those of the nested models it is in. `args` and `kwargs` are those of
    its call, without `training` and None; `outputs` are the symbolic tensors of its results in the
    walked model. `frozen`: it, or a model it is in, is called with training=False;
    `always_trains`: with training=True.
    """

    operation: Any
    path: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Any, ...]
    frozen: bool
    always_trains: bool


def walk(
    graph: Any,
    inputs: Sequence[Any],
    apply: Callable[[LayerUse], Any],
    *,
    path: tuple[str, ...] = (),
    frozen: bool = False,
) -> list[Any]:
    """The outputs of a graph for `inputs`, where `apply` computes the results of each use.

    The values may be tensors, arrays or symbolic tensors of another framework. Nested models are
    walked where they are used; a node is visited before those that take its results. Raises
    `InputRefused` for a nested model that is called with more than its inputs.
    """
    values = {id(tensor): value for tensor, value in zip(graph.inputs, inputs, strict=True)}

    def filled(argument: Any) -> Any:
        return tf.nest.map_structure(lambda leaf: values.get(id(leaf), leaf), argument)

    by_depth = graph._nodes_by_depth
    for node in (node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]):
        if node.is_input:
            continue
        operation, args, kwargs, outputs = _parts(node)
        kwargs = filled(kwargs)
        training = kwargs.pop("training", None)
        use = LayerUse(
            operation=operation,
            path=(*path, operation.name),
            args=tuple(filled(args)),
            kwargs={key: value for key, value in kwargs.items() if value is not None},
            outputs=outputs,
            frozen=training is False or (frozen and training is None),
            always_trains=training is True,
        )
        inner = graph_of(operation)
        if inner is None:
            results = tf.nest.flatten(apply(use))
        else:
            if use.args[1:] or use.kwargs.keys() - {"inputs"}:
                raise InputRefused(
                    f"the nested model {'/'.join(use.path)!r} is called with its own mask",
                    hint="quantization-aware training needs layers that take nothing but tensors",
                )
            tensors = _flat_inputs(inner, use.args[0] if use.args else use.kwargs["inputs"])
            results = walk(inner, tensors, apply, path=use.path, frozen=use.frozen)
        values.update((id(tensor), value) for tensor, value in zip(outputs, results, strict=True))
    return [values[id(tensor)] for tensor in graph.outputs]


def _parts(node: Any) -> tuple[Any, Any, dict[str, Any], tuple[Any, ...]]:
    if hasattr(node, "arguments"):
        return node.operation, node.arguments.args, _chosen_kwargs(node), tuple(node.outputs)
    return node.layer, node.call_args, node.call_kwargs, tuple(tf.nest.flatten(node.outputs))


def _chosen_kwargs(node: Any) -> dict[str, Any]:
    """The keyword arguments that the model's author passed to a layer of Keras 3.

    Keras stores others as well: defaults of `training`, and the masks that come with tensors. A
    training=True does not count: a model that serves overrules it.
    """
    kwargs = dict(node.arguments.kwargs)
    if "training" in kwargs:
        default = inspect.signature(node.operation.call).parameters.get("training")
        if kwargs["training"] is True or (default and kwargs["training"] is default.default):
            del kwargs["training"]
    leaves = tf.nest.flatten((node.arguments.args, kwargs))
    masks = [getattr(leaf, "_keras_mask", None) for leaf in leaves]
    carried = [mask for mask in masks if mask is not None]
    for key in [key for key in kwargs if key.endswith("mask")]:
        own = [mask for mask in tf.nest.flatten(kwargs[key]) if mask is not None]
        if all(any(_same(mask, other) for other in carried) for mask in own):
            del kwargs[key]
    return kwargs


def _same(tensor: Any, other: Any) -> bool:
    """Whether two symbolic tensors of Keras 3 are the same operations of the same tensors.

    In a loaded model, a stored mask is another tensor than the one that the loading computed.
    """
    if tensor is other:
        return True
    if not (hasattr(tensor, "_keras_history") and hasattr(other, "_keras_history")):
        return isinstance(tensor, (int, float)) and tensor == other
    first, second = tensor._keras_history.operation, other._keras_history.operation
    if type(first) is not type(second) or not type(first).__module__.startswith("keras.src.ops."):
        return False
    nodes = (
        first._inbound_nodes[tensor._keras_history.node_index],
        second._inbound_nodes[other._keras_history.node_index],
    )
    arguments = [tf.nest.flatten((node.arguments.args, node.arguments.kwargs)) for node in nodes]
    return len(arguments[0]) == len(arguments[1]) and all(map(_same, *arguments))


def _flat_inputs(graph: Any, values: Any) -> list[Any]:
    """The values that a nested model is called with, in the order of its inputs."""
    structure = getattr(graph, "_inputs_struct", getattr(graph, "_nested_inputs", None))
    if isinstance(values, dict) and not isinstance(structure, dict):
        return [values[name] for name in inputs_of(graph)]
    return list(tf.nest.flatten(values))
