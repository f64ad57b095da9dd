"""Loops of a known number of turns, unrolled: a graph that every quantiser understands.

The graph is evaluated in part: what can be known from constants and static shapes is
computed, what depends on the inputs is copied into a new graph, turn after turn of each
loop. Tensor lists, in which a loop collects its results, become Python lists on the way
and leave no trace. (Jones, Gomard, Sestoft, "Partial Evaluation and Automatic Program
Generation", 1993, chapter 1, calls the two binding times static and dynamic.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from edgeconv.tf.frozen import Frozen

_LOOPS = frozenset({"While", "StatelessWhile"})
_BRANCHES = frozenset({"If", "StatelessIf"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# A counter or a shape is small; a folded weight would be stored once more.
_MOST_FOLDED = 1024
_MOST_TURNS = 4096


class Known:
    """A value that does not depend on the inputs, as a numpy array."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self._tensor: Any = None

    def tensor(self) -> Any:
        """It as a constant of the new graph, made once."""
        import tensorflow as tf

        if self._tensor is None:
            self._tensor = tf.constant(self.array)
        return self._tensor


def unrolled(frozen: Frozen) -> Callable[..., Any]:
    """`frozen` without its loops, as a function of its inputs by keyword.

    It raises `InputRefused`, when traced, for a loop whose number of turns depends on the
    inputs.
    """

    def call(**inputs: Any) -> dict[str, Any]:
        graph = frozen.graph_def
        feeds = {frozen.inputs[name]: value for name, value in inputs.items()}
        functions = {function.signature.name: function for function in graph.library.function}
        values = _Evaluation(functions).run(graph.node, feeds, frozen.outputs.values())
        return {name: _tensor(v) for name, v in zip(frozen.outputs, values, strict=True)}

    return call


class _Evaluation:
    """The graph's functions, and the evaluation of each of them."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions
        self._graphs: dict[str, tuple[Any, Any]] = {}

    def run(
        self, nodes: Iterable[Any], feeds: Mapping[str, Any], fetches: Iterable[str]
    ) -> list[Any]:
        """The values of `fetches`, given those of `feeds`, both by tensor name."""
        by_name = {node.name: node for node in nodes}
        done: dict[str, list[Any]] = {}
        for name, value in feeds.items():
            done[_split(name)[0]] = [value]
        wanted = [_split(name) for name in fetches]
        for node in _in_order(by_name, [name for name, _ in wanted], done):
            inputs = [done[source][index] for source, index in map(_split, _data_inputs(node))]
            done[node.name] = self._node(node, inputs)
        return [done[name][index] for name, index in wanted]

    def _node(self, node: Any, inputs: list[Any]) -> list[Any]:
        if node.op in _LOOPS:
            return self._loop(node, inputs)
        if node.op in _BRANCHES:
            chosen = "then_branch" if _known(node, inputs[0]) else "else_branch"
            return self._function(node.attr[chosen].func.name, inputs[1:])
        if node.op in _CALLS:
            return self._function(node.attr["f"].func.name, inputs)
        if node.op in _LISTS:
            return [_LISTS[node.op](node, *inputs)]
        if node.op in _SIMPLER and not all(isinstance(value, Known) for value in inputs):
            simpler: list[Any] = _SIMPLER[node.op](node, *inputs)
            return simpler
        return _operation(node, inputs)

    def _loop(self, node: Any, state: list[Any]) -> list[Any]:
        for _ in range(_MOST_TURNS):
            go_on = self._function(node.attr["cond"].func.name, state)[0]
            if not bool(_known(node, go_on)):
                return state
            state = self._function(node.attr["body"].func.name, state)
        raise InputRefused(f"the loop {node.name!r} has more than {_MOST_TURNS} turns")

    def _function(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        from tensorflow.python.framework import function_def_to_graph

        if name not in self._graphs:
            definition = self._functions[name]
            self._graphs[name] = function_def_to_graph.function_def_to_graph_def(definition)
        graph, flat_names = self._graphs[name]
        signature = self._functions[name].signature
        feeds = dict(zip((one.name for one in signature.input_arg), arguments, strict=True))
        returns = self._functions[name].ret
        fetches = [flat_names[returns[one.name]] for one in signature.output_arg]
        return self.run(graph.node, feeds, fetches)


def _operation(node: Any, inputs: list[Any]) -> list[Any]:
    """The outputs of any other operator: computed where they can be, else copied."""
    import tensorflow as tf
    from tensorflow.python.framework import tensor_util

    if node.op == "Const":
        return [Known(tensor_util.MakeNdarray(node.attr["value"].tensor))]
    if node.op in ("Identity", "StopGradient", "PreventGradient"):
        return inputs[:1]
    if node.op in ("Shape", "Size", "Rank") and not isinstance(inputs[0], Known | list):
        inputs = [_stand_in(inputs[0])] if inputs[0].shape.is_fully_defined() else inputs
    if _can_fold(node, inputs):
        return [Known(array) for array in _computed(node, inputs)]
    if any(isinstance(value, list) for value in inputs):
        raise InputRefused(f"{node.op} at {node.name!r} takes a tensor list: not unrolled")
    graph = tf.compat.v1.get_default_graph()
    made = graph._create_op_internal(node.op, [_tensor(v) for v in inputs], attrs=_attributes(node))
    return list(made.outputs)


def _stand_in(tensor: Any) -> Known:
    import numpy as np

    # Only its shape is asked for: no memory is behind it.
    return Known(np.broadcast_to(np.zeros((), tensor.dtype.as_numpy_dtype), tensor.shape))


def _can_fold(node: Any, inputs: Sequence[Any]) -> bool:
    if not inputs or not all(isinstance(value, Known) for value in inputs):
        return False
    if node.op in ("Shape", "Size", "Rank"):
        return True
    return all(value.array.size <= _MOST_FOLDED for value in inputs)


def _computed(node: Any, inputs: Sequence[Known]) -> list[Any]:
    import tensorflow as tf

    if node.op == "Shape":
        return [_as(node, "out_type", inputs[0].array.shape)]
    if node.op in ("Size", "Rank"):
        array = inputs[0].array
        return [_as(node, "out_type", array.size if node.op == "Size" else array.ndim)]
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        constants = [tf.constant(value.array) for value in inputs]
        made = graph._create_op_internal(node.op, constants, attrs=_attributes(node))
        outputs: list[Any] = session.run(list(made.outputs))
    return outputs


def _as(node: Any, attribute: str, value: Any) -> Any:
    import numpy as np
    import tensorflow as tf

    kind = node.attr[attribute].type if attribute in node.attr else tf.int32.as_datatype_enum
    return np.asarray(value, tf.as_dtype(kind).as_numpy_dtype)


def _attributes(node: Any) -> dict[str, Any]:
    # Shapes that were known when the graph was traced are not those of the new one.
    return {key: value for key, value in node.attr.items() if not key.startswith("_")}


def _tensor(value: Any) -> Any:
    return value.tensor() if isinstance(value, Known) else value


def _known(node: Any, value: Any) -> Any:
    if isinstance(value, Known):
        return value.array
    raise InputRefused(
        f"the turns of {node.op} at {node.name!r} depend on the model's inputs: not unrolled"
    )


def _reserved(node: Any, _shape: Any, count: Any) -> list[Any]:
    return [None] * int(_known(node, count))


def _from_tensor(_node: Any, tensor: Any, _shape: Any) -> list[Any]:
    import tensorflow as tf

    return list(tf.unstack(_tensor(tensor)))


def _item(node: Any, items: list[Any], index: Any, shape: Any) -> Any:
    import tensorflow as tf

    item = items[int(_known(node, index))]
    if item is not None:
        return item
    return tf.zeros(_known(node, shape), node.attr["element_dtype"].type)


def _with_item(node: Any, items: list[Any], index: Any, item: Any) -> list[Any]:
    position = int(_known(node, index))
    return [*items[:position], item, *items[position + 1 :]]


def _stack(node: Any, items: list[Any], shape: Any) -> Any:
    import tensorflow as tf

    return tf.stack([_tensor(_filled(node, item, shape)) for item in items])


def _filled(node: Any, item: Any, shape: Any) -> Any:
    import tensorflow as tf

    return tf.zeros(_known(node, shape), node.attr["element_dtype"].type) if item is None else item


def _length(_node: Any, items: list[Any]) -> Known:
    import numpy as np

    return Known(np.asarray(len(items), np.int32))


_LISTS: dict[str, Callable[..., Any]] = {
    "EmptyTensorList": lambda _node, *_: [],
    "TensorListFromTensor": _from_tensor,
    "TensorListGetItem": _item,
    "TensorListLength": _length,
    "TensorListPushBack": lambda _node, items, item: [*items, item],
    "TensorListReserve": _reserved,
    "TensorListSetItem": _with_item,
    "TensorListStack": _stack,
}


def _slices(tensor: Any, axis: int, sizes: Sequence[int]) -> list[Any]:
    """`tensor` cut along `axis`; SLICE has integer kernels in cases where SPLIT has none."""
    import tensorflow as tf

    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    rank = tensor.shape.rank
    axis %= rank

    def cut(start: int, size: int) -> Any:
        begin = [start if index == axis else 0 for index in range(rank)]
        shape = [size if index == axis else -1 for index in range(rank)]
        return tf.slice(tensor, begin, shape)

    return [cut(start, size) for start, size in zip(starts, sizes, strict=True)]


def _split_equally(node: Any, axis: Any, value: Any) -> list[Any]:
    tensor, where = _tensor(value), int(_known(node, axis))
    count = node.attr["num_split"].i
    return _slices(tensor, where, [tensor.shape[where] // count] * count)


def _split_by_sizes(node: Any, value: Any, sizes: Any, axis: Any) -> list[Any]:
    tensor, where = _tensor(value), int(_known(node, axis))
    given = [int(size) for size in _known(node, sizes)]
    rest = tensor.shape[where] - sum(size for size in given if size != -1)
    return _slices(tensor, where, [rest if size == -1 else size for size in given])


def _reversed(node: Any, value: Any, axes: Any) -> list[Any]:
    """`value` turned round by GATHER, which has integer kernels; REVERSE_V2 has none."""
    import tensorflow as tf

    tensor = _tensor(value)
    for axis in _known(node, axes):
        tensor = tf.gather(tensor, list(range(tensor.shape[int(axis)]))[::-1], axis=int(axis))
    return [tensor]


# Operators that are copied in other words.
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
    by_name: Mapping[str, Any], wanted: Iterable[str], done: Mapping[str, Any]
) -> list[Any]:
    """The nodes that `wanted` needs, each after those it takes its inputs from."""
    order: list[Any] = []
    seen = set(done)
    waiting = [(name, False) for name in wanted]
    while waiting:
        name, is_ready = waiting.pop()
        if is_ready:
            order.append(by_name[name])
        elif name not in seen:
            seen.add(name)
            waiting.append((name, True))
            waiting += [(_split(source)[0], False) for source in _data_inputs(by_name[name])]
    return order
