"""Conversions to float that nothing needs the values of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.tflite.flatbuffer import operator_name, parse, serialize
from edgeconv.tflite.operators import SHAPE_ONLY

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, SubGraphT


def without_shape_bridges(data: bytes) -> bytes:
    """The same model, every SHAPE and RANK reading the integer tensor behind a DEQUANTIZE.

    A DEQUANTIZE that only led there is taken out; `data` itself comes back where there is
    none. ai-edge-quantizer knows no SHAPE, which every Keras `Flatten` of a dynamic batch
    has, and computes the whole tensor in float for the sake of its shape. Raises
    `InputRefused` for bytes that are no model.
    """
    model = parse(data, where="the model")
    changed = [_bypass(model, graph) for graph in model.subgraphs]
    return serialize(model) if any(changed) else data


def _bypass(model: ModelT, graph: SubGraphT) -> bool:
    bridges = {
        operator.outputs[0]: operator.inputs[0]
        for operator in graph.operators
        if operator_name(model, operator) == "DEQUANTIZE"
    }
    bypassed = set()
    for operator in graph.operators:
        if operator_name(model, operator) in SHAPE_ONLY and operator.inputs[0] in bridges:
            bypassed.add(operator.inputs[0])
            operator.inputs = [bridges[operator.inputs[0]]]
    used = {i for operator in graph.operators for i in operator.inputs} | set(graph.outputs)
    needless = bypassed - used
    graph.operators = [o for o in graph.operators if not needless.intersection(o.outputs)]
    return bool(bypassed)
