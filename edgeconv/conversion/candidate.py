"""A file before it is published: what it is, and how its outputs compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from edgeconv.model.tflite.layers import FloatsLeft
from edgeconv.statistics.outputs import SampleErrors
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


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a recipe gave, not yet verified.

    `ladder` are the attempts that failed before it; `qat` is the training it came from.
    `float_outputs` are the tensors of the layers that a rule leaves in float. `choosing_s` is what
    trials of methods took, in seconds.
    """

    recipe: Recipe
    file: Path
    engine: Literal["litert", "tflite"]
    post_training: PostTraining | None = None
    float_outputs: tuple[str, ...] = ()
    shared_scales: tuple[SharedScale, ...] = ()
    qat: QatRecord | None = None
    notes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    ladder: tuple[LadderStep, ...] = ()
    choosing_s: float = 0.0

    @property
    def may_compete(self) -> bool:
        """Whether it is compared with the other engine's: all that "auto" tried left it far off."""
        recipe, record = self.recipe, self.post_training
        if recipe.engine != "auto" or recipe.methods != ("auto",):
            return False
        return self.engine == "tflite" or (record is not None and record.closeness == "far")


class VerifiedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that passed: what is in it, and the evidence.

    `errors` are those in each held-back sample, of one that may compete. `floats` are what computes
    in float in one of a full-integer recipe, and `unruled` the operators that no rule keeps there.
    """

    candidate: Candidate
    summary: GraphSummary
    signatures: tuple[Signature, ...]
    verification: Verification
    target: TargetCheck | None = None
    errors: SampleErrors | None = None
    floats: FloatsLeft = FloatsLeft()
    unruled: tuple[str, ...] = ()

    def with_ladder(self, steps: Sequence[LadderStep]) -> VerifiedCandidate:
        """The same with `steps` before the attempts that it has already."""
        candidate = msgspec.structs.replace(self.candidate, ladder=(*steps, *self.candidate.ladder))
        return msgspec.structs.replace(self, candidate=candidate)

    def with_warnings(self, warnings: Sequence[str], *, first: bool = False) -> VerifiedCandidate:
        """The same with more warnings, after all others or before them."""
        before = self.verification
        own = before.warnings
        every = (*warnings, *own) if first else (*own, *warnings)
        after = msgspec.structs.replace(before, warnings=every)
        return msgspec.structs.replace(self, verification=after)


class CandidateGraph(NamedTuple):
    """What is in a candidate's file, the chosen signatures, warnings, and what is in float."""

    summary: GraphSummary
    signatures: tuple[Signature, ...]
    warnings: tuple[str, ...]
    floats: FloatsLeft
    unruled: tuple[str, ...]
