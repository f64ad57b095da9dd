"""Copies of a model for inspection: with fixed shapes, shortened, or with more outputs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from edgeconv.model.tflite.edit import tensor_maps
from edgeconv.model.tflite.flatbuffer import is_constant, parse, read, serialize, text
from edgeconv.model.tflite.operators import parameter_tensors, shape_of
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import SERVING_DEFAULT, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ai_edge_litert.schema_py_generated import (
        BufferT,
        ModelT,
        OperatorT,
        SignatureDefT,
        SubGraphT,
    )

_WHERE = "the model"


def with_fixed_shapes(data: bytes, key: str | None, shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """The same model with only signature `key`, whose inputs have these shapes by name.

    None or "" is the only one; a model without signatures gets one with its tensors' names. Raises
    `InputRefused` for bytes that are not a model or lack the signature or an input.
    """
    model = parse(data, where=_WHERE)
    signature = _signature(model, key) if model.signatureDefs else _unnamed_signature(model)
    model.signatureDefs = [signature]
    graph = model.subgraphs[signature.subgraphIndex]
    for tensor_map in signature.inputs:
        name = text(tensor_map.name)
        if name not in shapes:
            raise InputRefused(f"there are no samples for the model's input {name!r}")
        tensor = graph.tensors[tensor_map.tensorIndex]
        # An input without a batch dimension has its samples on a first axis of their own.
        is_stacked = len(shapes[name]) == len(shape_of(tensor)) + 1
        tensor.shape = list(shapes[name][is_stacked:])
    # A loop's graph gets its shapes when it runs; what is open there is not 1.
    for tensor in graph.tensors:
        tensor.shapeSignature = None
    return serialize(model)


def graph_of(data: bytes, key: str | None) -> SubGraphT:
    """The graph of a signature; None or "" is the only one. It must not be changed.

    Raises `InputRefused` for bytes that are not a model, and for an unknown signature.
    """
    model = read(data, where=_WHERE)
    if not model.signatureDefs:
        return model.subgraphs[0]
    return model.subgraphs[_signature(model, key).subgraphIndex]


def prefixes(data: bytes) -> Iterator[bytes]:
    """For each operator of the model with one signature, the model that ends after it.

    Its outputs are all tensors that the rest of the graph would read. Its inputs stay, even if
    nothing reads them. Widened weights that only the rest would read are left out: runtimes refuse
    such outputs.
    """
    model = parse(data, where=_WHERE)
    graph = model.subgraphs[_signature(model, None).subgraphIndex]
    for count in range(1, len(graph.operators) + 1):
        yield serialize(_end_after(model, count))


def with_outputs(data: bytes, tensors: Sequence[int]) -> bytes:
    """The model with one signature, whose outputs are these tensors, named by their indices.

    A delegate must compute them, and they keep their values through the run.
    """
    from ai_edge_litert.schema_py_generated import TensorMapT

    model = parse(data, where=_WHERE)
    signature = _signature(model, None)
    model.subgraphs[signature.subgraphIndex].outputs = list(tensors)
    signature.outputs = [TensorMapT(name=str(index), tensorIndex=index) for index in tensors]
    return serialize(model)


def _signature(model: ModelT, key: str | None) -> SignatureDefT:
    named = {text(signature.signatureKey): signature for signature in model.signatureDefs}
    if not key and len(named) == 1:
        return next(iter(named.values()))
    if key not in named:
        raise InputRefused(
            f"the model has no signature {key!r}", hint=f"choose one of {quoted(named)}"
        )
    return named[key]


def _unnamed_signature(model: ModelT) -> SignatureDefT:
    from ai_edge_litert.schema_py_generated import SignatureDefT, TensorMapT

    graph = model.subgraphs[0]

    def maps(indices: list[int]) -> list[TensorMapT]:
        return [TensorMapT(name=graph.tensors[i].name, tensorIndex=i) for i in indices]

    return SignatureDefT(
        signatureKey=SERVING_DEFAULT,
        subgraphIndex=0,
        inputs=maps(graph.inputs),
        outputs=maps(graph.outputs),
    )


def _end_after(model: ModelT, count: int) -> ModelT:
    ended = copy.copy(model)
    signature = copy.copy(model.signatureDefs[0])
    graph = copy.copy(model.subgraphs[signature.subgraphIndex])
    graph.operators = graph.operators[:count]
    graph.operators = _without_unread_constants(model, graph)
    graph.outputs = _unread_outputs(model, graph)
    signature.outputs = tensor_maps(graph, graph.outputs, "output")
    ended.signatureDefs = [signature]
    ended.subgraphs = list(model.subgraphs)
    ended.subgraphs[signature.subgraphIndex] = graph
    ended.buffers = _needed_buffers(model, graph)
    return ended


def _without_unread_constants(model: ModelT, graph: SubGraphT) -> list[OperatorT]:
    """The operators but those that compute from constants what none of the others reads."""
    *before, last = graph.operators
    read = {index for operator in graph.operators for index in operator.inputs}
    kept = [
        operator
        for operator in before
        if not read.isdisjoint(operator.outputs)
        or not all(is_constant(model, graph.tensors[i]) for i in operator.inputs if i != -1)
    ]
    return [*kept, last]


def _needed_buffers(model: ModelT, graph: SubGraphT) -> list[BufferT]:
    """The buffers, emptied where only removed operators read them."""
    from ai_edge_litert.schema_py_generated import BufferT

    used = {i for operator in graph.operators for i in operator.inputs if i != -1}
    for index in tuple(used):
        used |= parameter_tensors(graph.tensors[index])
    unused = {t.buffer for i, t in enumerate(graph.tensors) if i not in used}
    unused -= {t.buffer for i, t in enumerate(graph.tensors) if i in used}
    unused -= {t.buffer for each in model.subgraphs[1:] for t in each.tensors}
    return [BufferT() if i in unused else buffer for i, buffer in enumerate(model.buffers)]


def _unread_outputs(model: ModelT, graph: SubGraphT) -> list[int]:
    """The tensors that operators write and none of them reads."""
    read = {index for operator in graph.operators for index in operator.inputs}
    written = [index for operator in graph.operators for index in operator.outputs if index != -1]
    return [i for i in written if i not in read and not is_constant(model, graph.tensors[i])]
