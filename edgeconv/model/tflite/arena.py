"""What TensorFlow Lite for Microcontrollers lacks, and how much memory the tensors of a graph take
when tensors of different times share it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgeconv.model.tflite.flatbuffer import (
    entry_subgraphs,
    is_constant,
    is_custom,
    operator_name,
    parse,
    type_names,
)
from edgeconv.model.tflite.operators import shape_of
from edgeconv.model.tflite.summary import spec_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT

# The operators of MicroMutableOpResolver in tflite-micro of October 2026.
_BUILTIN_NAMES = """
    ABS ADD ADD_N ARG_MAX ARG_MIN ASSIGN_VARIABLE AVERAGE_POOL_2D BATCH_MATMUL BATCH_TO_SPACE_ND
    BROADCAST_ARGS BROADCAST_TO CALL_ONCE CAST CEIL CONCATENATION CONV_2D COS CUMSUM
    DEPTH_TO_SPACE DEPTHWISE_CONV_2D DEQUANTIZE DIV DYNAMIC_UPDATE_SLICE ELU EMBEDDING_LOOKUP
    EQUAL EXP EXPAND_DIMS FILL FLOOR FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GATHER_ND GREATER
    GREATER_EQUAL HARD_SWISH IF L2_NORMALIZATION L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL LOG
    LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC LOG_SOFTMAX MAXIMUM MAX_POOL_2D MEAN MINIMUM
    MIRROR_PAD MUL NEG NOT_EQUAL PACK PAD PADV2 PRELU QUANTIZE READ_VARIABLE REDUCE_ALL REDUCE_MAX
    REDUCE_MIN RELU RELU6 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 ROUND RSQRT
    SELECT_V2 SHAPE SIN SLICE SOFTMAX SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE
    SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB SUM SVDF TANH TRANSPOSE TRANSPOSE_CONV
    UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK VAR_HANDLE WHILE ZEROS_LIKE
"""
BUILTIN = frozenset(_BUILTIN_NAMES.split())
# Its custom operators, with their methods of the resolver.
CUSTOM = {
    "CIRCULAR_BUFFER": "AddCircularBuffer",
    "SignalDelay": "AddDelay",
    "SignalEnergy": "AddEnergy",
    "SignalFftAutoScale": "AddFftAutoScale",
    "SignalFilterBank": "AddFilterBank",
    "SignalFilterBankLog": "AddFilterBankLog",
    "SignalFilterBankSpectralSubtraction": "AddFilterBankSpectralSubtraction",
    "SignalFilterBankSquareRoot": "AddFilterBankSquareRoot",
    "SignalFramer": "AddFramer",
    "SignalIrfft": "AddIrfft",
    "SignalOverlapAdd": "AddOverlapAdd",
    "SignalPCAN": "AddPCAN",
    "SignalRfft": "AddRfft",
    "SignalStacker": "AddStacker",
    "SignalWindow": "AddWindow",
    "TFLM_DECODE": "AddDecode",
    "TFLite_Detection_PostProcess": "AddDetectionPostprocess",
    "ethos-u": "AddEthosU",
}
# Operators whose second input is their weights.
WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"})
# What SELECT_V2 chooses from.
_SELECTED = frozenset({"int8", "int16", "float32"})
_INTEGERS = frozenset({"int8", "uint8", "int4", "int2"})


def missing_in_micro(model: ModelT) -> tuple[str, ...]:
    """The operators that it lacks, and those whose kernels refuse a model or compute it wrong.

    The latter are those of float16 (in a float16 model), of floats with integer weights (in a
    dynamic model), integers dequantized per channel (in a weight-only model), a choice between
    indices (of an embedding), and batches made of an open one (in a dilated convolution).
    """
    used = {
        (operator_name(model, o), is_custom(model, o)) for g in model.subgraphs for o in g.operators
    }
    missing = sorted(name for name, custom in used if name not in (CUSTOM if custom else BUILTIN))
    return (*missing, *_missing_kernels(model))


def _missing_kernels(model: ModelT) -> list[str]:
    """Its operators on types for which it has no kernel."""
    missing = set()
    for graph in model.subgraphs:
        types = [type_names()[tensor.type] for tensor in graph.tensors]
        for operator in graph.operators:
            name = operator_name(model, operator)
            inputs = [types[index] for index in operator.inputs if index != -1]
            if name == "DEQUANTIZE" and len(spec_of("", _first(graph, operator)).scale) > 1:
                # It silently uses the first scale for all of them.
                missing.add(f"{name} with a scale for each channel")
            if name == "SPACE_TO_BATCH_ND" and _is_open(graph.tensors[operator.outputs[0]]):
                # It takes the stored shape, which has a batch of 1, and writes beyond its end.
                missing.add(f"{name} of an open batch (convert with --batch 1)")
            if "float16" in inputs:
                missing.add(f"{name} of float16")
            if name == "SELECT_V2" and inputs[1] not in _SELECTED:
                missing.add(f"{name} of {inputs[1]}")
            if name in WEIGHTED and inputs[0] == "float32" and set(inputs[1:2]) & _INTEGERS:
                missing.add(f"{name} of floats with integer weights")
    return sorted(missing)


def _is_open(tensor: TensorT) -> bool:
    return -1 in (tensor.shapeSignature if tensor.shapeSignature is not None else ())


def _first(graph: SubGraphT, operator: OperatorT) -> TensorT:
    return graph.tensors[operator.inputs[0]]


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
