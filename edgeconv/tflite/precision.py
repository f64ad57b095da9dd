"""The recipe that a .tflite looks as if made by, whoever made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.tflite.flatbuffer import is_constant, operator_name, parse, type_names
from edgeconv.tflite.weights import is_quantized_tensor, weigh

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ai_edge_litert.schema_py_generated import ModelT

    from edgeconv.types import RecipeName

_FOUR_BITS = frozenset({"int4", "uint4", "int2"})


def likely_recipe(data: bytes, *, where: str) -> RecipeName:
    """The recipe that gives weights and activations of the types in this file.

    uint8 counts as int8. Raises `InputRefused`, which names the file as `where`, for bytes that
    are no model.
    """
    model = parse(data, where=where)
    activations = set(_quantized_types(model, constants=False))
    weights = set(_quantized_types(model, constants=True))
    if "int16" in activations:
        return "int16x8"
    if activations & {"int8", "uint8"}:
        return "int8x4" if weights & _FOUR_BITS else "int8"
    if not weights - {"int32", "int64"}:
        return "float16" if weigh(model, where=where).float16_share else "float32"
    if not _are_unpacked(model):
        return "dynamic"
    return "weight-only-int4" if weights & _FOUR_BITS else "weight-only-int8"


def _quantized_types(model: ModelT, *, constants: bool) -> Iterator[str]:
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if is_quantized_tensor(tensor) and is_constant(model, tensor) == constants:
                yield type_names()[tensor.type]


def _are_unpacked(model: ModelT) -> bool:
    """Whether the weights are made floats before they are used."""
    return any(
        operator_name(model, operator) == "DEQUANTIZE"
        and any(
            is_constant(model, graph.tensors[i]) and is_quantized_tensor(graph.tensors[i])
            for i in operator.inputs
            if i != -1
        )
        for graph in model.subgraphs
        for operator in graph.operators
    )
