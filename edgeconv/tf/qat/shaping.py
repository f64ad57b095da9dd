"""Operations on the shape of a tensor as layers of tf_keras: none of them touches the batch.

Every tensor here is a symbolic one of tf_keras, and `shape` begins with its batch dimension.
Raises `NoCounterpart` where no layers do the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.tf.qat.calls import is_tensor
from edgeconv.tf.qat.making import LayerFactory, NoCounterpart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.tf.qat.graph import LayerUse

    Shape = Sequence[int | None]


def reshaped(factory: LayerFactory, tensor: Any, shape: Shape, *after: str) -> Any:
    """The tensor in another shape, sample by sample."""
    before = tuple(tensor.shape)
    if tuple(shape) == before:
        return tensor
    same_batch = bool(shape) and shape[0] in (None, before[0])
    if not same_batch or shape[1:].count(None) > 1 or not _same_size(before[1:], shape[1:]):
        raise NoCounterpart(f"it makes {_text(shape)} of {_text(before)}, across samples")
    target = [-1 if size is None else size for size in shape[1:]]
    return factory.layer("Reshape", tensor, *after, target_shape=target)


def _same_size(before: Shape, after: Shape) -> bool:
    if None in before or None in after:
        return None in before and None in after
    return _product(before) == _product(after)


def _product(sizes: Shape) -> int:
    product = 1
    for size in sizes:
        if size is None:
            raise NoCounterpart("it needs a size that the model leaves open")
        product *= size
    return product


def transposed(factory: LayerFactory, tensor: Any, axes: Any) -> Any:
    """The tensor with its axes in another order."""
    rank = len(tensor.shape)
    order = [int(axis) % rank for axis in axes] if axes is not None else [*range(rank)][::-1]
    if order[0] != 0:
        raise NoCounterpart("it moves the samples' axis")
    return factory.layer("Permute", tensor, dims=tuple(order[1:]))


def concatenated(factory: LayerFactory, tensors: list[Any], axis: int) -> Any:
    """Tensors side by side along an axis."""
    if not all(map(is_tensor, tensors)):
        raise NoCounterpart("it joins a tensor with a constant")
    if axis % len(tensors[0].shape) == 0:
        raise NoCounterpart("it joins along the samples' axis")
    return factory.layer("Concatenate", tensors, axis=axis)


def stacked(factory: LayerFactory, tensors: list[Any], axis: int) -> Any:
    """Tensors side by side along a new axis."""
    place = axis % (len(tensors[0].shape) + 1)
    shape = [*tensors[0].shape]
    shape.insert(place, 1)
    each = [reshaped(factory, one, shape, str(index)) for index, one in enumerate(tensors)]
    return concatenated(factory, each, place)


def split(factory: LayerFactory, tensor: Any, axis: int, shapes: list[Shape]) -> list[Any]:
    """A tensor in parts along an axis, of the shapes given: with that axis, or without it."""
    rank, start, parts = len(tensor.shape), 0, []
    place = axis % rank
    for index, shape in enumerate(shapes):
        size = shape[place] if len(shape) == rank else 1
        if size is None:
            raise NoCounterpart("it needs a size that the model leaves open")
        part = _cropped(factory, tensor, place, start, start + size, str(index))
        parts.append(reshaped(factory, part, shape, str(index), "shape"))
        start += size
    return parts


def slices(use: LayerUse) -> Any:
    """What a SlicingOpLambda of tf_keras takes out, as it is written between brackets."""
    key = use.kwargs.get("slice_spec", use.args[1] if len(use.args) > 1 else None)
    parts = key if isinstance(key, (list, tuple)) else [key]
    return tuple(slice(*one.values()) if isinstance(one, dict) else one for one in parts)


def sliced(factory: LayerFactory, tensor: Any, key: Any, shape: Shape) -> Any:
    """What `key` takes out of a tensor: ranges and single places, of all samples."""
    keys = list(key) if isinstance(key, (list, tuple)) else [key]
    if Ellipsis in keys:
        given = sum(one is not None and one is not Ellipsis for one in keys)
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [slice(None)] * (len(tensor.shape) - given)
    result = tensor
    for axis, one in enumerate([one for one in keys if one is not None]):
        result = _taken(factory, result, axis, one)
    return reshaped(factory, result, shape, "shape")


def _taken(factory: LayerFactory, tensor: Any, axis: int, one: Any) -> Any:
    size = tensor.shape[axis]
    if one == slice(None):
        return tensor
    if axis == 0 or size is None:
        raise NoCounterpart("it takes out a part along an axis whose size is open")
    if isinstance(one, int):
        return _cropped(factory, tensor, axis, one % size, one % size + 1, f"at{axis}")
    if not isinstance(one, slice):
        raise NoCounterpart("it takes out what another tensor says")
    start, stop, step = one.indices(size)
    if step != 1 or stop <= start:
        raise NoCounterpart("it takes out every so many")
    return _cropped(factory, tensor, axis, start, stop, f"at{axis}")


def _cropped(
    factory: LayerFactory, tensor: Any, axis: int, start: int, stop: int, *after: str
) -> Any:
    """The places from `start` up to `stop` along one axis, which is not that of the samples."""
    shape = list(tensor.shape)
    size = shape[axis]
    if axis == 0 or size is None:
        raise NoCounterpart("it takes out a part along an axis whose size is open")
    if (start, stop) == (0, size):
        return tensor
    if len(shape) == 4 and axis in (1, 2):
        edges = [(0, 0), (0, 0)]
        edges[axis - 1] = (start, size - stop)
        return factory.layer("Cropping2D", tensor, *after, cropping=tuple(edges))
    # With all before it in one axis and all after it in another, it is the rows of an image.
    image = (shape[0], size, _product(shape[axis + 1 :]), 1)
    if axis > 1:
        image = (shape[0], _product(shape[1:axis]), size, _product(shape[axis + 1 :]))
    edges = [(start, size - stop), (0, 0)] if axis == 1 else [(0, 0), (start, size - stop)]
    flat = reshaped(factory, tensor, image, *after, "flat")
    cropped = factory.layer("Cropping2D", flat, *after, cropping=tuple(edges))
    return reshaped(
        factory, cropped, [*shape[:axis], stop - start, *shape[axis + 1 :]], *after, "n"
    )


def reduced(
    factory: LayerFactory, kind: str, tensor: Any, axes: Any, keepdims: bool, *after: str
) -> Any:
    """The `kind` ("Average", "Max") of a tensor over axes."""
    suffix = [one for one in after if one]
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
    flat = reshaped(factory, ordered, rows, *suffix, "flat")
    pooled = factory.layer(f"Global{kind}Pooling1D", flat, *suffix)
    left = [1 if axis in over else shape[axis] for axis in range(rank)]
    without = [shape[0], *(shape[axis] for axis in kept)]
    return reshaped(factory, pooled, left if keepdims else without, *suffix, "shape")


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


def padded(factory: LayerFactory, tensor: Any, widths: Any) -> Any:
    """A tensor with zeros around it."""
    import numpy as np

    each = np.broadcast_to(np.asarray(widths), (len(tensor.shape), 2)).tolist()
    around = {axis: tuple(one) for axis, one in enumerate(each) if any(one)}
    if len(each) == 4 and set(around) <= {1, 2}:
        edges = (around.get(1, (0, 0)), around.get(2, (0, 0)))
        return factory.layer("ZeroPadding2D", tensor, padding=edges)
    if len(each) == 3 and set(around) <= {1}:
        return factory.layer("ZeroPadding1D", tensor, padding=around.get(1, (0, 0)))
    raise NoCounterpart("no layer of tf_keras pads those axes")


def _text(shape: Shape) -> str:
    return "×".join("n" if size is None else str(size) for size in shape)
