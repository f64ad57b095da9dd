"""The tensors that only a SOFTMAX reads."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.tflite.flatbuffer import operator_name, parse, serialize, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

# They do not change values: input and output have the same scale.
_SAME_VALUES = frozenset({"EXPAND_DIMS", "RESHAPE", "SQUEEZE"})


class SoftmaxInput(NamedTuple):
    """The input of a SOFTMAX, and its name as an output of a signature.

    `tensors` is its name, and those of the tensors that it was reshaped from. The softmax is over
    the last dimension, of `classes` values, each multiplied by `beta`.
    """

    signature: str
    output: str
    tensors: tuple[str, ...]
    classes: int
    beta: float


def with_softmax_inputs(
    data: bytes, is_wanted: Callable[[str], bool]
) -> tuple[bytes, tuple[SoftmaxInput, ...]]:
    """The model with its softmax inputs as additional outputs, and their descriptions.

    Only those that nothing else reads, and with a tensor's name that `is_wanted`. Raises
    `InputRefused` for bytes that are not a model.
    """
    from ai_edge_litert.schema_py_generated import TensorMapT

    model = parse(data, where="the model")
    inputs = []
    for signature in model.signatureDefs or ():
        graph = model.subgraphs[signature.subgraphIndex]
        for operator in graph.operators:
            index = operator.inputs[0] if operator.inputs else -1
            if operator_name(model, operator) != "SOFTMAX" or not _only_read_here(graph, index):
                continue
            if not is_wanted(text(graph.tensors[index].name)):
                continue
            softmax_input = _describe(model, graph, operator, text(signature.signatureKey))
            graph.outputs = [*graph.outputs, index]
            signature.outputs.append(TensorMapT(name=softmax_input.output, tensorIndex=index))
            inputs.append(softmax_input)
    return (serialize(model) if inputs else data), tuple(inputs)


def _describe(model: ModelT, graph: SubGraphT, operator: OperatorT, key: str) -> SoftmaxInput:
    index = operator.inputs[0]
    return SoftmaxInput(
        signature=key,
        output=f"softmax_input_{index}",
        tensors=tuple(_reshaped_from(model, graph, index)),
        classes=int(graph.tensors[index].shape[-1]),
        beta=float(operator.builtinOptions.beta),
    )


def _only_read_here(graph: SubGraphT, index: int) -> bool:
    readers = Counter(i for operator in graph.operators for i in set(operator.inputs))
    is_written = any(index in operator.outputs for operator in graph.operators)
    return is_written and readers[index] == 1 and index not in graph.outputs


def _reshaped_from(model: ModelT, graph: SubGraphT, index: int) -> list[str]:
    """The names of the tensor and of those that it reshapes, while nothing else reads them."""
    names = [text(graph.tensors[index].name)]
    writer = next(o for o in graph.operators if index in o.outputs)
    while operator_name(model, writer) in _SAME_VALUES:
        index = writer.inputs[0]
        if not _only_read_here(graph, index):
            break
        names.append(text(graph.tensors[index].name))
        writer = next(o for o in graph.operators if index in o.outputs)
    return names
