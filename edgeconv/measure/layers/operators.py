"""The operators of a graph that the events of a profiler belong to."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.runtimes.c_api import Event

# What XNNPACK calls its operators, by those of the graph that they compute, the usual one first.
_XNNPACK = {
    "AVERAGE_POOL_2D": ("average pooling",),
    "BATCH_MATMUL": ("batch matrix", "fully connected"),
    "CAST": ("convert",),
    "CONCATENATION": ("concatenate", "copy"),
    "CONV_2D": ("convolution", "fully connected", "gemm"),
    "DEPTHWISE_CONV_2D": ("dwconv", "convolution"),
    "DEPTH_TO_SPACE": ("depth to space", "transpose"),
    "DEQUANTIZE": ("convert",),
    "EXPAND_DIMS": ("reshape", "copy"),
    "FULLY_CONNECTED": ("fully connected",),
    "HARD_SWISH": ("hardswish", "hard swish", "unary"),
    "LOGISTIC": ("sigmoid", "unary"),
    "MAX_POOL_2D": ("max pooling",),
    "MEAN": ("mean", "average", "reduce"),
    "MUL": ("multiply",),
    "PAD": ("pad",),
    "QUANTIZE": ("convert",),
    "RELU": ("clamp", "unary"),
    "RELU6": ("clamp", "unary"),
    "RESHAPE": ("reshape", "copy"),
    "RESIZE_BILINEAR": ("resize bilinear",),
    "SPLIT": ("split", "slice"),
    "SQUARED_DIFFERENCE": ("squared difference",),
    "SQUEEZE": ("reshape", "copy"),
    "STRIDED_SLICE": ("slice",),
    "SUB": ("subtract",),
    "SUM": ("sum", "reduce"),
    "TRANSPOSE_CONV": ("deconvolution",),
}
_SURE = 4


class Operator(NamedTuple):
    """An operator of a graph: its number, its name, its layer's, and that of its first output."""

    number: int
    name: str
    layer: str
    tensor: str = ""


def operators_of(events: Sequence[Event], graph: Sequence[Operator]) -> tuple[int | None, ...]:
    """For each event the place in `graph` of the operator that it is of; None where in doubt.

    An operator that the runtime's own kernels ran says its number. Those inside a delegate have
    numbers and names of the delegate's own, which leaves some out, splits others and adds
    copies; but both are in the order of execution, so that the pairing of most and likeliest
    names in that order is indices (S. Needleman and C. Wunsch, Journal of Molecular Biology 48
    (1970) 443-453, with gaps for nothing).
    """
    best = [[0] * (len(graph) + 1) for _ in range(len(events) + 1)]
    for i, event in reversed(list(enumerate(events))):
        for j, operator in reversed(list(enumerate(graph))):
            worth = _similarity(event, operator)
            paired = best[i + 1][j + 1] + worth if worth else 0
            best[i][j] = max(best[i + 1][j], best[i][j + 1], paired)
    return tuple(_traced(best, events, graph))


def _traced(
    best: list[list[int]], events: Sequence[Event], graph: Sequence[Operator]
) -> list[int | None]:
    indices: list[int | None] = [None] * len(events)
    i = j = 0
    while i < len(events) and j < len(graph):
        worth = _similarity(events[i], graph[j])
        if worth and best[i][j] == best[i + 1][j + 1] + worth:
            indices[i] = j
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return indices


def _similarity(event: Event, operator: Operator) -> int:
    """0 where the event cannot be of the operator, else more the surer it is."""
    if not event.delegated:
        return 100 * _SURE if event.number == operator.number else 0
    return _alike(event.name.lower(), operator.name)


@cache
def _alike(event_name: str, name: str) -> int:
    usual = name.lower().replace("_", " ")
    for rank, words in enumerate(_XNNPACK.get(name, (usual,))):
        if words in event_name:
            return _SURE - rank
    return 0
