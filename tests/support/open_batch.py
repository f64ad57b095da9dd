"""A model whose graph computes the shape of its batch, as converters write it for a Flatten."""

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import BIASES, WEIGHTS, Graph, packed


def open_batch_model(*, quantized: bool = False, softmax: bool = False) -> bytes:
    """y = W x + b on [-1, 2, 2], flattened; in int8 between float ends where `quantized`.

    A `softmax` follows in float.
    """
    graph = Graph()
    facts = {"scale": 0.5, "zero_point": -3} if quantized else {}
    kind = "int8" if quantized else "float32"
    x = graph.tensor("x", (1, 2, 2), "float32", dynamic=True)
    first = x
    if quantized:
        first = graph.tensor("levels", (1, 2, 2), kind, dynamic=True, **facts)
        graph.operator("QUANTIZE", [x], [first])
    rows = _rows(graph, first)
    flat = graph.tensor("flat", (1, 4), kind, dynamic=True, **facts)
    graph.operator("RESHAPE", [first, rows], [flat])
    y = graph.tensor("y", (1, 3), "float32", dynamic=True)
    last = graph.tensor("scores", (1, 3), kind, dynamic=True, scale=64.0) if quantized else y
    graph.operator("FULLY_CONNECTED", [flat, *_weights(graph, quantized)], [last])
    if quantized:
        graph.operators[-1].opcodeIndex = len(graph.codes) - 1
        graph.codes[-1].version = 4
        graph.operator("DEQUANTIZE", [last], [y])
    if softmax:
        scores, y = y, graph.tensor("probabilities", (1, 3), "float32", dynamic=True)
        options = schema.SoftmaxOptionsT(beta=1.0)
        graph.operator("SOFTMAX", [scores], [y], options=options)
    return packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"])))


def _weights(graph: Graph, quantized: bool) -> list[int]:
    if quantized:
        return [
            graph.tensor("w", (3, 4), "int8", data=WEIGHTS, scale=1.0),
            graph.tensor("b", (3,), "int32", data=BIASES * 2, scale=0.5),
        ]
    return [
        graph.tensor("w", (3, 4), "float32", data=WEIGHTS.astype(np.float32)),
        graph.tensor("b", (3,), "float32", data=BIASES.astype(np.float32)),
    ]


def _rows(graph: Graph, x: int) -> int:
    """[the batch of x, 4], computed when it runs."""

    def constant(name: str, *values: int) -> int:
        return graph.tensor(name, (len(values),), "int32", data=np.array(values, np.int32))

    shape, count = graph.tensor("shape", (3,), "int32"), graph.tensor("count", (), "int32")
    rows = graph.tensor("rows", (2,), "int32")
    four = graph.tensor("four", (), "int32", data=np.array(4, np.int32))
    places = [constant("from", 0), constant("to", 1), constant("by", 1)]
    for name, inputs, output, options in (
        ("SHAPE", [x], shape, schema.ShapeOptionsT(outType=schema.TensorType.INT32)),
        ("STRIDED_SLICE", [shape, *places], count, schema.StridedSliceOptionsT(shrinkAxisMask=1)),
        ("PACK", [count, four], rows, schema.PackOptionsT(valuesCount=2)),
    ):
        graph.operator(name, inputs, [output], options=options)
    return rows
