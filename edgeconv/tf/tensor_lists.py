"""TensorFlow's tensor lists, in which a loop collects its results, as Python lists of tensors.

Every function takes a node of the graph and its inputs: a list for a tensor list, `KnownValue` for
what does not depend on the model's inputs, else a tensor. None in a list was never written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.tf.known import KnownValue, as_tensor, known_array, not_unrolled
from edgeconv.tf.lazy import tf

if TYPE_CHECKING:
    from collections.abc import Callable


def _reserved(node: Any, _shape: Any, count: Any) -> list[Any]:
    return [None] * int(known_array(node, count))


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


def _popped(node: Any, items: list[Any], shape: Any) -> list[Any]:
    return [items[:-1], _filled(node, items[-1], shape)]


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
    "TensorListPopBack": _popped,
    "TensorListPushBack": _in_list(lambda _node, items, item: [*items, item]),
    "TensorListReserve": _in_list(_reserved),
    "TensorListResize": _in_list(_resized),
    "TensorListScatterIntoExistingList": _in_list(_scattered_into),
    "TensorListScatterV2": _in_list(_scattered),
    "TensorListSetItem": _in_list(_with_item),
    "TensorListSplit": _in_list(_split),
    "TensorListStack": _in_list(_stack),
}
