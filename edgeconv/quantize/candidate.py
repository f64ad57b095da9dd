"""A made file on its way to being published: what it is, and how its outputs compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from edgeconv.errors import VerificationFailed
from edgeconv.nouns import GraphSummary, Recipe, Signature, Verification
from edgeconv.quantize.verify import (
    check_graph,
    judge_outputs,
    output_errors,
    refuse_not_finite,
    refuse_senseless_scales,
)
from edgeconv.tflite import largest_scales, output_steps, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    Outputs = Mapping[str, NDArray[np.generic]]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a recipe gave, which nobody has looked at yet."""

    recipe: Recipe
    file: Path
    engine: Literal["litert", "tflite"]
    notes: tuple[str, ...] = ()


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that passed: what is in it, and the evidence."""

    candidate: Candidate
    summary: GraphSummary
    signature: Signature
    verification: Verification


def examine_graph(
    candidate: Candidate, key: str
) -> tuple[GraphSummary, Signature, tuple[str, ...]]:
    """What is in the candidate's file, its signature `key`, and warnings about it.

    Raises `VerificationFailed`, see `check_graph`.
    """
    content = candidate.file.read_bytes()
    summary = summarise(content, where=candidate.recipe.name)
    refuse_senseless_scales(candidate.recipe, largest_scales(content))
    signature = next((s for s in summary.signatures if s.key == key), None)
    if signature is None:
        raise VerificationFailed(f"{candidate.recipe.name}: the signature {key!r} got lost")
    return summary, signature, check_graph(candidate.recipe, summary, signature)


def examine(
    candidate: Candidate,
    key: str,
    actual: Outputs,
    expected: Outputs | None,
    *,
    reference: str,
    synthetic: bool,
    runtime: str,
) -> Examined:
    """Hold a candidate and its outputs on the held-back samples against the reference.

    `expected` of None says that there is no independent reference: the float32 model of
    a .tflite source is that source. Raises `VerificationFailed`.
    """
    summary, signature, warnings = examine_graph(candidate, key)
    refuse_not_finite(candidate.recipe, actual)
    errors = output_errors(expected, actual) if expected is not None else ()
    steps = output_steps(candidate.file.read_bytes(), key)
    doubts = judge_outputs(candidate.recipe, errors, steps)
    return Examined(
        candidate=candidate,
        summary=summary,
        signature=signature,
        verification=Verification(
            reference=reference,
            samples=len(next(iter(actual.values()))),
            synthetic=synthetic,
            runtime=runtime,
            outputs=errors,
            warnings=(*warnings, *doubts),
        ),
    )
