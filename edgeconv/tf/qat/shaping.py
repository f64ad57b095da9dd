"""Operations on the shape of a tensor as layers of tf_keras, none of which touches the batch.

Tensors are symbolic ones of tf_keras; a `shape` begins with the batch dimension. Raises
`NoCounterpart` where no layers do the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.tf.qat.factory import LayerFactory, NoCounterpart, is_tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.tf.qat.graph import LayerUse

    Shape = Sequence[int | None]


def reshape_samples(factory: LayerFactory, tensor: Any, shape: Shape, *after: str) -> Any:
    """The tensor in another shape, sample by sample."""
    before = tuple(tensor.shape)
    if tuple(shape) == before:
        return tensor
    same_batch = bool(shape) and shape[0] in (None, before[0])
    if not same_batch or shape[1:].count(None) > 1 or not _same_size(before[1:], shape[1:]):
        texts = ["×".join(str(size or "n") for size in sizes) for sizes in (before, shape)]
        raise NoCounterpart(f"it reshapes {texts[0]} to {texts[1]}, across samples")
    target = [-1 if size is None else size for size in shape[1:]]
    return factory.layer("Reshape", tensor, *after, target_shape=target)


def _same_size(before: Shape, after: Shape) -> bool:
    if None in before or None in after:
        return None in before and None in after
    return _product(before) == _product(after)


def _product(sizes: Shape) -> int:
    return math.prod(map(_known, sizes))


def _known(size: int | None) -> int:
    if size is None:
        raise NoCounterpart("it needs a size that the model leaves open")
    return size


def transpose_axes(factory: LayerFactory, tensor: Any, axes: Any) -> Any:
    """The tensor with its axes in another order."""
    rank = len(tensor.shape)
    order = [int(axis) % rank for axis in axes] if axes is not None else [*range(rank)][::-1]
    if order[0] != 0:
        raise NoCounterpart("it moves the samples' axis")
    return factory.layer("Permute", tensor, dims=tuple(order[1:]))


def concatenate(factory: LayerFactory, tensors: list[Any], axis: int) -> Any:
    """Tensors joined along an axis."""
    if not all(map(is_tensor, tensors)):
        raise NoCounterpart("it joins a tensor with a constant")
    if axis % len(tensors[0].shape) == 0:
        raise NoCounterpart("it joins along the samples' axis")
    return factory.layer("Concatenate", tensors, axis=axis)


def stack(factory: LayerFactory, tensors: list[Any], axis: int) -> Any:
    """Tensors joined along a new axis."""
    axis %= len(tensors[0].shape) + 1
    shape = [*tensors[0].shape]
    shape.insert(axis, 1)
    parts = [
        reshape_samples(factory, part, shape, str(index)) for index, part in enumerate(tensors)
    ]
    return concatenate(factory, parts, axis)


def split(factory: LayerFactory, tensor: Any, axis: int, shapes: list[Shape]) -> list[Any]:
    """A tensor in parts of `shapes` along an axis: with that axis, or without it."""
    rank, start, parts = len(tensor.shape), 0, []
    axis %= rank
    for index, shape in enumerate(shapes):
        size = _known(shape[axis]) if len(shape) == rank else 1
        part = _cropped(factory, tensor, axis, start, start + size, str(index))
        parts.append(reshape_samples(factory, part, shape, str(index), "shape"))
        start += size
    return parts


def slices(use: LayerUse) -> Any:
    """The index of a SlicingOpLambda of tf_keras, as written between brackets."""
    key = use.kwargs.get("slice_spec", use.args[1] if len(use.args) > 1 else None)
    parts = key if isinstance(key, (list, tuple)) else [key]
    return tuple(slice(*part.values()) if isinstance(part, dict) else part for part in parts)


def slice_tensor(factory: LayerFactory, tensor: Any, key: Any, shape: Shape) -> Any:
    """`tensor[key]`, with ranges and single positions of all samples."""
    keys = list(key) if isinstance(key, (list, tuple)) else [key]
    if Ellipsis in keys:
        indexed = sum(part is not None and part is not Ellipsis for part in keys)
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [slice(None)] * (len(tensor.shape) - indexed)
    result = tensor
    for axis, part in enumerate([part for part in keys if part is not None]):
        if part == slice(None):
            continue
        start, stop = _range_of(part, axis, result.shape[axis])
        result = _cropped(factory, result, axis, start, stop, f"at{axis}")
    return reshape_samples(factory, result, shape, "shape")


def _range_of(part: Any, axis: int, size: int | None) -> tuple[int, int]:
    if axis == 0 or size is None:
        raise NoCounterpart("it slices an axis whose size is open")
    if isinstance(part, int):
        return part % size, part % size + 1
    if not isinstance(part, slice):
        raise NoCounterpart("it slices at positions from another tensor")
    start, stop, step = part.indices(size)
    if step != 1 or stop <= start:
        raise NoCounterpart("it slices with a step")
    return start, stop


def _cropped(
    factory: LayerFactory, tensor: Any, axis: int, start: int, stop: int, *after: str
) -> Any:
    """The positions from `start` up to `stop` along one axis, which is not the samples' axis."""
    shape = list(tensor.shape)
    size = shape[axis]
    if axis == 0 or size is None:
        raise NoCounterpart("it slices an axis whose size is open")
    if (start, stop) == (0, size):
        return tensor
    if len(shape) == 4 and axis in (1, 2):
        edges = [(0, 0), (0, 0)]
        edges[axis - 1] = (start, size - stop)
        return factory.layer("Cropping2D", tensor, *after, cropping=tuple(edges))
    # With the axes before it merged, and those after it, the axis is the rows of an image.
    image = (shape[0], size, _product(shape[axis + 1 :]), 1)
    if axis > 1:
        image = (shape[0], _product(shape[1:axis]), size, _product(shape[axis + 1 :]))
    edges = [(start, size - stop), (0, 0)] if axis == 1 else [(0, 0), (start, size - stop)]
    flat = reshape_samples(factory, tensor, image, *after, "flat")
    cropped = factory.layer("Cropping2D", flat, *after, cropping=tuple(edges))
    return reshape_samples(
        factory, cropped, [*shape[:axis], stop - start, *shape[axis + 1 :]], *after, "n"
    )


def reduce_axes(
    factory: LayerFactory, kind: str, tensor: Any, axes: Any, keepdims: bool, *after: str
) -> Any:
    """The `kind` ("Average", "Max") of a tensor over axes."""
    suffix = [part for part in after if part]
    over, rank = _axes(tensor, axes), len(tensor.shape)
    if over == [*range(1, rank - 1)] and rank in (3, 4, 5):
        layer = f"Global{kind}Pooling{rank - 2}D"
        return factory.layer(layer, tensor, *suffix, keepdims=keepdims)
    shape = list(tensor.shape)
    kept = [axis for axis in range(1, rank) if axis not in over]
    ordered = tensor
    if over + kept != [*range(1, rank)]:
        ordered = factory.layer("Permute", tensor, *suffix, "order", dims=(*over, *kept))
    rows = (shape[0], _product([shape[a] for a in over]), _product([shape[a] for a in kept]))
    flat = reshape_samples(factory, ordered, rows, *suffix, "flat")
    pooled = factory.layer(f"Global{kind}Pooling1D", flat, *suffix)
    left = [1 if axis in over else shape[axis] for axis in range(rank)]
    without = [shape[0], *(shape[axis] for axis in kept)]
    return reshape_samples(factory, pooled, left if keepdims else without, *suffix, "shape")


def count_over(tensor: Any, axes: Any) -> int:
    """How many values of a sample are in a sum over axes."""
    return _product([tensor.shape[axis] for axis in _axes(tensor, axes)])


def _axes(tensor: Any, axes: Any) -> list[int]:
    rank = len(tensor.shape)
    if axes is None:
        raise NoCounterpart("it reduces across samples")
    several = axes if isinstance(axes, (list, tuple)) else [axes]
    over = sorted(int(axis) % rank for axis in several)
    if 0 in over:
        raise NoCounterpart("it reduces across samples")
    return over


def pad_with_zeros(factory: LayerFactory, tensor: Any, widths: Any) -> Any:
    """A tensor with zeros around it."""
    each = np.broadcast_to(np.asarray(widths), (len(tensor.shape), 2)).tolist()
    around = {axis: tuple(pair) for axis, pair in enumerate(each) if any(pair)}
    if len(each) == 4 and set(around) <= {1, 2}:
        edges = (around.get(1, (0, 0)), around.get(2, (0, 0)))
        return factory.layer("ZeroPadding2D", tensor, padding=edges)
    if len(each) == 3 and set(around) <= {1}:
        return factory.layer("ZeroPadding1D", tensor, padding=around.get(1, (0, 0)))
    raise NoCounterpart("no layer of tf_keras pads those axes")
