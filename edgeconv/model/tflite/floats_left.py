"""What computes in float in a file of integers: which operators, how often, where and why."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.model.tflite.flatbuffer import operator_name, read, text
from edgeconv.model.tflite.kernels import has_kernel
from edgeconv.model.tflite.layer_names import short_names
from edgeconv.model.tflite.layers import macs
from edgeconv.model.tflite.operators import BRIDGES, RULED, grouped_floats, shape_of
from edgeconv.types import FloatOperators

if TYPE_CHECKING:
    from collections.abc import Collection

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

    from edgeconv.model.tflite.kernels import IntegerType
    from edgeconv.model.tflite.operators import FloatGroup
    from edgeconv.types.conversion import FloatReason

_NAMED = 3


class FloatsLeft(NamedTuple):
    """What computes in float, and the share of the work that is done in integers, 0 to 1."""

    operators: tuple[FloatOperators, ...] = ()
    integer_share: float = 1.0


def floats_left(data: bytes, ruled: Collection[str], integers: IntegerType) -> FloatsLeft:
    """The operators that compute on float activations, those without a kernel first.

    `ruled` are tensors of layers that rules keep in float. The work of an operator is its
    multiplications, or its output values where it has none; of a loop that of one step. Raises
    `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    short = short_names(model)
    found: dict[tuple[FloatReason, str], list[str]] = {}
    in_float = 0
    for group in grouped_floats(model, ruled):
        graph = model.subgraphs[group.graph]
        for place in group.places:
            operator = graph.operators[place]
            name = operator_name(model, operator)
            if name in BRIDGES:
                continue
            in_float += _work(model, graph, operator)
            names = [text(graph.tensors[index].name) for index in operator.outputs if index != -1]
            reason = _reason(name, group, integers, is_ruled=bool({*names} & {*ruled}))
            first = next(iter(names), name)
            found.setdefault((reason, name), []).append(short.get(first, first))
    total = sum(
        _work(model, graph, operator)
        for graph in model.subgraphs
        for operator in graph.operators
        if operator_name(model, operator) not in BRIDGES
    )
    operators = tuple(
        FloatOperators(
            name=name,
            count=len(layers),
            layers=tuple(dict.fromkeys(layers))[:_NAMED],
            reason=reason,
        )
        for (reason, name), layers in sorted(
            found.items(), key=lambda each: (_ORDER.index(each[0][0]), each[0][1])
        )
    )
    return FloatsLeft(operators, 1 - in_float / total if total else 1.0)


_ORDER: tuple[FloatReason, ...] = ("no kernel", "rule", "engine", "neighbor")


def _reason(name: str, group: FloatGroup, integers: IntegerType, *, is_ruled: bool) -> FloatReason:
    if is_ruled:
        return "rule"
    if not has_kernel(name, integers):
        return "no kernel"
    others = (each for each in group.names - BRIDGES if not has_kernel(each, integers))
    return "neighbor" if RULED in group.names or any(others) else "engine"


def _work(model: ModelT, graph: SubGraphT, operator: OperatorT) -> int:
    values = sum(math.prod(shape_of(graph.tensors[i])) for i in operator.outputs if i != -1)
    return macs(model, graph, operator) or max(0, values)
