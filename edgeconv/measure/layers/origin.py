"""Where an error begins: followed back from the outputs of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.tflite.flatbuffer import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ai_edge_litert.schema_py_generated import SubGraphT

    from edgeconv.types import LayerError


def origin(errors: Sequence[LayerError], graph: SubGraphT, least_db: float) -> LayerError | None:
    """The first layer that is less than `least_db` close although all before it are closer.

    It is one that the error of an output comes from, where an output has one: a branch that is
    right is not in between. None where all layers are close.
    """
    off = {error.tensor for error in errors if error.snr_db < least_db}
    before, ends = _flow(graph, {error.tensor for error in errors})
    reached = _reached(ends & off, before, off)
    candidates = [error for error in errors if error.tensor in (reached or off)]
    return next((each for each in candidates if not before[each.tensor] & off), None)


def _flow(
    graph: SubGraphT, measured: Iterable[str]
) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
    """The measured layers that each one reads from, and those that the outputs do, by tensor.

    What is between two of them is passed over.
    """
    names = frozenset(measured)
    sources: dict[int, frozenset[str]] = {}
    before: dict[str, frozenset[str]] = {}
    for operator in graph.operators:
        read = _joined(sources, operator.inputs)
        for index in operator.outputs:
            name = text(graph.tensors[index].name)
            if name in names:
                before[name] = before.get(name, frozenset()) | (read - {name})
            sources[index] = frozenset({name}) if name in names else read
    return before, _joined(sources, graph.outputs)


def _joined(sources: Mapping[int, frozenset[str]], tensors: Iterable[int]) -> frozenset[str]:
    return frozenset().union(*(sources.get(index, frozenset()) for index in tensors))


def _reached(
    ends: Iterable[str], before: Mapping[str, frozenset[str]], off: frozenset[str] | set[str]
) -> set[str]:
    """The layers that are off and lead to `ends` through such layers alone."""
    reached: set[str] = set()
    waiting = list(ends)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += before[name] & off
    return reached
