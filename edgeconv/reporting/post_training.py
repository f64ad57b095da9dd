"""How the ranges and methods of an artifact came about, in a line or two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units

if TYPE_CHECKING:
    from edgeconv.types import Artifact, MethodTrial, PostTraining


def post_training_remarks(artifact: Artifact) -> list[str]:
    """What was done after training, and why that; nothing for a plain artifact."""
    remarks = []
    if artifact.recipe.layers:
        rules = (f"{rule.pattern} {rule.precision}" for rule in artifact.recipe.layers)
        remarks.append(f"layers of their own precision: {units.plain(', '.join(rules))}")
    record = artifact.post_training
    if record is None:
        return remarks
    remarks.append(f"post-training methods: {_methods(record.methods)}{_ranges(artifact, record)}")
    if record.trials:
        best = next(
            trial
            for trial in record.trials
            if (trial.calibration_range, trial.methods)
            == (record.calibration_range, record.methods)
        )
        remarks.append(_chosen(record, best))
    return remarks


def _methods(methods: tuple[str, ...]) -> str:
    return ", ".join(methods) or "none"


def _ranges(artifact: Artifact, record: PostTraining) -> str:
    return f"; ranges: {record.calibration_range}" if artifact.recipe.has_ranges else ""


def _chosen(record: PostTraining, best: MethodTrial) -> str:
    first = record.trials[0]
    said = (
        f"chosen from {len(record.trials)} by {units.counted(record.held_back, 'sample')} held "
        f"back from calibration: SNR against float32 {units.decibels(best.snr_db)}"
    )
    return said if best is first else f"{said}, {units.decibels(first.snr_db)} without"
