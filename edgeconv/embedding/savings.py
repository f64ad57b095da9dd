"""What a model for microcontrollers carries for an open batch and for float ends."""

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
    """Whether a first dimension is open, for which the graph computes shapes at run time."""
    return any(spec.shape[:1] == (-1,) for s in artifact.signatures for spec in s.inputs)


def integer_ends(artifact: Artifact) -> tuple[IoType, IoType]:
    """The types of inputs and outputs without float ends, where the recipe computes in integers."""
    recipe = artifact.recipe
    if recipe.name not in CALIBRATED:
        return recipe.input_type, recipe.output_type
    level: IoType = "int16" if recipe.name == "int16x8" else "int8"
    ends = (recipe.input_type, recipe.output_type)
    first, last = (level if end == "float32" else end for end in ends)
    return first, last


def options_that_save(artifact: Artifact) -> tuple[str, ...]:
    """The options of `convert` that would make the model smaller, () where none would.

    A .tflite has no other shapes, so that one made of it keeps its batch; and one that edgeconv did
    not make, which has no key, is not made again.
    """
    if not artifact.key:
        return ()
    first, last = integer_ends(artifact)
    words: list[str] = []
    if (first, last) != (artifact.recipe.input_type, artifact.recipe.output_type):
        words += ["--io", first] if first == last else ["--io", f"input={first}"]
        words += [] if first == last else ["--io", f"output={last}"]
    if has_open_batch(artifact) and artifact.source_kind != "tflite":
        words += ["--batch", "1"]
    return tuple(words)


def saving_notes(artifact: Artifact, file: Path) -> tuple[str, ...]:
    """A sentence on the operators that an open batch and float ends cost; () where none do.

    No bytes: they are known once the model is made.
    """
    model = parse(file.read_bytes(), where=str(file))
    options = options_that_save(artifact)
    costs = {
        "the float ends": _for_float_ends(model) if "--io" in options else Counter[str](),
        "the open batch": _for_open_batch(model) if has_open_batch(artifact) else Counter[str](),
    }
    parts = [f"{_listed(names)} for {what}" for what, names in costs.items() if names]
    if not parts:
        return ()
    count = sum(len(graph.operators) for graph in model.subgraphs)
    going = sum(names.total() for names in costs.values())
    said = f"{going} of the {count} operators are {' and '.join(parts)}"
    if costs["the open batch"] and "--batch" not in options:
        said += "; --batch 1 needs the model that the .tflite came from"
    if options:
        said += f"; {' '.join(options)} does without, and --remake converts it so"
    return (said,)


def _for_open_batch(model: ModelT) -> Counter[str]:
    """Operators that depend on nothing but shapes, which are known once the batch is fixed."""
    found: Counter[str] = Counter()
    for graph in model.subgraphs:
        known = {i for i, tensor in enumerate(graph.tensors) if is_constant(model, tensor)}
        # Operators stand in the order that they run in.
        for operator in graph.operators:
            name = operator_name(model, operator)
            inputs = {index for index in operator.inputs if index != -1}
            if name == "SHAPE" or (inputs and inputs <= known):
                known |= set(operator.outputs)
                found[name] += 1
    return found


def _for_float_ends(model: ModelT) -> Counter[str]:
    return Counter(
        operator_name(model, operator)
        for graph in model.subgraphs
        for operator in graph.operators
        if _is_end(model, graph, operator)
    )


def _is_end(model: ModelT, graph: SubGraphT, operator: OperatorT) -> bool:
    name = operator_name(model, operator)
    if name == "QUANTIZE":
        return operator.inputs[0] in graph.inputs
    return name == "DEQUANTIZE" and operator.outputs[0] in graph.outputs


def _listed(names: Counter[str]) -> str:
    return ", ".join(
        name if count == 1 else f"{count} {name}" for name, count in sorted(names.items())
    )
