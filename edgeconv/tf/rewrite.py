"""A SavedModel's signatures written again: with shapes fixed, or with loops unrolled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from edgeconv.tf.known import (
    LISTS,
    KnownValue,
    as_tensor,
    attributes,
    fold_node,
    known_array,
    not_unrolled,
    path_of,
)
from edgeconv.tf.lazy import tf
from edgeconv.tf.reasons import whole_reason
from edgeconv.tf.shapes import FixedShapes
from edgeconv.types.errors import InputRefused

Change = Literal["traced", "inlined", "unrolled"]


def rewrite(
    directory: str,
    keys: Sequence[str],
    target: str,
    *,
    fixed: FixedShapes,
    change: Change,
    in_float32: bool = False,
) -> None:
    """Save the signatures `keys` again in `target`, their inputs shaped by `fixed`.

    `change`: "traced" keeps the functions and calls them with these shapes; "inlined" makes one
    graph without calls, whose tensor lists know the batch; "unrolled" also has no loops.
    `in_float32` (not with "traced") computes all floats in float32.
    Raises `InputRefused` for a model that does not load, a shape that does not fit it, or a loop
    that cannot be unrolled.
    """
    loaded = load_saved_model(directory)
    module = tf.Module()
    module.model = loaded  # keeps the variables that the signatures read
    functions = {}
    for key in keys:
        signature = loaded.signatures[key]
        specs = {
            name: tf.TensorSpec(fixed.of(name, spec.shape.as_list()), spec.dtype, name=name)
            for name, spec in signature.structured_input_signature[1].items()
        }
        call = _rewritten(signature, specs, change, in_float32=in_float32)
        functions[key] = tf.function(call, autograph=False).get_concrete_function(**specs)
    tf.saved_model.save(module, target, signatures=functions)


def freeze_variables(directory: str, keys: Sequence[str], target: str) -> None:
    """Save the signatures `keys` of a TF1 model again in `target`, its variables as constants.

    The converter does not take reference variables, the default of TF1. Raises `InputRefused` for
    a model that does not load.
    """
    # TensorFlow's own modules, since this also runs in a process without its __init__.
    from tensorflow.python.client.session import Session
    from tensorflow.python.framework import convert_to_constants, errors_impl, importer, ops
    from tensorflow.python.saved_model import builder_impl, loader_impl

    with ops.Graph().as_default() as graph, Session(graph=graph) as session:
        try:
            loaded = loader_impl.load(session, ["serve"], directory)
        except (OSError, ValueError, RuntimeError, errors_impl.OpError) as error:
            raise _does_not_load(directory, error) from error
        signatures = {key: loaded.signature_def[key] for key in keys}
        outputs = {info.name for entry in signatures.values() for info in entry.outputs.values()}
        names = sorted({name.split(":")[0] for name in outputs})
        frozen = convert_to_constants.convert_variables_to_constants_from_session_graph(
            session, graph.as_graph_def(), names
        )
    with ops.Graph().as_default() as graph, Session(graph=graph) as session:
        importer.import_graph_def(frozen, name="")
        builder = builder_impl.SavedModelBuilder(target)
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()


def load_saved_model(directory: str) -> Any:
    """The object that TensorFlow loads. Raises `InputRefused` where it does not load."""
    # What the loader raises for a damaged SavedModel, or one of another version.
    failures = (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError)
    try:
        return tf.saved_model.load(directory)
    except (*failures, tf.errors.OpError) as error:
        raise _does_not_load(directory, error) from error


def _does_not_load(directory: str, error: Exception) -> InputRefused:
    return InputRefused(
        f"{directory} does not load in TensorFlow: {whole_reason(error)}",
        hint="export it again with the version of TensorFlow that is installed here",
    )


def _rewritten(
    signature: Any, specs: dict[str, Any], change: Change, *, in_float32: bool
) -> Callable[..., Any]:
    if change == "traced":
        return lambda **inputs: signature(**inputs)
    frozen = freeze(signature, specs)
    _drop_sign_bits(frozen.graph_def)
    batch = next((spec.shape[0] for spec in specs.values() if spec.shape.rank), None)
    if batch is not None:
        fix_list_batch(frozen, batch)
    if in_float32:
        _widen(frozen)
    call = unroll(frozen) if change == "unrolled" else as_function(frozen)
    if not in_float32:
        return call

    def cast(value: Any) -> Any:
        return tf.cast(value, tf.float32) if value.dtype.is_floating else value

    return lambda **inputs: call(**{name: cast(value) for name, value in inputs.items()})


def _widen(frozen: Frozen) -> None:
    """Make every float of the graph and its functions float32, constants included.

    TFLite's kernels know no other floats. A model that was trained in mixed precision casts to
    float16 before each layer and back after it; its variables are float32.
    """
    from tensorflow.python.framework import tensor_util

    single = tf.float32.as_datatype_enum
    others = {t.as_datatype_enum for t in (tf.float16, tf.bfloat16, tf.float64)}
    functions = frozen.graph_def.library.function
    graphs = (frozen.graph_def.node, *(function.node_def for function in functions))
    for node in (node for nodes in graphs for node in nodes):
        if node.op == "Const" and node.attr["dtype"].type in others:
            value = tensor_util.MakeNdarray(node.attr["value"].tensor).astype(np.float32)
            node.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(value))
        for attribute in node.attr.values():
            if attribute.type in others:
                attribute.type = single
            for index, kind in enumerate(attribute.list.type):
                if kind in others:
                    attribute.list.type[index] = single
    for function in functions:
        for argument in (*function.signature.input_arg, *function.signature.output_arg):
            argument.type = single if argument.type in others else argument.type


def _drop_sign_bits(graph_def: Any) -> None:
    """Take the largest value as it is, without the sign bits that TFLite cannot look at.

    Keras 3 replaces -0.0 by a tiny negative number in `ops.argmax` and `ops.argmin`.
    """
    by_name = {node.name: node for node in graph_def.node}

    def made_by(node: Any, *operators: str) -> list[Any]:
        """What gives a node's first inputs, if it is of these operators."""
        makers = [by_name[_split(source)[0]] for source in node.input[: len(operators)]]
        return makers if [maker.op for maker in makers] == list(operators) else []

    for node in graph_def.node:
        both = made_by(node, "LogicalAnd") if node.op == "SelectV2" else []
        tests = made_by(both[0], "Equal", "Less") if both else []
        masked = made_by(tests[1], "BitwiseAnd") if tests else []
        bits = made_by(masked[0], "Bitcast") if masked else []
        if bits and bits[0].input[0] == tests[0].input[0] == node.input[2]:
            node.op = "Identity"
            del node.input[:2]
            node.attr.pop("t", None)


# Loops of a known number of turns, unrolled: a graph that every quantizer understands.
#
# This is partial evaluation (Jones, Gomard, Sestoft, "Partial Evaluation and Automatic Program
# Generation", 1993, chapter 1). What is known from constants and static shapes is computed; what
# depends on the inputs is copied into a new graph, turn by turn of each loop. Tensor lists, in
# which a loop collects its results, become Python lists.
_LOOPS = frozenset({"While", "StatelessWhile"})
_BRANCHES = frozenset({"If", "StatelessIf"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# What the loops and branches of TensorFlow 1 are made of.
_OLD_LOOPS = frozenset({"Enter", "Exit", "Merge", "NextIteration", "RefEnter", "RefMerge"})
_MOST_TURNS = 4096


def unroll(frozen: Frozen) -> Callable[..., Any]:
    """`frozen` without its loops, as a function of its inputs by keyword.

    When traced, it raises `InputRefused` for a loop whose number of turns depends on the inputs.
    """

    def call(**inputs: Any) -> dict[str, Any]:
        graph = frozen.graph_def
        feeds = {frozen.inputs[name]: value for name, value in inputs.items()}
        functions = {function.signature.name: function for function in graph.library.function}
        values = _PartialEvaluation(functions).run(graph.node, feeds, frozen.outputs.values())
        return {name: as_tensor(v) for name, v in zip(frozen.outputs, values, strict=True)}

    return call


class _PartialEvaluation:
    """The graph's functions, and the evaluation of each of them."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions
        self._graphs: dict[str, tuple[Any, Any]] = {}
        self._library = _library(functions.values())

    def run(
        self, nodes: Iterable[Any], feeds: Mapping[str, Any], fetches: Iterable[str]
    ) -> list[Any]:
        """The values of `fetches` for the values in `feeds`, both by tensor name."""
        by_name = {node.name: node for node in nodes}
        values = {_split(name)[0]: [value] for name, value in feeds.items()}
        outputs = [_split(name) for name in fetches]
        order = _in_order(by_name, [name for name, _ in outputs], values)
        for node in order:
            # The turns of such a loop go round in the graph itself.
            if node.op in _OLD_LOOPS:
                raise not_unrolled(node, "is control flow of TensorFlow 1")
        for node in order:
            inputs = [values[source][index] for source, index in map(_split, _data_inputs(node))]
            values[node.name] = self._node(node, inputs)
        return [values[name][index] for name, index in outputs]

    def _node(self, node: Any, inputs: list[Any]) -> list[Any]:
        if node.op in _LOOPS:
            return self._loop(node, inputs)
        if node.op in _BRANCHES:
            chosen = "then_branch" if known_array(node, inputs[0]) else "else_branch"
            return self._function(node.attr[chosen].func.name, inputs[1:])
        if node.op in _CALLS:
            return self._function(node.attr["f"].func.name, inputs)
        if node.op in LISTS:
            return LISTS[node.op](node, *inputs)
        if node.op in _SIMPLER and not all(isinstance(value, KnownValue) for value in inputs):
            simpler: list[Any] = _SIMPLER[node.op](node, *inputs)
            return simpler
        return _operation(node, inputs)

    def _loop(self, node: Any, state: list[Any]) -> list[Any]:
        for _ in range(_MOST_TURNS):
            goes_on = self._function(node.attr["cond"].func.name, state)[0]
            if not bool(known_array(node, goes_on)):
                return state
            state = self._function(node.attr["body"].func.name, state)
        raise InputRefused(f"the loop {path_of(node)} has more than {_MOST_TURNS} turns")

    def _function(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        from tensorflow.python.framework import function_def_to_graph

        if name not in self._graphs:
            definition = self._functions[name]
            with self._library.as_default():
                graph_def = function_def_to_graph.function_def_to_graph_def(definition)
            self._graphs[name] = graph_def
        graph, flat_names = self._graphs[name]
        signature = self._functions[name].signature
        feeds = dict(zip((arg.name for arg in signature.input_arg), arguments, strict=True))
        returns = self._functions[name].ret
        fetches = [flat_names[returns[arg.name]] for arg in signature.output_arg]
        return self.run(graph.node, feeds, fetches)


def _library(functions: Iterable[Any]) -> Any:
    """A graph with nothing but functions, in which each finds the others."""
    definition = tf.compat.v1.GraphDef()
    definition.library.function.extend(functions)
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(definition, name="")
    return graph


def _operation(node: Any, inputs: list[Any]) -> list[Any]:
    """The outputs of any other operator: computed where possible, else copied."""
    from tensorflow.python.framework import tensor_util

    if node.op == "Const":
        return [KnownValue(tensor_util.MakeNdarray(node.attr["value"].tensor))]
    if node.op in ("Identity", "StopGradient", "PreventGradient"):
        return inputs[:1]
    computed = fold_node(node, inputs)
    if computed is not None:
        return list(computed)
    if node.op.startswith("TensorList") or any(isinstance(value, list) for value in inputs):
        raise not_unrolled(node, "takes a tensor list")
    # The functions that it would run are not in the new graph.
    if any(value.func.name or value.list.func for value in node.attr.values()):
        raise not_unrolled(node, "runs functions")
    return _copied(node, inputs)


def _copied(node: Any, inputs: Sequence[Any]) -> list[Any]:
    graph = tf.compat.v1.get_default_graph()
    tensors = [as_tensor(value) for value in inputs]
    return list(graph._create_op_internal(node.op, tensors, attrs=attributes(node)).outputs)


def _slices(tensor: Any, axis: int, sizes: Sequence[int]) -> list[Any]:
    """`tensor` cut along `axis`; SLICE has integer kernels in cases where SPLIT has none."""
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    rank = tensor.shape.rank
    axis %= rank

    def cut(start: int, size: int) -> Any:
        begin = [start if index == axis else 0 for index in range(rank)]
        shape = [size if index == axis else -1 for index in range(rank)]
        return tf.slice(tensor, begin, shape)

    return [cut(start, size) for start, size in zip(starts, sizes, strict=True)]


def _split_equally(node: Any, axis: Any, value: Any) -> list[Any]:
    tensor, where = as_tensor(value), int(known_array(node, axis))
    count = node.attr["num_split"].i
    if _size(tensor, where) is None:
        return _copied(node, [axis, value])
    return _slices(tensor, where, [tensor.shape[where] // count] * count)


def _split_by_sizes(node: Any, value: Any, sizes: Any, axis: Any) -> list[Any]:
    tensor, where = as_tensor(value), int(known_array(node, axis))
    parts = [int(size) for size in known_array(node, sizes)]
    if _size(tensor, where) is None:
        return _copied(node, [value, sizes, axis])
    rest = tensor.shape[where] - sum(size for size in parts if size != -1)
    return _slices(tensor, where, [rest if size == -1 else size for size in parts])


def _reversed(node: Any, value: Any, axes: Any) -> list[Any]:
    """`value` reversed by GATHER, which has integer kernels; REVERSE_V2 has none."""
    tensor = as_tensor(value)
    if any(_size(tensor, int(axis)) is None for axis in known_array(node, axes)):
        return _copied(node, [value, axes])
    for axis in known_array(node, axes):
        tensor = tf.gather(tensor, list(range(tensor.shape[int(axis)]))[::-1], axis=int(axis))
    return [tensor]


def _size(tensor: Any, axis: int) -> int | None:
    size: int | None = None if tensor.shape.rank is None else tensor.shape[axis]
    return size


# Operators that are replaced by simpler ones.
_SIMPLER: dict[str, Callable[..., Any]] = {
    "ReverseV2": _reversed,
    "Split": _split_equally,
    "SplitV": _split_by_sizes,
}


def _split(name: str) -> tuple[str, int]:
    bare, _, index = name.partition(":")
    return bare, int(index or 0)


def _data_inputs(node: Any) -> list[str]:
    return [name for name in node.input if not name.startswith("^")]


def _in_order(
    by_name: Mapping[str, Any], outputs: Iterable[str], values: Mapping[str, Any]
) -> list[Any]:
    """The nodes that `outputs` need, each after those it takes its inputs from."""
    order: list[Any] = []
    visited = set(values)
    waiting = [(name, False) for name in outputs]
    while waiting:
        name, is_ready = waiting.pop()
        if is_ready:
            order.append(by_name[name])
        elif name not in visited:
            visited.add(name)
            waiting.append((name, True))
            waiting += [(_split(source)[0], False) for source in _data_inputs(by_name[name])]
    return order


# One signature of a SavedModel as a bare graph with its variables as constants, and back.
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
    """A graph without variables; `inputs` and `outputs` map names to tensors in `graph_def`."""

    graph_def: Any
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


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
