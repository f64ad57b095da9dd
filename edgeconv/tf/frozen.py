"""One signature of a SavedModel as a bare graph with its variables as constants, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Where a tensor-list operator has the shape of its elements.
_ELEMENT_SHAPE = {
    "EmptyTensorList": 0,
    "TensorListReserve": 0,
    "TensorListConcatV2": 1,
    "TensorListFromTensor": 1,
    "TensorListStack": 1,
}


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A graph without variables: `inputs` and `outputs` are tensor names in `graph_def`, by name.

    `specs` are the inputs' shapes and types.
    """

    graph_def: Any
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    specs: Mapping[str, Any]


def freeze(function: Any, specs: Mapping[str, Any]) -> Frozen:
    """The signature `function` with its inputs as `specs` say, and its calls inlined."""
    import tensorflow as tf
    from tensorflow.python.framework import convert_to_constants

    traced = tf.function(lambda **inputs: function(**inputs)).get_concrete_function(**specs)
    frozen = convert_to_constants.convert_variables_to_constants_v2(
        traced, lower_control_flow=False, aggressive_inlining=True
    )
    inputs = [tensor for tensor in frozen.inputs if tensor.dtype != tf.resource]
    # Both are flattened in the order of their sorted names.
    return Frozen(
        graph_def=frozen.graph.as_graph_def(),
        inputs=dict(zip(sorted(specs), [tensor.name for tensor in inputs], strict=True)),
        outputs=dict(
            zip(
                sorted(function.structured_outputs),
                [tensor.name for tensor in frozen.outputs],
                strict=True,
            )
        ),
        specs=dict(specs),
    )


def fix_list_batch(frozen: Frozen, batch: int) -> None:
    """Give the elements of tensor lists the leading dimension `batch` where that is open.

    Keras writes the shape of a step's result into the graph when it traces it, with the
    batch that it knew then: no later retracing changes that constant.
    """
    graph = frozen.graph_def
    for nodes in (graph.node, *(inner.node_def for inner in graph.library.function)):
        by_name = {node.name: node for node in nodes}
        for node in nodes:
            position = _ELEMENT_SHAPE.get(node.op)
            if position is not None:
                _fix_shape(by_name.get(node.input[position].split(":")[0]), batch)


def _fix_shape(node: Any, batch: int) -> None:
    from tensorflow.python.framework import tensor_util

    if node is None or node.op != "Const":
        return
    shape = tensor_util.MakeNdarray(node.attr["value"].tensor)
    if shape.ndim == 1 and shape.size and shape[0] == -1:
        fixed = shape.copy()
        fixed[0] = batch
        proto = tensor_util.make_tensor_proto(fixed, node.attr["dtype"].type)
        node.attr["value"].tensor.CopyFrom(proto)


def as_function(frozen: Frozen) -> Callable[..., Any]:
    """The graph as a function of its inputs by keyword, which gives its outputs by name."""
    import tensorflow as tf

    def imported() -> None:
        tf.graph_util.import_graph_def(frozen.graph_def, name="")

    wrapped = tf.compat.v1.wrap_function(imported, [])
    tensor = wrapped.graph.get_tensor_by_name
    pruned = wrapped.prune(
        [tensor(name) for name in frozen.inputs.values()],
        [tensor(name) for name in frozen.outputs.values()],
    )

    def call(**inputs: Any) -> dict[str, Any]:
        given = [inputs[name] for name in frozen.inputs]
        return dict(zip(frozen.outputs, pruned(*given), strict=True))

    return call
