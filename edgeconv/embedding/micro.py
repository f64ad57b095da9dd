"""The operators and the memory of a model in TensorFlow Lite for Microcontrollers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.embedding.accessors import render
from edgeconv.embedding.c_files import c_values
from edgeconv.embedding.interface import LITERT, MICRO, Embedding, TargetOption, yes_or_no
from edgeconv.model.tflite.arena import CUSTOM, WEIGHTED, arena_bytes, missing_in_micro
from edgeconv.model.tflite.flatbuffer import (
    has_weights_outside,
    is_constant,
    is_custom,
    operator_name,
    parse,
    read,
    text,
    type_names,
)
from edgeconv.model.tflite.operators import shape_of
from edgeconv.types import CALIBRATED, Artifact, IoType
from edgeconv.types.errors import InputRefused, UnsupportedOperators

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT


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
    # It would not see them, and answer nonsense.
    if has_weights_outside(data):
        raise InputRefused(
            f"{name} has weights outside of the flatbuffer, where TensorFlow Lite for "
            "Microcontrollers does not look",
            hint="convert it again, or use --option micro=no",
        )
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


# What an open batch and float inputs and outputs cost on a microcontroller.


def has_open_batch(artifact: Artifact) -> bool:
    """Whether a batch is open: the graph then computes shapes at run time."""
    return any(signature.has_open_batch for signature in artifact.signatures)


def integer_io(artifact: Artifact, file: Path) -> tuple[IoType, IoType]:
    """The integer types of inputs and outputs, where the file computes in integers next to them.

    What was left in float there, such as a last softmax, would lose what it was left for.
    """
    recipe = artifact.recipe
    if recipe.name not in CALIBRATED:
        return recipe.input_type, recipe.output_type
    level: IoType = "int16" if recipe.name == "int16x8" else "int8"
    float_ends = _float_ends(read(file.read_bytes(), where=str(file)))
    types = (recipe.input_type, recipe.output_type)
    first, last = (
        level if dtype == "float32" and not is_left else dtype
        for dtype, is_left in zip(types, float_ends, strict=True)
    )
    return first, last


def _float_ends(model: ModelT) -> tuple[bool, bool]:
    """Whether operators compute on an input, and compute an output, in float."""
    first = last = False
    for graph in model.subgraphs:
        floats = {i for i, t in enumerate(graph.tensors) if type_names()[t.type] == "float32"}
        for operator in graph.operators:
            name = operator_name(model, operator)
            reads, makes = floats & {*operator.inputs}, floats & {*operator.outputs}
            first |= name not in ("QUANTIZE", "SHAPE") and not reads.isdisjoint(graph.inputs)
            last |= name != "DEQUANTIZE" and not makes.isdisjoint(graph.outputs)
    return first, last


def options_that_save(artifact: Artifact, file: Path) -> tuple[str, ...]:
    """The options of `convert` that would make the model smaller, () where none would.

    A model converted from a .tflite keeps its batch. One that edgeconv did not make has no key, and
    is not converted again.
    """
    if not artifact.key:
        return ()
    first, last = integer_io(artifact, file)
    words: list[str] = []
    if (first, last) != (artifact.recipe.input_type, artifact.recipe.output_type):
        words += ["--io", first] if first == last else ["--io", f"input={first}"]
        words += [] if first == last else ["--io", f"output={last}"]
    if has_open_batch(artifact) and artifact.source_kind != "tflite":
        words += ["--batch", "1"]
    return tuple(words)


def saving_notes(artifact: Artifact, file: Path) -> tuple[str, ...]:
    """A sentence on the operators for an open batch and float inputs and outputs; () for none."""
    model = read(file.read_bytes(), where=str(file))
    options = options_that_save(artifact, file)
    costs = {
        "the float inputs and outputs": _for_float_io(model)
        if "--io" in options
        else Counter[str](),
        "the open batch": _for_open_batch(model) if has_open_batch(artifact) else Counter[str](),
    }
    parts = [f"{_listed(names)} for {what}" for what, names in costs.items() if names]
    if not parts:
        return ()
    count = sum(len(graph.operators) for graph in model.subgraphs)
    going = sum(names.total() for names in costs.values())
    note = f"{going} of the {count} operators are {' and '.join(parts)}"
    if costs["the open batch"] and "--batch" not in options:
        note += "; --batch 1 needs the source model of the .tflite"
    if options:
        note += f"; {' '.join(options)} avoids them, and --remake converts with it"
    return (note,)


def _for_open_batch(model: ModelT) -> Counter[str]:
    """Operators that depend on shapes only, which are known once the batch is fixed."""
    counts: Counter[str] = Counter()
    for graph in model.subgraphs:
        known = {i for i, tensor in enumerate(graph.tensors) if is_constant(model, tensor)}
        # Operators are in the order of their execution.
        for operator in graph.operators:
            name = operator_name(model, operator)
            inputs = {index for index in operator.inputs if index != -1}
            if name == "SHAPE" or (inputs and inputs <= known):
                known |= set(operator.outputs)
                counts[name] += 1
    return counts


def _for_float_io(model: ModelT) -> Counter[str]:
    return Counter(
        operator_name(model, operator)
        for graph in model.subgraphs
        for operator in graph.operators
        if _is_io(model, graph, operator)
    )


def _is_io(model: ModelT, graph: SubGraphT, operator: OperatorT) -> bool:
    name = operator_name(model, operator)
    if name == "QUANTIZE":
        return operator.inputs[0] in graph.inputs
    return name == "DEQUANTIZE" and operator.outputs[0] in graph.outputs


def _listed(names: Counter[str]) -> str:
    return ", ".join(
        name if count == 1 else f"{count} {name}" for name, count in sorted(names.items())
    )
