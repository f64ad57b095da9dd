"""From an examined candidate to a published artifact: its manifest, and both files in place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.conversion.plan import FinishedArtifact, Plan, manifest_bytes
from edgeconv.model.tflite import oldest_runtime
from edgeconv.system.store import publish_all, sha256_file, tool_versions
from edgeconv.system.store.notes import in_project
from edgeconv.types import Artifact, CalibrationRange, LadderStep, with_scaled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgeconv.conversion.candidate import Candidate, VerifiedCandidate
    from edgeconv.conversion.climb import SessionResult
    from edgeconv.conversion.prepare import PreparedModel
    from edgeconv.conversion.session import Session


def finish_artifact(plan: Plan, good: SessionResult) -> FinishedArtifact:
    """The artifact of the plan that a good candidate is."""
    artifact = _manifest(plan, good.session, good.examined)
    candidate = good.examined.candidate
    return FinishedArtifact(artifact=artifact, file=candidate.file, choosing_s=candidate.choosing_s)


def publish(plan: Plan, artifacts: Iterable[FinishedArtifact]) -> None:
    """Put all the files and manifests in place, or none of them if the disk is full.

    A manifest has the hash of the file that belongs to it, so a reader can tell a pair that was
    torn by a crash. It goes first: a file without a manifest looks like one that edgeconv did not
    make, and would be used without the manifest's facts.
    """
    contents: dict[Path, bytes | Path] = {}
    for finished in artifacts:
        target = plan.target(finished.artifact.recipe.name)
        contents |= {
            target.with_suffix(".json"): manifest_bytes(finished.artifact),
            target: finished.file,
        }
    publish_all(contents)


def _range(plan: Plan, candidate: Candidate) -> CalibrationRange:
    """How the ranges of the file were found: auto is minmax where it chose nothing."""
    record = candidate.post_training
    used = plan.calibration_range
    if candidate.recipe.has_ranges and record is not None:
        used = record.calibration_range
    return "minmax" if used == "auto" else used


def _manifest(plan: Plan, session: Session, examined: VerifiedCandidate) -> Artifact:
    candidate, summary, prepared = examined.candidate, examined.summary, session.prepared
    recipe = candidate.recipe
    scaled = session.reference.answer.scaled if session.reference else {}
    splits = [part.split for part in prepared.parts]
    records = [
        msgspec.structs.replace(session.checked(split.record), range=_range(plan, candidate))
        for split in splits
        if split.record
    ]
    artifact = Artifact(
        name=plan.model.name,
        file=plan.target(recipe.name).name,
        key=plan.key(recipe),
        sha256=sha256_file(candidate.file),
        size_bytes=candidate.file.stat().st_size,
        source_path=plan.source_path,
        source_kind=plan.model.kind,
        source_sha256=plan.model.sha256,
        opening=plan.published_opening,
        recipe=recipe,
        engine=candidate.engine,
        signatures=tuple(
            with_scaled(each, scaled.get(each.key, ())) for each in examined.signatures
        ),
        operators=summary.operators,
        quantized_weight_share=summary.quantized_weight_share,
        float16_weight_share=summary.float16_weight_share,
        float_operators=summary.float_operators,
        left_in_float=examined.floats.operators,
        integer_share=examined.floats.integer_share if recipe.full_integer else None,
        verification=examined.verification,
        calibration=tuple(records) if recipe.calibrates else (),
        preprocessing=dict(plan.request.preprocess.by_input),
        oldest_runtime=oldest_runtime(candidate.file.read_bytes(), recipe.name),
        target=examined.target,
        post_training=candidate.post_training,
        shared_scales=candidate.shared_scales,
        qat=candidate.qat,
        ladder=_ladder(prepared, candidate),
        notes=(
            *plan.model.notes,
            *prepared.notes,
            *dict.fromkeys(note for split in splits for note in split.notes),
            *candidate.notes,
        ),
        details=candidate.details,
        tools=tool_versions(),
    )
    return in_project(artifact, plan.directory)


def _ladder(prepared: PreparedModel, candidate: Candidate) -> tuple[LadderStep, ...]:
    """The attempts that failed before this one, and this one; nothing where none failed."""
    steps = (*prepared.ladder[:-1], *candidate.ladder)
    if not any(step.failed for step in steps):
        return ()
    text = prepared.rung.text
    if prepared.ladder:
        loaded = prepared.ladder[-1].attempt
        text = loaded if prepared.rung.is_first else f"{loaded}, {text}"
    if candidate.recipe.name != "float32":
        engines = {"litert": "litert-quantizer", "tflite": "TFLiteConverter"}
        text += f", quantized with {engines[candidate.engine]}"
    return (*steps, LadderStep(attempt=text))
