"""A file before it is published: what it is, and how its outputs compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from edgeconv.types import (
    GraphSummary,
    LadderStep,
    PostTraining,
    QatRecord,
    Recipe,
    SharedScale,
    Signature,
    TargetCheck,
    Verification,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a recipe gave, not yet verified.

    `ladder` are the attempts that failed before it; `qat` is the training it came from.
    `float_operators` are those that a rule of the recipe leaves in float. `choosing_s` is what
    trials of methods took, in seconds.
    """

    recipe: Recipe
    file: Path
    engine: Literal["litert", "tflite"]
    post_training: PostTraining | None = None
    float_operators: tuple[str, ...] = ()
    shared_scales: tuple[SharedScale, ...] = ()
    qat: QatRecord | None = None
    notes: tuple[str, ...] = ()
    ladder: tuple[LadderStep, ...] = ()
    choosing_s: float = 0.0


class VerifiedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that passed: what is in it, and the evidence."""

    candidate: Candidate
    summary: GraphSummary
    signatures: tuple[Signature, ...]
    verification: Verification
    target: TargetCheck | None = None

    def with_ladder(self, steps: Sequence[LadderStep]) -> VerifiedCandidate:
        """The same with `steps` before the attempts that it has already."""
        candidate = msgspec.structs.replace(self.candidate, ladder=(*steps, *self.candidate.ladder))
        return msgspec.structs.replace(self, candidate=candidate)

    def with_warning(self, warning: str) -> VerifiedCandidate:
        """The same with one more warning."""
        before = self.verification
        after = msgspec.structs.replace(before, warnings=(*before.warnings, warning))
        return msgspec.structs.replace(self, verification=after)


class CandidateGraph(NamedTuple):
    """What is in a candidate's file, the chosen signatures, and warnings about it."""

    summary: GraphSummary
    signatures: tuple[Signature, ...]
    warnings: tuple[str, ...]
