"""What a softmax or a sigmoid makes an output of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgeconv.tflite.flatbuffer import operator_name, parse, serialize, text

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

_PROBABILITIES = frozenset({"SOFTMAX", "LOGISTIC"})
# An output of these has the values of their input, in another type or shape.
_SAME_VALUES = frozenset({"DEQUANTIZE", "EXPAND_DIMS", "QUANTIZE", "RESHAPE", "SQUEEZE"})


class Logits(NamedTuple):
    """The input of the SOFTMAX or LOGISTIC that makes an output, and its name as one more output.

    `makes` is the name of that output, and `tensor` its own. `beta` is what a softmax over the last
    dimension multiplies it by, None for LOGISTIC.
    """

    signature: str
    output: str
    makes: str
    tensor: str
    beta: float | None


def with_logits(data: bytes) -> tuple[bytes, tuple[Logits, ...]]:
    """The model with the logits of its outputs as additional outputs, and what they are.

    Their names are those of the outputs with " before SOFTMAX" or " before LOGISTIC". `data` itself
    comes back without any. Raises `InputRefused` for bytes that are not a model.
    """
    from ai_edge_litert.schema_py_generated import TensorMapT

    model = parse(data, where="the model")
    logits = []
    for signature in model.signatureDefs or ():
        graph = model.subgraphs[signature.subgraphIndex]
        for output in list(signature.outputs):
            operator = _maker(model, graph, output.tensorIndex)
            if operator is None or operator.inputs[0] in graph.inputs:
                continue
            kind, index = operator_name(model, operator), operator.inputs[0]
            if index not in graph.outputs:
                graph.outputs = [*graph.outputs, index]
            makes = text(output.name)
            name, tensor = f"{makes} before {kind}", text(graph.tensors[index].name)
            signature.outputs.append(TensorMapT(name=name, tensorIndex=index))
            beta = float(operator.builtinOptions.beta) if kind == "SOFTMAX" else None
            logits.append(Logits(text(signature.signatureKey), name, makes, tensor, beta))
    return (serialize(model) if logits else data), tuple(logits)


def _maker(model: ModelT, graph: SubGraphT, index: int) -> OperatorT | None:
    """The SOFTMAX or LOGISTIC that gives a tensor its values; None where there is none."""
    writers = {i: operator for operator in graph.operators for i in operator.outputs}
    # Each step goes to an earlier operator, unless the file is broken.
    for _ in graph.operators:
        operator = writers.get(index)
        if operator is None or not operator.inputs or operator.inputs[0] == -1:
            return None
        kind = operator_name(model, operator)
        if kind in _PROBABILITIES:
            return operator
        if kind not in _SAME_VALUES:
            return None
        index = operator.inputs[0]
    return None
