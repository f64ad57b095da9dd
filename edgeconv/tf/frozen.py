"""One signature of a SavedModel as a bare graph with its variables as constants, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused
from edgeconv.tf.lazy import tf

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
    """A graph without variables; `inputs` and `outputs` map names to tensors in `graph_def`.

    `specs` are the inputs' shapes and types.
    """

    graph_def: Any
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    specs: Mapping[str, Any]


def freeze(function: Any, specs: Mapping[str, Any]) -> Frozen:
    """The signature `function` with inputs of `specs`, and its calls inlined."""
    from tensorflow.python.framework import convert_to_constants

    traced = tf.function(lambda **inputs: function(**inputs)).get_concrete_function(**specs)
    try:
        # In its three steps, since operators with effects alone are removed between them.
        data = convert_to_constants._FunctionConverterDataInEager(
            func=traced, lower_control_flow=False, aggressive_inlining=True
        )
        graph_def, converted = convert_to_constants._replace_variables_by_constants(data)
        _drop_effects(graph_def, [tensor.name for tensor in traced.outputs])
        frozen = convert_to_constants._construct_concrete_function(traced, graph_def, converted)
    except (KeyError, ValueError, RuntimeError) as error:
        # It loses the names of the inputs of some models of TF1.
        raise InputRefused(f"the variables cannot be made constants: {error}") from error
    inputs = [tensor for tensor in frozen.inputs if tensor.dtype != tf.resource]
    # Both are flattened in the order of their sorted names.
    outputs = zip(sorted(function.structured_outputs), frozen.outputs, strict=True)
    return Frozen(
        graph_def=frozen.graph.as_graph_def(),
        inputs=dict(zip(sorted(specs), [tensor.name for tensor in inputs], strict=True)),
        outputs={name: tensor.name for name, tensor in outputs},
        specs=dict(specs),
    )


def _drop_effects(graph_def: Any, outputs: list[str]) -> None:
    """Remove what no output is computed from, such as a counter of random numbers.

    Raises `InputRefused` where the model changes a variable that its outputs depend on.
    """
    by_name = {node.name: node for node in graph_def.node}
    needed: set[str] = set()
    waiting = [name.split(":")[0] for name in outputs]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [s.split(":")[0] for s in by_name[name].input if not s.startswith("^")]
    for node in graph_def.node:
        if node.op.startswith("Assign") and node.input[0].split(":")[0] in needed:
            raise InputRefused(
                f"the model changes a variable that its outputs depend on ({node.op} at "
                f"{node.name.split('PartitionedCall/')[-1]!r}): it cannot be made a constant"
            )
    kept = [n for n in graph_def.node if n.name in needed or n.op == "Placeholder"]
    del graph_def.node[:]
    graph_def.node.extend(kept)
    for node in graph_def.node:
        node.attr.pop("_class", None)  # It names a node on the same device, which may be gone.
        remaining = [source for source in node.input if source[0] != "^" or source[1:] in needed]
        del node.input[:]
        node.input.extend(remaining)


def fix_list_batch(frozen: Frozen, batch: int) -> None:
    """Give the elements of tensor lists the leading dimension `batch` where that is open.

    Keras traces the shape of a step's result as a constant, which no retracing changes.
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
    shape = tensor_util.MakeNdarray(node.attr["value"].tensor).copy()
    if shape.ndim == 1 and shape.size and shape[0] == -1:
        shape[0] = batch
        proto = tensor_util.make_tensor_proto(shape, node.attr["dtype"].type)
        node.attr["value"].tensor.CopyFrom(proto)


def as_function(frozen: Frozen) -> Callable[..., Any]:
    """The graph as a function of its inputs by keyword, which returns its outputs by name."""

    def imported() -> None:
        tf.graph_util.import_graph_def(frozen.graph_def, name="")

    wrapped = tf.compat.v1.wrap_function(imported, [])
    tensor = wrapped.graph.get_tensor_by_name
    pruned = wrapped.prune(
        [tensor(name) for name in frozen.inputs.values()],
        [tensor(name) for name in frozen.outputs.values()],
    )

    def call(**inputs: Any) -> dict[str, Any]:
        values = [inputs[name] for name in frozen.inputs]
        return dict(zip(frozen.outputs, pruned(*values), strict=True))

    return call
