"""Values that are known before a model runs, and what is computed from them: folding and lists.

TensorFlow's tensor lists, in which a loop collects its results, become Python lists of tensors. A
function for one of their operators takes a node of the graph and its inputs: a list for a tensor
list, `KnownValue` for what does not depend on the model's inputs, else a tensor. None in a list
was never written.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgeconv.tf.lazy import tf
from edgeconv.types.errors import InputRefused

# A counter or a shape is small; a folded weight would be stored once more.
_MOST_FOLDED = 1024
_OF_SHAPE = ("Rank", "Shape", "Size")
_MOST_RUNNERS = 256


class KnownValue:
    """A value that does not depend on the inputs, as a numpy array."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self._tensor: Any = None

    def tensor(self) -> Any:
        """The value as a constant of the new graph, created once."""
        if self._tensor is None:
            self._tensor = tf.constant(self.array)
        return self._tensor


def as_tensor(value: Any) -> Any:
    """A value as a tensor of the new graph."""
    return value.tensor() if isinstance(value, KnownValue) else value


def known_array(node: Any, value: Any) -> Any:
    """The numpy array of a value. Raises `InputRefused` if it depends on the inputs."""
    if isinstance(value, KnownValue):
        return value.array
    what = {"If": "the branch", "While": "the number of turns"}.get(
        node.op.removeprefix("Stateless"), "an argument"
    )
    raise InputRefused(
        f"{what} of {node.op} at {path_of(node)} depends on the model's inputs: not unrolled"
    )


def not_unrolled(node: Any, why: str) -> InputRefused:
    """The refusal of a loop for what one of its nodes does."""
    return InputRefused(f"{node.op} at {path_of(node)} {why}: not unrolled")


def path_of(node: Any) -> str:
    """The path of a node in the model, without the calls around it."""
    return repr("/".join(p for p in node.name.split("/") if "PartitionedCall" not in p))


def fold_node(node: Any, inputs: Sequence[Any]) -> list[KnownValue] | None:
    """The outputs of an operator that can be computed now; None for others.

    Of a tensor that is not known, only the shape can be computed.
    """
    if node.op in _OF_SHAPE:
        shape = _shape(inputs[0])
        return None if shape is None else [_of_shape(node, shape)]
    if not inputs or not all(isinstance(value, KnownValue) for value in inputs):
        return None
    if _is_stateful(node.op) or any(value.array.size > _MOST_FOLDED for value in inputs):
        return None
    arrays = [value.array for value in inputs]
    signature = tuple((array.dtype.str, array.shape) for array in arrays)
    run = _runner(node.op, _Attributes(node), signature)
    return [KnownValue(array) for array in run(*arrays)]


def attributes(node: Any) -> dict[str, Any]:
    """The attributes of an operator, without those about the graph that it was traced in."""
    return {key: value for key, value in node.attr.items() if not key.startswith("_")}


def _shape(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, KnownValue):
        return tuple(value.array.shape)
    if isinstance(value, list) or not value.shape.is_fully_defined():
        return None
    return tuple(value.shape.as_list())


def _of_shape(node: Any, shape: tuple[int, ...]) -> KnownValue:
    import math

    values = {"Rank": len(shape), "Shape": shape, "Size": math.prod(shape)}
    attribute = node.attr["out_type"].type if "out_type" in node.attr else 0
    kind = tf.as_dtype(attribute or tf.int32.as_datatype_enum)
    return KnownValue(np.asarray(values[node.op], kind.as_numpy_dtype))


def _is_stateful(operator: str) -> bool:
    """Whether an operator has an effect, or other values each time."""
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(operator)
    return definition is None or bool(definition.is_stateful)


class _Attributes:
    """The attributes of a node, equal where their contents are."""

    def __init__(self, node: Any) -> None:
        self.node = node
        pairs = sorted(attributes(node).items())
        self._text = tuple((key, value.SerializeToString()) for key, value in pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Attributes) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@functools.lru_cache(maxsize=_MOST_RUNNERS)
def _runner(
    operator: str, attrs: _Attributes, signature: tuple[tuple[str, tuple[int, ...]], ...]
) -> Callable[..., list[Any]]:
    """A function that computes an operator; each turn of a loop uses the same one."""
    with tf.Graph().as_default() as graph:
        inputs = [
            tf.compat.v1.placeholder(tf.as_dtype(np.dtype(dtype)), shape)
            for dtype, shape in signature
        ]
        created = graph._create_op_internal(operator, inputs, attrs=attributes(attrs.node))
        run: Callable[..., list[Any]] = tf.compat.v1.Session(graph=graph).make_callable(
            list(created.outputs), feed_list=inputs
        )
    return run


def _from_tensor(node: Any, tensor: Any, _shape: Any) -> list[Any]:
    items = as_tensor(tensor)
    if items.shape.rank is None or items.shape[0] is None:
        raise not_unrolled(node, "takes a tensor list of unknown length")
    return list(tf.unstack(items))


def _item(node: Any, items: list[Any], index: Any, shape: Any) -> Any:
    return _filled(node, items[int(known_array(node, index))], shape)


def _with_item(node: Any, items: list[Any], index: Any, item: Any) -> list[Any]:
    position = int(known_array(node, index))
    return [*items[:position], item, *items[position + 1 :]]


def _resized(node: Any, items: list[Any], count: Any) -> list[Any]:
    length = int(known_array(node, count))
    return [*items[:length], *[None] * (length - len(items))]


def _stack(node: Any, items: list[Any], shape: Any) -> Any:
    if not items:
        return _zeros(node, [0], shape)
    return tf.stack([as_tensor(_filled(node, item, shape)) for item in items])


def _gathered(node: Any, items: list[Any], indices: Any, shape: Any) -> Any:
    return _stack(node, [items[int(index)] for index in known_array(node, indices)], shape)


def _scattered(node: Any, tensor: Any, indices: Any, _shape: Any, count: Any) -> list[Any]:
    return _scattered_into(node, [None] * int(known_array(node, count)), tensor, indices)


def _scattered_into(node: Any, items: list[Any], tensor: Any, indices: Any) -> list[Any]:
    positions = [int(index) for index in known_array(node, indices)]
    items = [*items, *[None] * (max(positions, default=-1) + 1 - len(items))]
    rows = tf.unstack(as_tensor(tensor), num=len(positions))
    for position, row in zip(positions, rows, strict=True):
        items[position] = row
    return items


def _split(node: Any, tensor: Any, _shape: Any, lengths: Any) -> list[Any]:
    sizes = [int(length) for length in known_array(node, lengths)]
    return list(tf.split(as_tensor(tensor), sizes))


def _concatenated(node: Any, items: list[Any], shape: Any, _leading: Any) -> list[Any]:
    parts = [as_tensor(_filled(node, item, shape)) for item in items]
    lengths = [part.shape[0] for part in parts]
    if not parts or None in lengths:
        raise not_unrolled(node, "takes a tensor list")
    return [tf.concat(parts, 0), KnownValue(np.asarray(lengths, np.int64))]


def _filled(node: Any, item: Any, shape: Any) -> Any:
    return _zeros(node, [], shape) if item is None else item


def _zeros(node: Any, outer: list[int], shape: Any) -> Any:
    sizes = [int(size) for size in np.atleast_1d(known_array(node, shape))]
    if -1 in sizes:
        raise not_unrolled(node, "takes a tensor list")
    return tf.zeros([*outer, *sizes], node.attr["element_dtype"].type)


def _length(_node: Any, items: list[Any]) -> KnownValue:
    return KnownValue(np.asarray(len(items), np.int32))


def _in_list(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    return lambda node, *inputs: [function(node, *inputs)]


# By operator, the functions that return the list of its outputs.
LISTS: dict[str, Callable[..., list[Any]]] = {
    "EmptyTensorList": _in_list(lambda _node, *_: []),
    "TensorListConcatV2": _concatenated,
    "TensorListFromTensor": _in_list(_from_tensor),
    "TensorListGather": _in_list(_gathered),
    "TensorListGetItem": _in_list(_item),
    "TensorListLength": _in_list(_length),
    "TensorListPopBack": lambda node, items, shape: [items[:-1], _filled(node, items[-1], shape)],
    "TensorListPushBack": _in_list(lambda _node, items, item: [*items, item]),
    "TensorListReserve": _in_list(
        lambda node, _shape, count: [None] * int(known_array(node, count))
    ),
    "TensorListResize": _in_list(_resized),
    "TensorListScatterIntoExistingList": _in_list(_scattered_into),
    "TensorListScatterV2": _in_list(_scattered),
    "TensorListSetItem": _in_list(_with_item),
    "TensorListSplit": _in_list(_split),
    "TensorListStack": _in_list(_stack),
}
