"""What a .tflite says of the ranges of its tensors: fused activations, and scales."""

from __future__ import annotations

import math

from edgeconv.tflite.flatbuffer import operator_name, parse, text

# Names in the schema's ActivationFunctionType to the largest magnitude they let through.
_BOUNDS = {"RELU6": 6.0, "RELU_N1_TO_1": 1.0}


def activation_bounds(data: bytes) -> dict[str, float]:
    """The bound of every tensor that RELU6 or RELU_N1_TO_1 ends in, fused or not, by name."""
    from ai_edge_litert.schema_py_generated import ActivationFunctionType

    codes = {getattr(ActivationFunctionType, name): bound for name, bound in _BOUNDS.items()}
    model = parse(data, where="the model")
    bounds: dict[str, float] = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            fused = getattr(operator.builtinOptions, "fusedActivationFunction", 0)
            bound = codes.get(fused) or _BOUNDS.get(operator_name(model, operator))
            if bound:
                bounds |= {text(graph.tensors[i].name): bound for i in operator.outputs}
    return bounds


def largest_scales(data: bytes) -> dict[str, float]:
    """The largest scale of every quantised tensor, by name; infinite where one is no number."""
    model = parse(data, where="the model")
    scales: dict[str, float] = {}
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            own = None if tensor.quantization is None else tensor.quantization.scale
            if own is not None and len(own):
                finite = all(math.isfinite(scale) for scale in own)
                scales[text(tensor.name)] = float(max(own)) if finite else math.inf
    return scales
