"""The memory for the tensors of a graph, when tensors of different times share it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgeconv.model.tflite.flatbuffer import (
    entry_subgraphs,
    is_constant,
    operator_name,
    parse,
    type_names,
)
from edgeconv.model.tflite.operators import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, TensorT

_ALIGNMENT_BYTES = 16
# Bits of one element; the handles of strings and resources are not in the arena.
_BITS = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 8),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 16),
    **dict.fromkeys(("int32", "uint32", "float32"), 32),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 64),
    "complex128": 128,
    "int4": 4,
    "uint4": 4,
    "int2": 2,
}
# The options of control flow that name a subgraph.
_CALLS = (
    "thenSubgraphIndex",
    "elseSubgraphIndex",
    "condSubgraphIndex",
    "bodySubgraphIndex",
    "initSubgraphIndex",
    "subgraph",
    "decompositionSubgraphIndex",
)


@dataclass
class Block:
    """Bytes used from one step of the execution to another, both included."""

    size_bytes: int
    first: int
    last: int
    offset: int = 0


@dataclass
class _Life:
    """The steps of one execution, and the blocks by subgraph and tensor."""

    model: ModelT
    step: int = 0
    blocks: dict[tuple[int, int], Block] = field(default_factory=dict)
    entered: tuple[int, ...] = ()


def arena_bytes(data: bytes) -> int:
    """The bytes that the tensors of the .tflite in `data` need, without its constants.

    A tensor lives from the operator that writes it to the last one that reads it; inputs from the
    start, outputs to the end, variables always. Blocks are aligned to 16 bytes and laid out as in
    TensorFlow Lite for Microcontrollers, largest first, each in the lowest gap that is free all its
    life ("greedy by size": Y. Pisarchyk and J. Lee, "Efficient memory management for deep neural
    net inference", 2020, section 5.2). Of several signatures the largest counts. A dynamic
    dimension has the file's size, which is 1 for a batch. Operators' scratch memory and state are
    not in the file, and not counted. Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(data, where="the model")
    return max(_entry_bytes(model, index) for index in entry_subgraphs(model))


def planned_bytes(blocks: Iterable[Block]) -> int:
    """Set the blocks' offsets, and return the bytes that they need."""
    placed: list[Block] = []
    for block in sorted(blocks, key=lambda placed_block: -placed_block.size_bytes):
        block.offset = _lowest_gap(block, placed)
        placed.append(block)
        placed.sort(key=lambda placed_block: placed_block.offset)
    return max(
        (placed_block.offset + placed_block.size_bytes for placed_block in placed), default=0
    )


def _lowest_gap(block: Block, placed: list[Block]) -> int:
    """The lowest offset where `block` fits; `placed` is in the order of the offsets."""
    offset = 0
    for other in placed:
        if other.first > block.last or other.last < block.first:
            continue
        if other.offset - offset >= block.size_bytes:
            break
        offset = max(offset, other.offset + other.size_bytes)
    return offset


def _entry_bytes(model: ModelT, index: int) -> int:
    life = _Life(model)
    _walk(life, index)
    variables = sum(
        tensor_bytes(tensor)
        for graph in {index, *(graph for graph, _ in life.blocks)}
        for tensor in model.subgraphs[graph].tensors
        if tensor.isVariable
    )
    return planned_bytes(life.blocks.values()) + variables


def _walk(life: _Life, index: int) -> None:
    """Step through subgraph `index`, and those that it calls, from the present step on."""
    graph = life.model.subgraphs[index]
    _touch(life, index, graph.inputs)
    for operator in graph.operators:
        life.step += 1
        _touch(life, index, operator.outputs)
        for called in _called(life, operator):
            life.entered = (*life.entered, called)
            _walk(life, called)
        _touch(life, index, (*operator.inputs, *operator.outputs))
    _touch(life, index, graph.outputs)


def _touch(life: _Life, index: int, tensors: Iterable[int]) -> None:
    """Extend the lives of the tensors to this step."""
    graph = life.model.subgraphs[index]
    for number in (i for i in tensors if i != -1):
        tensor = graph.tensors[number]
        if is_constant(life.model, tensor) or tensor.isVariable:
            continue
        block = life.blocks.setdefault(
            (index, number), Block(tensor_bytes(tensor), life.step, life.step)
        )
        block.last = life.step


def _called(life: _Life, operator: OperatorT) -> Iterator[int]:
    """The subgraphs that a control-flow operator runs, each once even in a recursive file."""
    if operator_name(life.model, operator) == "CALL_ONCE":
        return
    options = (operator.builtinOptions, operator.builtinOptions2)
    named: list[Any] = [getattr(each, name, None) for name in _CALLS for each in options]
    for called in named:
        if called in range(len(life.model.subgraphs)) and called not in life.entered:
            yield int(called)


def tensor_bytes(tensor: TensorT) -> int:
    """The bytes of a tensor in the arena, with the padding after it."""
    bits = _BITS.get(type_names()[tensor.type], 0)
    size = math.ceil(math.prod(abs(size) for size in shape_of(tensor)) * bits / 8)
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
