"""A made file on its way to being published: what it is, and how its outputs compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from edgeconv.types import (
    GraphSummary,
    LadderStep,
    PostTraining,
    QatRecord,
    Recipe,
    Signature,
    TargetCheck,
    Verification,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


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


class ComparedOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a signature `key` of a candidate answered to the held-back samples.

    `expected` of None says that there is no independent reference: the float32 model of
    a .tflite source is that source.
    """

    key: str
    actual: dict[str, Any]
    expected: dict[str, Any] | None


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
    """What is in a candidate's file, the signatures asked for, and warnings about it."""

    summary: GraphSummary
    signatures: tuple[Signature, ...]
    warnings: tuple[str, ...]
