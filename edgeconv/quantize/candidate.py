"""A made file on its way to being published: what it is, and how its outputs compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from edgeconv.errors import InputRefused, VerificationFailed
from edgeconv.quantize.verify import (
    check_graph,
    judge_outputs,
    made_share,
    output_errors,
    refuse_not_finite,
    refuse_senseless_scales,
)
from edgeconv.tflite import float_layers, largest_scales, output_steps, summarise
from edgeconv.types import (
    GraphSummary,
    LadderStep,
    OutputError,
    PostTraining,
    QatRecord,
    Recipe,
    Signature,
    TargetCheck,
    Verification,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


# TFLiteConverter leaves weights of fewer numbers as they are.
_TFLITE_LEAST = 1024
_NAMED_LAYERS = 3


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a recipe gave, which nobody has looked at yet.

    `ladder` are the attempts that failed before it; `qat` is the training it came from.
    `float_operators` are those that a rule of the recipe leaves in float.
    """

    recipe: Recipe
    file: Path
    engine: Literal["litert", "tflite"]
    post_training: PostTraining | None = None
    float_operators: tuple[str, ...] = ()
    qat: QatRecord | None = None
    notes: tuple[str, ...] = ()
    ladder: tuple[LadderStep, ...] = ()


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """What a signature `key` of a candidate answered to the held-back samples.

    `expected` of None says that there is no independent reference: the float32 model of
    a .tflite source is that source.
    """

    key: str
    actual: dict[str, Any]
    expected: dict[str, Any] | None


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that passed: what is in it, and the evidence."""

    candidate: Candidate
    summary: GraphSummary
    signatures: tuple[Signature, ...]
    verification: Verification
    target: TargetCheck | None = None


class ExaminedGraph(NamedTuple):
    """What is in a candidate's file, the signatures asked for, and warnings about it."""

    summary: GraphSummary
    signatures: tuple[Signature, ...]
    warnings: tuple[str, ...]


def examine_graph(candidate: Candidate, keys: Sequence[str]) -> ExaminedGraph:
    """What can be said of the candidate's file before it is run.

    Raises `VerificationFailed`, see `check_graph`; and where nothing was quantized, and
    something could be.
    """
    content = candidate.file.read_bytes()
    try:
        summary = summarise(content, where=candidate.recipe.name)
    except InputRefused as error:
        # Nobody brought this file: the quantiser wrote it.
        raise VerificationFailed(f"the quantiser made no sound file: {error.message}") from error
    refuse_senseless_scales(candidate.recipe, largest_scales(content))
    by_key = {signature.key: signature for signature in summary.signatures}
    warnings: dict[str, None] = {}
    for key in keys:
        if key not in by_key:
            raise VerificationFailed(f"{candidate.recipe.name}: the signature {key!r} got lost")
        warnings |= dict.fromkeys(
            check_graph(candidate.recipe, summary, by_key[key], candidate.float_operators)
        )
    if not made_share(candidate.recipe, summary):
        warnings |= dict.fromkeys(_refuse_untouched(candidate, content))
    return ExaminedGraph(summary, tuple(by_key[key] for key in keys), tuple(warnings))


def _refuse_untouched(candidate: Candidate, content: bytes) -> tuple[str, ...]:
    """Raise `VerificationFailed` for weights that the recipe has a kernel for, if none became so.

    Returns a warning where TFLiteConverter left all of them for being few.
    """
    recipe = candidate.recipe
    # The weights that a rule keeps, and those of products of matrices in float16, are to stay.
    kept = {*candidate.float_operators, *(("BATCH_MATMUL",) if recipe.name == "float16" else ())}
    able = [one for one in float_layers(content) if one.compressible and one.operator not in kept]
    able.sort(key=lambda one: -one.compressible)
    if not able:
        return ()
    most = [f"{one.operator} {one.name!r} ({one.compressible:,} weights)" for one in able]
    more = f" and {len(able) - _NAMED_LAYERS} more" if len(able) > _NAMED_LAYERS else ""
    layers = f"{', '.join(most[:_NAMED_LAYERS])}{more}"
    if candidate.engine == "tflite" and able[0].compressible < _TFLITE_LEAST:
        few = f"fewer than {_TFLITE_LEAST:,} weights"
        return (f"TFLiteConverter quantizes no layer of {few}, and all are such: {layers}",)
    raise VerificationFailed(
        f"{recipe.name} was asked for, and nothing was quantized, though the recipe has kernels "
        f"for {layers}",
        hint="convert the float32 model that the file was made from, or leave the recipe out",
    )


def compare(
    candidate: Candidate, compared: Sequence[Compared]
) -> tuple[tuple[OutputError, ...], tuple[str, ...]]:
    """How far the outputs are from what is expected, and doubts about them.

    Outputs are called KEY/OUTPUT where there are several signatures. Raises
    `VerificationFailed` where they are too far.
    """
    errors: list[OutputError] = []
    doubts: list[str] = []
    for one in compared:
        refuse_not_finite(candidate.recipe, one.actual)
        if one.expected is None:
            continue
        steps = output_steps(candidate.file.read_bytes(), one.key)
        own = output_errors(one.expected, one.actual, steps)
        doubts += judge_outputs(candidate.recipe, own)
        errors += own if len(compared) == 1 else [_renamed(one.key, error) for error in own]
    return tuple(errors), tuple(doubts)


def _renamed(key: str, error: OutputError) -> OutputError:
    return msgspec.structs.replace(error, output=f"{key}/{error.output}")


def examine(
    candidate: Candidate,
    graph: ExaminedGraph,
    compared: Sequence[Compared],
    *,
    reference: str,
    synthetic: bool,
    runtime: str,
) -> Examined:
    """Hold a candidate and its outputs on the held-back samples against the reference.

    Raises `VerificationFailed`.
    """
    errors, doubts = compare(candidate, compared)
    return Examined(
        candidate=candidate,
        summary=graph.summary,
        signatures=graph.signatures,
        verification=Verification(
            reference=reference,
            samples=sum(len(next(iter(one.actual.values()))) for one in compared),
            synthetic=synthetic,
            runtime=runtime,
            outputs=errors,
            warnings=(*graph.warnings, *doubts),
        ),
    )
