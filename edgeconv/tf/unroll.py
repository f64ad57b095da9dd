"""Loops of a known number of turns, unrolled: a graph that every quantizer understands.

This is partial evaluation (Jones, Gomard, Sestoft, "Partial Evaluation and Automatic Program
Generation", 1993, chapter 1). What is known from constants and static shapes is computed; what
depends on the inputs is copied into a new graph, turn by turn of each loop. Tensor lists, in which
a loop collects its results, become Python lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused
from edgeconv.tf.known import (
    KnownValue,
    as_tensor,
    attributes,
    fold_node,
    known_array,
    not_unrolled,
    path_of,
)
from edgeconv.tf.lazy import tf
from edgeconv.tf.tensor_lists import LISTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from edgeconv.tf.frozen import Frozen

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
        """The values of `fetches`, given those of `feeds`, both by tensor name."""
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
