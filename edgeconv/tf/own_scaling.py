"""Inputs that a model scales itself, and samples of them that were scaled before.

A model with Rescaling(1/255), as those of Keras's applications have it, takes pixels of 0 to 255.
Of pixels of 0 to 1 it sees next to nothing, and without a normalization layer nothing else tells.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from edgeconv.data.suspects import Hits
from edgeconv.tf.normalization import node_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

_KEEPING = frozenset(
    {"Identity", "Cast", "Reshape", "ExpandDims", "Squeeze", "Transpose", "Pad", "MirrorPad"}
    | {"ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"}
)
_SHIFTING = frozenset({"Add", "AddV2", "Sub", "BiasAdd"})
# A model that multiplies by less takes pixels of 0 to 255 or audio of 16 bits.
_SMALL = 1 / 50
# Samples that were scaled to 0 to 1 or to -1 to 1, or normalized, span between these.
_LARGEST_HALF, _LARGEST_PIXEL = 130.0, 1000.0
_DEVIATIONS = 2.0
_MOST, _MOST_NORMALIZED, _LEAST_SPAN = 1.001, 5.0, 0.25


class ScaledTwice(msgspec.Struct, frozen=True, kw_only=True):
    """An input that the model divides by `divisor`, though the samples reach `high` only.

    `steps` would undo the other scaling; `hits` is what labels say of that, None without any.
    """

    name: str
    divisor: float
    high: float
    steps: str
    hits: Hits | None = None

    @property
    def is_refuted(self) -> bool:
        """Whether labels say that the samples are right as they are."""
        return self.hits is not None and self.hits.own >= self.hits.other and self.hits.own > 0

    @property
    def is_confirmed(self) -> bool:
        """Whether labels say that they are not, beyond chance."""
        return self.hits is not None and self.hits.is_more(_DEVIATIONS)


def divisors(graph_def: Any, inputs: Mapping[str, str]) -> dict[str, float]:
    """What an inlined graph divides inputs by before anything else, by the names of these.

    `inputs` are the tensors that are fed. Only those are in it that become far smaller.
    """
    nodes = {node.name: node for node in graph_def.node}
    users: dict[str, list[Any]] = {}
    for node in graph_def.node:
        for source in node.input:
            if not source.startswith("^"):
                users.setdefault(node_name(source), []).append(node)
    by_input = {}
    for name, tensor in inputs.items():
        factors = set(_factors(nodes, users, node_name(tensor)))
        if factors and max(factors) < _SMALL:
            by_input[name] = 1 / max(factors)
    return by_input


def _factors(
    nodes: Mapping[str, Any], users: Mapping[str, list[Any]], start: str
) -> Iterator[float]:
    """What each path from a node multiplies it by; 1 for a path that does something else first."""
    waiting, visited = [start], {start}
    while waiting:
        name = waiting.pop()
        for user in users.get(name, ()):
            others = [each for each in user.input[:2] if node_name(each) != name]
            constant = _constant(nodes, others[0]) if others else None
            factor = None if constant is None else _one_number(constant)
            if user.op == "Mul" and factor:
                yield factor
            elif user.op == "RealDiv" and factor and node_name(user.input[0]) == name:
                yield 1 / factor
            elif user.op in _KEEPING or (user.op in _SHIFTING and constant is not None):
                if user.name not in visited:
                    visited.add(user.name)
                    waiting.append(user.name)
            elif user.op not in ("Shape", "Rank", "Size"):
                yield 1.0


def _constant(nodes: Mapping[str, Any], tensor: str) -> NDArray[np.float64] | None:
    """The numbers of a constant; None for another tensor."""
    from tensorflow.python.framework import tensor_util

    node = nodes.get(node_name(tensor))
    while node is not None and node.op in ("Identity", "Cast"):
        node = nodes.get(node_name(node.input[0]))
    if node is None or node.op != "Const":
        return None
    values = np.asarray(tensor_util.MakeNdarray(node.attr["value"].tensor))
    return values.astype(np.float64) if values.dtype.kind in "fiu" and values.size else None


def _one_number(constant: NDArray[np.float64]) -> float | None:
    """The magnitude of a constant of about one number; columns of a table have others each."""
    magnitudes = np.abs(constant)
    low, high = float(magnitudes.min()), float(magnitudes.max())
    return high if 0 < high <= 2 * low and math.isfinite(high) else None


def scaled_before(name: str, array: NDArray[Any], divisor: float) -> ScaledTwice | None:
    """What is wrong with samples, (samples, ...), of an input that the model divides itself.

    None for those that may be right: pixels of a dark picture are whole numbers.
    """
    if array.dtype.kind != "f" or not array.size:
        return None
    low, high = float(array.min()), float(array.max())
    is_signed = low < -_LEAST_SPAN
    most = _MOST_NORMALIZED if is_signed else _MOST
    if max(-low, high) > most or high - low < _LEAST_SPAN or bool((array == np.rint(array)).all()):
        return None
    if not is_signed:
        # Rescaling(1/127.5, offset=-1) is of pixels, too.
        steps = f"scale={_rounded(divisor if divisor > _LARGEST_HALF else 2 * divisor)}"
    elif divisor > _LARGEST_PIXEL:
        steps = f"scale={_rounded(divisor)}"
    else:
        half = _rounded(divisor / 2 if divisor > _LARGEST_HALF else divisor)
        steps = f"scale={half}&mean=-{half}"
    return ScaledTwice(name=name, divisor=divisor, high=high, steps=steps)


def _rounded(number: float) -> str:
    return f"{round(number, 2):g}"


def undone(array: NDArray[Any], twice: ScaledTwice) -> NDArray[Any]:
    """Samples, (samples, ...), after the steps that undo their scaling."""
    numbers = dict(step.split("=") for step in twice.steps.split("&"))
    changed = array * float(numbers["scale"]) - float(numbers.get("mean", 0))
    return changed.astype(array.dtype)
