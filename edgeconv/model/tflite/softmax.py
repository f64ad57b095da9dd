"""The tensors that only a SOFTMAX, LOGISTIC or TANH reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.model.tflite.flatbuffer import (
    entry_subgraphs,
    graphs_of,
    operator_name,
    parse,
    read,
    serialize,
    text,
)
from edgeconv.model.tflite.operators import shape_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

# They do not change values: input and output have the same scale.
_SAME_VALUES = frozenset({"EXPAND_DIMS", "RESHAPE", "SQUEEZE"})


# They give some of the values that they are given.
_JOIN = "CONCATENATION"
_PASSING = _SAME_VALUES | {_JOIN, "DEQUANTIZE", "QUANTIZE", "SLICE", "STRIDED_SLICE", "TRANSPOSE"}
_SQUASHING = frozenset({"LOGISTIC", "TANH"})


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


def softmax_classes(data: bytes) -> dict[str, int]:
    """Over how many values each SOFTMAX is, by the name of its output.

    Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    return {
        text(graph.tensors[operator.outputs[0]].name): shape_of(graph.tensors[operator.outputs[0]])[
            -1
        ]
        for graph in (model.subgraphs[index] for index in entry_subgraphs(model))
        for operator in graph.operators
        if operator_name(model, operator) == "SOFTMAX"
    }


def softmax_outputs(data: bytes) -> dict[tuple[str, str], str]:
    """The name of the output of the SOFTMAX that makes an output, by signature and output.

    Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    found = {}
    for signature in model.signatureDefs or ():
        graph = model.subgraphs[signature.subgraphIndex]
        for output in signature.outputs:
            operator = _maker(model, graph, output.tensorIndex)
            if operator is not None and operator_name(model, operator) == "SOFTMAX":
                name = text(graph.tensors[operator.outputs[0]].name)
                found[text(signature.signatureKey), text(output.name)] = name
    return found


def squashed_tensors(data: bytes) -> dict[str, str]:
    """LOGISTIC or TANH by the names of the tensors that nothing but one such operator reads.

    Those that such a tensor was reshaped from are among them. Raises `InputRefused` for bytes that
    are not a model.
    """
    model = read(data, where="the model")
    squashed: dict[str, str] = {}
    for graph in (model.subgraphs[index] for index in entry_subgraphs(model)):
        for operator in graph.operators:
            kind = operator_name(model, operator)
            if kind in _SQUASHING and _only_read_here(graph, operator.inputs[0]):
                names = _reshaped_from(model, graph, operator.inputs[0])
                squashed |= dict.fromkeys(names, kind)
    return squashed


def sigmoid_outputs(data: bytes, key: str) -> frozenset[str]:
    """The outputs of signature `key` whose values all come from LOGISTIC operators, by name.

    Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    names = set[str]()
    for signature, graph in graphs_of(model, key):
        writers = {index: each for each in graph.operators for index in each.outputs}
        names |= {
            text(each.name)
            for each in signature.outputs
            if _is_sigmoid(model, writers, each.tensorIndex)
        }
    return frozenset(names)


def _is_sigmoid(model: ModelT, writers: Mapping[int, OperatorT], index: int) -> bool:
    reached = [index]
    for each in reached:
        if each not in writers:
            return False
        name = operator_name(model, writers[each])
        if name in _PASSING:
            inputs = writers[each].inputs
            reached += [i for i in (inputs if name == _JOIN else inputs[:1]) if i not in reached]
        elif name != "LOGISTIC":
            return False
    return True


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


_PROBABILITIES = frozenset({"SOFTMAX", "LOGISTIC"})
# An output of these has the values of their input, in another type or shape.
_SAME_LOGITS = frozenset({"DEQUANTIZE", "EXPAND_DIMS", "QUANTIZE", "RESHAPE", "SQUEEZE"})


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
    """The SOFTMAX or LOGISTIC that gives a tensor its values, if one does."""
    writers = {i: operator for operator in graph.operators for i in operator.outputs}
    # Each step goes to an earlier operator, unless the file is broken.
    for _ in graph.operators:
        operator = writers.get(index)
        if operator is None or not operator.inputs or operator.inputs[0] == -1:
            return None
        kind = operator_name(model, operator)
        if kind in _PROBABILITIES:
            return operator
        if kind not in _SAME_LOGITS:
            return None
        index = operator.inputs[0]
    return None
