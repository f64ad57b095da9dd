"""The operators of a .tflite, and which of them compute on floats."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from edgeconv.tflite.flatbuffer import (
    entry_subgraphs,
    is_constant,
    is_custom,
    operator_name,
    operators_of,
    type_names,
)
from edgeconv.types import OperatorCount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

_FLOAT_TYPES = frozenset({"float32", "float16", "bfloat16", "float64"})
_BRIDGES = frozenset({"QUANTIZE", "DEQUANTIZE"})
# They read a tensor's dimensions, never its values.
SHAPE_ONLY = frozenset({"SHAPE", "RANK"})
# They convert a stored constant to another form.
_UNPACKERS = frozenset({"DEQUANTIZE", "DENSIFY"})


def count_operators(model: ModelT) -> tuple[OperatorCount, ...]:
    """How often each operator occurs at each version, over all subgraphs, sorted."""
    counts = Counter(
        (operator_name(model, operator), int(model.operatorCodes[operator.opcodeIndex].version))
        for _, operator in operators_of(model)
    )
    return tuple(
        OperatorCount(name=name, version=version, count=count)
        for (name, version), count in sorted(counts.items())
    )


def custom_operators(model: ModelT) -> tuple[str, ...]:
    """The custom codes in use, sorted."""
    used = {operator_name(model, o) for _, o in operators_of(model) if is_custom(model, o)}
    return tuple(sorted(used))


def float_operators(model: ModelT) -> tuple[str, ...]:
    """The names of the operators that compute on float activations, sorted.

    QUANTIZE and DEQUANTIZE count where they connect two such operators, and not at the model's
    inputs, outputs or constants.
    """
    names: set[str] = set()
    entries = entry_subgraphs(model)
    for index, graph in enumerate(model.subgraphs):
        names.update(_float_operators_of(model, graph, is_entry=index in entries))
    return tuple(sorted(names))


def _float_operators_of(model: ModelT, graph: SubGraphT, *, is_entry: bool) -> Iterator[str]:
    floats = _float_activations(model, graph)
    explained = set(graph.inputs) | set(graph.outputs) if is_entry else set()
    bridges = []
    for operator in graph.operators:
        name = operator_name(model, operator)
        touched = floats.intersection((*operator.inputs, *operator.outputs))
        if not touched or name in SHAPE_ONLY:
            continue
        if name in _BRIDGES:
            bridges.append((name, touched))
        else:
            explained |= touched
            yield name
    yield from (name for name, touched in bridges if not touched & explained)


def _float_activations(model: ModelT, graph: SubGraphT) -> set[int]:
    floats = {i for i, t in enumerate(graph.tensors) if type_names()[t.type] in _FLOAT_TYPES}
    constant = {i for i, t in enumerate(graph.tensors) if is_constant(model, t)}
    for operator in graph.operators:
        if operator_name(model, operator) in _UNPACKERS and _all_in(operator, constant):
            constant.update(operator.outputs)
    return floats - constant


def _all_in(operator: OperatorT, tensors: set[int]) -> bool:
    return all(index in tensors for index in operator.inputs if index != -1)
