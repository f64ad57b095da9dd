"""The tensors that a SOFTMAX, and nothing else, takes its input from."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.tflite.flatbuffer import operator_name, parse, serialize, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

# These move values and do not change them: quantised, both ends have one scale.
_SAME_VALUES = frozenset({"EXPAND_DIMS", "RESHAPE", "SQUEEZE"})


class SoftmaxInput(NamedTuple):
    """The input of a SOFTMAX, and the name under which it is an output of a signature.

    `tensors` is its name, and those of the tensors that it was reshaped from. A softmax is
    over the last dimension, of `classes` values, each multiplied by `beta`.
    """

    signature: str
    output: str
    tensors: tuple[str, ...]
    classes: int
    beta: float


def with_softmax_inputs(
    data: bytes, is_wanted: Callable[[str], bool]
) -> tuple[bytes, tuple[SoftmaxInput, ...]]:
    """The model with its softmax inputs as outputs too, and what they are.

    Only those whose tensor's name `is_wanted`, and which nothing else reads. Raises
    `InputRefused` for bytes that are no model.
    """
    from ai_edge_litert.schema_py_generated import TensorMapT

    model = parse(data, where="the model")
    found = []
    for signature in model.signatureDefs or ():
        graph = model.subgraphs[signature.subgraphIndex]
        for operator in graph.operators:
            index = operator.inputs[0] if operator.inputs else -1
            if operator_name(model, operator) != "SOFTMAX" or not _only_read_here(graph, index):
                continue
            if not is_wanted(text(graph.tensors[index].name)):
                continue
            one = _described(model, graph, operator, text(signature.signatureKey))
            graph.outputs = [*graph.outputs, index]
            signature.outputs.append(TensorMapT(name=one.output, tensorIndex=index))
            found.append(one)
    return (serialize(model) if found else data), tuple(found)


def _described(model: ModelT, graph: SubGraphT, operator: OperatorT, key: str) -> SoftmaxInput:
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
    made = any(index in operator.outputs for operator in graph.operators)
    return made and readers[index] == 1 and index not in graph.outputs


def _reshaped_from(model: ModelT, graph: SubGraphT, index: int) -> list[str]:
    """The names of the tensor and of those it is a reshape of, if nothing else reads them."""
    names = [text(graph.tensors[index].name)]
    maker = next(o for o in graph.operators if index in o.outputs)
    while operator_name(model, maker) in _SAME_VALUES:
        index = maker.inputs[0]
        if not _only_read_here(graph, index):
            break
        names.append(text(graph.tensors[index].name))
        maker = next(o for o in graph.operators if index in o.outputs)
    return names
