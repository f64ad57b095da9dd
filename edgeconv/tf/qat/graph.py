"""The functional graph of a Keras 3 or tf_keras model, walked node by node, nested models too."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.errors import InputRefused
from edgeconv.tf.keras_io import graph_of, inputs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class LayerUse(NamedTuple):
    """One use of a layer or operation in a model.

    `path` is its name behind those of the nested models it is in. `args` and `kwargs` are what
    it is called with, without `training` and what is None; `outputs` are the symbolic tensors
    of the walked model that stand for its results. `frozen`: it, or a model it is in, is called
    with training=False; `always_trains`: with training=True.
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
    """Run a graph from its inputs to its outputs, with `apply` giving what each use of it gives.

    The values may be anything: tensors, arrays, symbolic tensors of another framework. Nested
    models are walked in their place; a node that another comes after is visited before it.
    Raises `InputRefused` for a nested model that is called with more than its inputs.
    """
    import tensorflow as tf

    values = {id(one): value for one, value in zip(graph.inputs, inputs, strict=True)}

    def filled(argument: Any) -> Any:
        return tf.nest.map_structure(lambda one: values.get(id(one), one), argument)

    for node in _nodes(graph):
        operation, args, kwargs, outputs = _parts(node)
        use = _use(operation, path, filled(args), filled(kwargs), outputs, frozen)
        inner = graph_of(operation)
        if inner is None:
            results = tf.nest.flatten(apply(use))
        else:
            _refuse_extra(use)
            given = _flat_inputs(inner, use.args[0] if use.args else use.kwargs["inputs"])
            results = walk(inner, given, apply, path=use.path, frozen=use.frozen)
        values.update((id(one), value) for one, value in zip(outputs, results, strict=True))
    return [values[id(one)] for one in graph.outputs]


def _refuse_extra(use: LayerUse) -> None:
    if use.args[1:] or use.kwargs.keys() - {"inputs"}:
        raise InputRefused(
            f"the model {'/'.join(use.path)!r} within the model is called with a mask of its own",
            hint="quantization-aware training needs layers that are called with tensors alone",
        )


def _use(
    operation: Any,
    path: tuple[str, ...],
    args: Any,
    kwargs: dict[str, Any],
    outputs: tuple[Any, ...],
    frozen: bool,
) -> LayerUse:
    training = kwargs.get("training")
    kept = {key: one for key, one in kwargs.items() if key != "training" and one is not None}
    return LayerUse(
        operation,
        (*path, operation.name),
        tuple(args),
        kept,
        outputs,
        training is False or (frozen and training is None),
        training is True,
    )


def _nodes(graph: Any) -> Iterator[Any]:
    by_depth = graph._nodes_by_depth
    for depth in sorted(by_depth, reverse=True):
        yield from (node for node in by_depth[depth] if not node.is_input)


def _parts(node: Any) -> tuple[Any, Any, dict[str, Any], tuple[Any, ...]]:
    import tensorflow as tf

    if hasattr(node, "arguments"):
        return node.operation, node.arguments.args, _chosen_kwargs(node), tuple(node.outputs)
    return node.layer, node.call_args, node.call_kwargs, tuple(tf.nest.flatten(node.outputs))


def _chosen_kwargs(node: Any) -> dict[str, Any]:
    """The arguments by name that the model's author gave to a layer of Keras 3.

    Keras writes down others as well: defaults of `training`, and the masks that come with
    tensors. A training=True is none either: a model that serves overrules it.
    """
    import tensorflow as tf

    kwargs = dict(node.arguments.kwargs)
    if "training" in kwargs:
        default = inspect.signature(node.operation.call).parameters.get("training")
        if kwargs["training"] is True or (default and kwargs["training"] is default.default):
            del kwargs["training"]
    given = tf.nest.flatten((node.arguments.args, kwargs))
    carried = [one._keras_mask for one in given if getattr(one, "_keras_mask", None) is not None]
    for key in [key for key in kwargs if key.endswith("mask")]:
        masks = [one for one in tf.nest.flatten(kwargs[key]) if one is not None]
        if all(any(_same(mask, other) for other in carried) for mask in masks):
            del kwargs[key]
    return kwargs


def _same(one: Any, other: Any) -> bool:
    """Whether two symbolic tensors of Keras 3 are the same operations of the same tensors.

    In a model that was loaded, a mask that was written down is another tensor than the one
    that the loading computed.
    """
    import tensorflow as tf

    if one is other or not (hasattr(one, "_keras_history") and hasattr(other, "_keras_history")):
        return one is other or (isinstance(one, (int, float)) and one == other)
    first, second = one._keras_history.operation, other._keras_history.operation
    if type(first) is not type(second) or not type(first).__module__.startswith("keras.src.ops."):
        return False
    nodes = (
        first._inbound_nodes[one._keras_history.node_index],
        second._inbound_nodes[other._keras_history.node_index],
    )
    arguments = [tf.nest.flatten((node.arguments.args, node.arguments.kwargs)) for node in nodes]
    return len(arguments[0]) == len(arguments[1]) and all(map(_same, *arguments))


def _flat_inputs(graph: Any, given: Any) -> list[Any]:
    """What a nested model is called with, in the order of its inputs."""
    import tensorflow as tf

    structure = getattr(graph, "_inputs_struct", getattr(graph, "_nested_inputs", None))
    if isinstance(given, dict) and not isinstance(structure, dict):
        return [given[name] for name in inputs_of(graph)]
    flat: list[Any] = tf.nest.flatten(given)
    return flat
