"""A float graph whose inputs' columns have one size, equal to one where they have not.

The first layer of a network that took its table as it was, or whose normalization was folded into
it, has large weights for small columns. No scale of the input serves all of them. So each column is
centered and scaled by operators that stay in float, and the layer's weights take that back.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeconv.model.tflite.edit import OwnConstants, code_of, store_values
from edgeconv.model.tflite.flatbuffer import operator_name, parse, serialize, text
from edgeconv.model.tflite.operators import SHAPE_ONLY, shape_of, type_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# A column that has this part of the input's range, or more, has steps enough.
_WIDE = 1 / 8
_WHERE = "the model"


def dense_inputs(floating: bytes) -> tuple[tuple[str, str], ...]:
    """The inputs that only fully connected layers read, each as its signature and name.

    Raises `InputRefused` for bytes that are not a model.
    """
    return tuple(each.key for each in _inputs(parse(floating, where=_WHERE)))


def even_inputs(
    floating: bytes, ranges: Mapping[tuple[str, str], tuple[Floats, Floats]]
) -> bytes | None:
    """The same model with operators that even out the columns of its inputs; None for nothing.

    `ranges` has the least and the greatest value of each column, (columns,), of some of its
    `dense_inputs`. Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(floating, where=_WHERE)
    changed = False
    for each in _inputs(model):
        if each.key in ranges and _are_uneven(*ranges[each.key]):
            _even(model, each, ranges[each.key])
            changed = True
    return serialize(model) if changed else None


class _Input(NamedTuple):
    key: tuple[str, str]
    constants: OwnConstants
    graph: SubGraphT
    position: int
    readers: list[OperatorT]


def _inputs(model: ModelT) -> Iterator[_Input]:
    constants = OwnConstants(model)
    for signature in model.signatureDefs or ():
        graph = model.subgraphs[signature.subgraphIndex]
        for each in signature.inputs:
            if readers := _readers(model, constants, graph, each.tensorIndex):
                key = text(signature.signatureKey), text(each.name)
                yield _Input(key, constants, graph, each.tensorIndex, readers)


def _readers(
    model: ModelT, constants: OwnConstants, graph: SubGraphT, index: int
) -> list[OperatorT]:
    """The layers that read an input; [] where something else does too, or they cannot change."""
    if type_of(graph.tensors[index]) != "float32" or index in graph.outputs:
        return []
    columns = shape_of(graph.tensors[index])[-1:]
    readers = []
    for operator in graph.operators:
        name = operator_name(model, operator)
        if index not in operator.inputs or name in SHAPE_ONLY:
            continue
        weights, *bias = operator.inputs[1:3] if len(operator.inputs) > 1 else [index]
        is_layer = name == "FULLY_CONNECTED" and operator.inputs[0] == index != weights
        if not is_layer or not constants.is_whole(graph, weights):
            return []
        if shape_of(graph.tensors[weights])[1:] != columns:
            return []
        if any(each != -1 and not constants.is_whole(graph, each) for each in bias):
            return []
        readers.append(operator)
    return readers


def _are_uneven(low: Floats, high: Floats) -> bool:
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return False
    widths = (high - low)[high > low]
    whole = max(0.0, float(high.max())) - min(0.0, float(low.min()))
    return widths.size > 1 and float(widths.min()) < _WIDE * whole


def _even(model: ModelT, given: _Input, limits: tuple[Floats, Floats]) -> None:
    low, high = limits
    _, constants, graph, index, readers = given
    center, half = (low + high) / 2, np.where(high > low, (high - low) / 2, 1.0)
    centered = _append(model, graph, "SUB", index, "centered", center)
    evened = _append(model, graph, "MUL", centered.outputs[0], "evened", 1 / half)
    graph.operators[:0] = [centered, evened]
    for reader in readers:
        weights = constants.read(graph, reader.inputs[1]).astype(np.float64)
        bias = weights @ center
        if len(reader.inputs) > 2 and reader.inputs[2] != -1:
            bias = bias + constants.read(graph, reader.inputs[2])
        constants.write(graph, reader, 1, (weights * half).astype(np.float32))
        constants.write_bias(graph, reader, bias.astype(np.float32))
        reader.inputs = [evened.outputs[0], *reader.inputs[1:]]


def _append(
    model: ModelT, graph: SubGraphT, kind: str, source: int, name: str, values: Floats
) -> OperatorT:
    """An operator of a tensor and a constant for each column; it is not yet in the graph."""
    from ai_edge_litert import schema_py_generated as schema

    result = copy.deepcopy(graph.tensors[source])
    result.name = f"{text(result.name)}/{name}"
    constant = copy.deepcopy(result)
    constant.name = f"{text(result.name)}/by"
    constant.shape, constant.shapeSignature = [values.size], None
    constant.buffer = 0
    store_values(model, constant, values.astype(np.float32))
    graph.tensors += [result, constant]
    code = code_of(model, getattr(schema.BuiltinOperator, kind))
    options = {"SUB": schema.SubOptionsT, "MUL": schema.MulOptionsT}[kind]()
    number = len(graph.tensors)
    return schema.OperatorT(
        opcodeIndex=code,
        inputs=[source, number - 1],
        outputs=[number - 2],
        builtinOptionsType=getattr(schema.BuiltinOptions, f"{kind.capitalize()}Options"),
        builtinOptions=options,
    )
