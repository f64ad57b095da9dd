"""The attempts at a conversion, in order: what is changed in the model when it fails as it is.

    as it is ─► shapes fixed ─► loops unrolled

A rung is tried only where it changes something and there is a known reason: dynamic
dimensions in what could not be converted, or a loop in what could not be quantised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import (
    ConversionRefused,
    EdgeconvError,
    ToolFailed,
    UnsupportedOperators,
    WorkerOutOfMemory,
    WorkerTimedOut,
)
from edgeconv.quantize.verify import STATEFUL
from edgeconv.tf.shapes import FixedShapes

if TYPE_CHECKING:
    from edgeconv.nouns import Signature
    from edgeconv.plan import Plan
    from edgeconv.stages.prepare import Prepared

# Operators that run another subgraph, or share data with one: no quantiser looks through them.
_LOOPS = frozenset({"CALL", "CALL_ONCE", "IF", "STABLEHLO_WHILE", "WHILE"})
# What the converter says of loops whose shapes are open.
_LIST_OPERATORS = "TensorList"
_KILLED = "SIGKILL"
# No change of form makes numbers out of what is none.
_NOT_FINITE = "values that are not finite"


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One way to convert: `text` says it to people."""

    text: str
    fixed: FixedShapes
    unroll: bool = False
    is_first: bool = True


def first_rung(plan: Plan) -> Rung:
    """The model as the user asked for it."""
    asked = plan.asked
    fixed = FixedShapes(batch=asked.batch, by_input=asked.shapes)
    words = [f"batch fixed to {asked.batch}"] if asked.batch else []
    words += [f"{name} fixed to {list(shape)}" for name, shape in asked.shapes.items()]
    return Rung(text=", ".join(words) or "as it is", fixed=fixed)


def next_rung(plan: Plan, rung: Rung, prepared: Prepared | None) -> Rung | None:
    """What else can be tried after `rung`, None for nothing.

    `prepared` is what `rung` gave, None where it gave no float32 graph.
    """
    if plan.model.kind == "tflite" or rung.unroll:
        return None
    if rung.is_first and (prepared is None or _is_open(prepared)):
        fixed = _fixed_rung(plan, prepared)
        # The user may have asked for no less already.
        if msgspec.structs.replace(rung.fixed, only_open=True) != fixed.fixed:
            return fixed
    if prepared is None or has_loops(prepared) or has_fused_layers(prepared):
        fixed = rung if prepared is None and not rung.is_first else _fixed_rung(plan, prepared)
        words = f"loops unrolled, {fixed.text}"
        return Rung(text=words, fixed=fixed.fixed, unroll=True, is_first=False)
    return None


def _fixed_rung(plan: Plan, prepared: Prepared | None) -> Rung:
    asked = plan.asked
    shapes = dict(asked.shapes) or (_shapes_of_samples(prepared) if prepared else {})
    fixed = FixedShapes(batch=asked.batch or 1, by_input=shapes, only_open=True)
    words = f"batch fixed to {fixed.batch}"
    if shapes and not asked.shapes:
        each = "; ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        words = f"shapes fixed to those of the samples: {each}"
    return Rung(text=words, fixed=fixed, is_first=False)


def is_curable(error: EdgeconvError) -> bool:
    """Whether another rung may convert what ended in this error.

    What the user's own limits stopped, or somebody killed, would end so again; and a model
    or data that are refused for what they are stay so.
    """
    if isinstance(error, WorkerTimedOut | WorkerOutOfMemory):
        return False
    if _KILLED in error.message or _NOT_FINITE in error.message:
        return False
    if isinstance(error, UnsupportedOperators):
        return _LIST_OPERATORS in error.message
    return isinstance(error, ConversionRefused | ToolFailed)


def has_loops(prepared: Prepared) -> bool:
    """Whether the float32 graph has loops and branches, which no quantiser looks through."""
    return bool(prepared.operators & _LOOPS)


def has_fused_layers(prepared: Prepared) -> bool:
    """Whether the float32 graph has recurrent layers as one operator each.

    TFLiteConverter quantises some of them, ai-edge-quantizer none.
    """
    return bool(prepared.operators & STATEFUL)


def _is_open(prepared: Prepared) -> bool:
    """Whether a dimension within a sample, or that of a loop's batch, is dynamic."""
    inputs = [spec for part in prepared.parts for spec in part.signature.inputs]
    within = any(-1 in spec.shape[1:] for spec in inputs)
    loops = has_loops(prepared) or has_fused_layers(prepared)
    return within or (loops and any(-1 in spec.shape for spec in inputs))


def _shapes_of_samples(prepared: Prepared) -> dict[str, tuple[int, ...]]:
    """The shapes of the samples, by input, for inputs with dynamic dimensions within a sample."""
    from edgeconv.data import read_samples

    return {
        spec.name: (part.split.batch, *arrays[spec.name].shape[1:])
        for part in prepared.parts
        if not part.split.synthetic
        for arrays in [read_samples(part.split.held_back).arrays]
        for spec in part.signature.inputs
        if -1 in spec.shape[1:]
    }


def dynamic_notes(signatures: tuple[Signature, ...]) -> tuple[str, ...]:
    """What is to be said of dimensions that stay dynamic within a sample."""
    from edgeconv.source import shape_text

    return tuple(
        f"input {spec.name!r} keeps its dynamic shape {shape_text(spec)}: the runtime allocates "
        "anew when the size changes"
        for signature in signatures
        for spec in signature.inputs
        if -1 in spec.shape[1:]
    )
