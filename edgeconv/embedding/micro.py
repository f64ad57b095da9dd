"""The operators and the memory of a model in TensorFlow Lite for Microcontrollers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.embedding.c_files import c_values
from edgeconv.embedding.interface import LITERT, MICRO, TargetOption, yes_or_no
from edgeconv.embedding.rendering import render
from edgeconv.embedding.savings import saving_notes
from edgeconv.errors import InputRefused, UnsupportedOperators
from edgeconv.tflite.arena import arena_bytes
from edgeconv.tflite.flatbuffer import has_weights_outside, is_custom, operator_name, parse, text
from edgeconv.tflite.micro import CUSTOM, WEIGHTED, missing_in_micro
from edgeconv.tflite.uses import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

    from edgeconv.embedding.interface import Embedding

MICRO_OPTION = {
    "micro": yes_or_no(
        "yes: the resolver and arena for TensorFlow Lite for Microcontrollers; no: without them, "
        "for a model with operators that it lacks"
    ),
    "golden": TargetOption(
        help="whose outputs the self-test expects: tflite-micro (the default with micro=yes), "
        "whose reference kernels an integer output must equal exactly; litert, with a "
        "tolerance for other kernels",
        choices=(LITERT, MICRO),
    ),
}
_SPELLED = {
    "BATCH_MATMUL": "AddBatchMatMul",
    "CUMSUM": "AddCumSum",
    "PADV2": "AddPadV2",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "AddUnidirectionalSequenceLSTM",
}
_ALIGNMENT = 16
# Upper bounds of measurements; see tests/integration/test_embed_in_tflite_micro.py.
_KEPT_BYTES, _PER_TENSOR_BYTES, _PER_OPERATOR_BYTES, _PER_CHANNEL_BYTES = 1536, 32, 192, 8
_COLUMN_VALUE_BYTES = 2
# What the memory planner takes for each tensor while it works, in the memory of the tensors:
# AllocationInfo, and per_buffer_size() of GreedyMemoryPlanner.
_PLANNING_BYTES = 32 + 40
MARGIN = 0.1


class Arena(NamedTuple):
    """Bytes of the tensors, and an estimate of all that an interpreter needs."""

    tensors: int
    estimate: int


def refuse_for_micro(data: bytes, name: str, signature: str) -> None:
    """Raise `UnsupportedOperators` or `InputRefused` for a model that it cannot run."""
    model = parse(data, where=name)
    resolver_methods(model, name)
    _refuse_weights_outside(data, name)
    _refuse_other_graph(model, name, signature)


def micro_files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """SYMBOL_micro.h and, with self_test=apart, its self-test; none with micro=no.

    Raises `UnsupportedOperators` for an operator without a method of the resolver.
    """
    if not wants_micro(embedding):
        return {}
    values = micro_values(embedding)
    symbol = embedding.symbol
    files = {f"{symbol}_micro.h": render("micro_header.j2", **values)}
    if values["has_self_test"]:
        return files
    return {**files, f"{symbol}_self_test_micro.h": render("micro_self_test_header.j2", **values)}


def micro_values(embedding: Embedding) -> dict[str, Any]:
    """The values for its templates; raises as `micro_files` does."""
    data = embedding.model.read_bytes()
    refuse_for_micro(data, embedding.name, embedding.signature.key)
    model = parse(data, where=str(embedding.model))
    return {
        **c_values(embedding),
        "has_self_test": embedding.options.get("self_test", "together") == "together",
        "methods": resolver_methods(model, embedding.name),
        "arena": arena(data, model),
        "variables": resource_variables(model),
    }


def micro_notes(embedding: Embedding) -> tuple[str, ...]:
    """Notes on the estimate of the arena, and on the cost of an open batch and float inputs."""
    if not wants_micro(embedding):
        return ()
    data = embedding.model.read_bytes()
    bytes_needed = arena(data, parse(data, where=str(embedding.model)))
    return (
        f"tensor arena: {bytes_needed.estimate:,} bytes by estimate, of which the tensors need "
        f"{bytes_needed.tensors:,}; the interpreter's arena_used_bytes() gives the actual number",
        *saving_notes(embedding.artifact, embedding.model),
    )


def wants_micro(embedding: Embedding) -> bool:
    """Whether the option `micro` is yes."""
    return embedding.options["micro"] == "yes"


def resolver_methods(model: ModelT, name: str) -> tuple[str, ...]:
    """The methods of MicroMutableOpResolver for the operators of a model, sorted, each once.

    Raises `UnsupportedOperators` with those that it has no method for, and those that its kernels
    refuse or compute wrong: of float16 (in a float16 model), of floats with integer weights (in a
    dynamic model), integers dequantized per channel (in a weight-only model), and a choice between
    indices (of an embedding).
    """
    if missing := missing_in_micro(model):
        raise UnsupportedOperators(
            f"TensorFlow Lite for Microcontrollers cannot run {name}: {', '.join(missing)}",
            hint="convert to int8, int16x8 or float32 with operators that it has, or use "
            "--option micro=no for another runtime",
        )
    used = {
        (operator_name(model, o), is_custom(model, o)) for g in model.subgraphs for o in g.operators
    }
    return tuple(sorted(CUSTOM[name] if custom else _method(name) for name, custom in used))


def _refuse_weights_outside(data: bytes, name: str) -> None:
    """Raise `InputRefused` for weights that it does not see: it would answer nonsense."""
    if has_weights_outside(data):
        raise InputRefused(
            f"{name} has weights outside of the flatbuffer, where TensorFlow Lite for "
            "Microcontrollers does not look",
            hint="convert it again, or use --option micro=no",
        )


def _refuse_other_graph(model: ModelT, name: str, key: str) -> None:
    """Raise `InputRefused` for a signature of another graph than the first, which it runs."""
    for signature in model.signatureDefs or ():
        if text(signature.signatureKey) == key and signature.subgraphIndex:
            raise InputRefused(
                f"signature {key!r} is not the first graph of "
                f"{name}, which is what TensorFlow Lite for Microcontrollers runs",
                hint="convert that signature alone, or use --option micro=no",
            )


def _method(operator: str) -> str:
    if operator in _SPELLED:
        return _SPELLED[operator]
    words = operator.split("_")
    return "Add" + "".join(word if word == "2D" else word.capitalize() for word in words)


def resource_variables(model: ModelT) -> int:
    """How many variables the model has, the size of `MicroResourceVariables`."""
    return len(
        {
            (text(operator.builtinOptions.sharedName), text(operator.builtinOptions.container))
            for graph in model.subgraphs
            for operator in graph.operators
            if operator_name(model, operator) == "VAR_HANDLE" and operator.builtinOptions
        }
    )


def arena(data: bytes, model: ModelT) -> Arena:
    """An estimate of the arena that the interpreter needs.

    It is the sum of the tensors (`arena_bytes`), the largest scratch memory of the optimized
    kernels for Cortex-M, and the memory for each tensor, operator and output channel, as measured
    with tflite-micro's 64-bit build, which needs more than a 32-bit one; with a margin of 10 %. For
    many small tensors the planner needs more than the tensors.
    """
    tensors = arena_bytes(data)
    count = sum(len(graph.tensors) for graph in model.subgraphs)
    kept = (
        _KEPT_BYTES
        + _PER_TENSOR_BYTES * count
        + _PER_OPERATOR_BYTES * sum(len(graph.operators) for graph in model.subgraphs)
        + _PER_CHANNEL_BYTES * sum(_channels(model))
    )
    placed = max(tensors + max(_scratch(model), default=0), _PLANNING_BYTES * count)
    needed = math.ceil((placed + kept) * (1 + MARGIN))
    return Arena(tensors, -(-needed // _ALIGNMENT) * _ALIGNMENT)


def _channels(model: ModelT) -> Iterator[int]:
    """The output channels of each operator with weights; each has a multiplier and a shift."""
    for operator, shape in _weights(model):
        name = operator_name(model, operator)
        yield int(shape[-1 if name == "DEPTHWISE_CONV_2D" else 0])


def _scratch(model: ModelT) -> Iterator[int]:
    """The scratch memory of CMSIS-NN's convolutions, in bytes: two columns of int16."""
    for _, shape in _weights(model):
        if len(shape) == 4:
            yield 2 * _COLUMN_VALUE_BYTES * math.prod(shape[1:])


def _weights(model: ModelT) -> Iterator[tuple[OperatorT, tuple[int, ...]]]:
    """Operators with weights, and the shape of these."""
    for graph in model.subgraphs:
        for operator in graph.operators:
            if operator_name(model, operator) in WEIGHTED:
                shape = shape_of(graph.tensors[operator.inputs[1]])
                if shape:
                    yield operator, tuple(shape)
