"""The bounds that fused activations put on tensors."""

from __future__ import annotations

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
