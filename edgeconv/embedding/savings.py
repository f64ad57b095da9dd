"""What an open batch and float inputs and outputs cost on a microcontroller."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from edgeconv.tflite.flatbuffer import is_constant, operator_name, parse
from edgeconv.types import CALIBRATED

if TYPE_CHECKING:
    from pathlib import Path

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

    from edgeconv.types import Artifact, IoType


def has_open_batch(artifact: Artifact) -> bool:
    """Whether a batch is open: the graph then computes shapes at run time."""
    return any(signature.has_open_batch for signature in artifact.signatures)


def integer_io(artifact: Artifact) -> tuple[IoType, IoType]:
    """The integer types of inputs and outputs, where the recipe computes in integers."""
    recipe = artifact.recipe
    if recipe.name not in CALIBRATED:
        return recipe.input_type, recipe.output_type
    level: IoType = "int16" if recipe.name == "int16x8" else "int8"
    types = (recipe.input_type, recipe.output_type)
    first, last = (level if dtype == "float32" else dtype for dtype in types)
    return first, last


def options_that_save(artifact: Artifact) -> tuple[str, ...]:
    """The options of `convert` that would make the model smaller, () where none would.

    A model converted from a .tflite keeps its batch. One that edgeconv did not make has no key, and
    is not converted again.
    """
    if not artifact.key:
        return ()
    first, last = integer_io(artifact)
    words: list[str] = []
    if (first, last) != (artifact.recipe.input_type, artifact.recipe.output_type):
        words += ["--io", first] if first == last else ["--io", f"input={first}"]
        words += [] if first == last else ["--io", f"output={last}"]
    if has_open_batch(artifact) and artifact.source_kind != "tflite":
        words += ["--batch", "1"]
    return tuple(words)


def saving_notes(artifact: Artifact, file: Path) -> tuple[str, ...]:
    """A sentence on the operators for an open batch and float inputs and outputs; () for none."""
    model = parse(file.read_bytes(), where=str(file))
    options = options_that_save(artifact)
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
