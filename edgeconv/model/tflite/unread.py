"""Tensors that nothing reads or writes any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.model.tflite.flatbuffer import MOST_FLATBUFFER_BYTES, parse, serialize

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT


def without_unread_tensors(data: bytes) -> bytes:
    """The same model without tensors that no operator, caller or signature knows.

    Quantization leaves the float twins of integer tensors, up to a sixth of a small file. `data`
    itself comes back where there are none, or if it is too large to edit. Raises `InputRefused` for
    bytes that are not a model.
    """
    if len(data) > MOST_FLATBUFFER_BYTES:
        return data
    model = parse(data, where="the model")
    changed = [_drop_unread(model, number) for number in range(len(model.subgraphs))]
    return serialize(model) if any(changed) else data


def _drop_unread(model: ModelT, number: int) -> bool:
    graph = model.subgraphs[number]
    ends = [
        end
        for signature in model.signatureDefs or ()
        if signature.subgraphIndex == number
        for end in (*signature.inputs, *signature.outputs)
    ]
    known = {*graph.inputs, *graph.outputs, *(end.tensorIndex for end in ends)}
    for operator in graph.operators:
        for indices in _indices_of(operator):
            known.update(indices)
    numbers = {old: new for new, old in enumerate(sorted(known - {-1}))}
    if len(numbers) == len(graph.tensors):
        return False
    graph.tensors = [graph.tensors[old] for old in numbers]
    numbers[-1] = -1
    graph.inputs, graph.outputs = ([numbers[i] for i in s] for s in (graph.inputs, graph.outputs))
    for end in ends:
        end.tensorIndex = numbers[end.tensorIndex]
    for operator in graph.operators:
        operator.inputs, operator.outputs, operator.intermediates = (
            [numbers[index] for index in indices] for indices in _indices_of(operator)
        )
    return True


def _indices_of(operator: OperatorT) -> tuple[list[int], list[int], list[int]]:
    intermediates = operator.intermediates
    return operator.inputs, operator.outputs, [] if intermediates is None else intermediates
