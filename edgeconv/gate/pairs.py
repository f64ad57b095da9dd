"""What a model is compared with on the same samples: the trained baseline, and the lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import (
        Accuracy,
        DataIdentity,
        LockedModel,
        LockedStage,
        Measurement,
        Reference,
        Report,
    )

_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class PairedAccuracies:
    """Two accuracies of the same samples and metric; `is_same`: of the same file and answers."""

    reference: Reference
    before: Accuracy
    after: Accuracy
    is_same: bool


@dataclass(frozen=True, kw_only=True)
class UnpairedAccuracies:
    """Why there is no pair.

    `is_same`: file and samples are those of the reference, so no answer can differ. `before` and
    `after` are set where they have the same metric and different samples.
    """

    reference: Reference
    reason: str
    is_same: bool = False
    before: Accuracy | None = None
    after: Accuracy | None = None


def pairs_of(
    row: Measurement, report: Report, locked: LockedModel | None
) -> Iterator[PairedAccuracies | UnpairedAccuracies]:
    """An artifact with the trained baseline, and a model that is locked with the lock."""
    if row.role == "artifact":
        baseline = baseline_of(report)
        if baseline is None:
            yield UnpairedAccuracies(
                reference="baseline", reason="the trained model was not measured"
            )
        else:
            is_same = baseline.sha256 == row.sha256
            yield pair_accuracies("baseline", baseline.accuracy, row.accuracy, is_same=is_same)
    stage = locked.stage_of(row) if locked else None
    if locked is not None and stage is not None:
        yield _paired_with_lock(row, report, locked, stage)


def baseline_of(report: Report) -> Measurement | None:
    """The trained model; for a .tflite source, the float32 artifact."""
    if report.baseline is not None:
        return report.baseline
    sources = {each.sha256 for each in report.artifacts if each.source_kind == "tflite"}
    rows = [row for row in report.measurements if row.recipe == "float32" and not row.error]
    return next((row for row in rows if row.sha256 in sources), None)


def _paired_with_lock(
    row: Measurement, report: Report, locked: LockedModel, stage: LockedStage
) -> PairedAccuracies | UnpairedAccuracies:
    after = _by_metric(row, stage.accuracy)
    data = report.data
    if data is None or data.sha256 != locked.test_sha256:
        return _on_other_samples(stage.accuracy, after, data, locked)
    # Other kernels may answer otherwise from the same file.
    is_same = stage.sha256 == row.sha256 and stage.is_measured_like(row)
    if stage.accuracy is None and after is None:
        # Preprocessing is not part of the samples, and changes the answers of the same file.
        is_same = is_same and data.preprocessing == locked.preprocessing
        reason = (
            "without labels the lock has no answers to compare with; add labels to the test data, "
            "or review the outputs before you accept them with edgeconv check --update"
        )
        return UnpairedAccuracies(reference="lock", reason=reason, is_same=is_same)
    return pair_accuracies("lock", stage.accuracy, after, is_same=is_same)


def _by_metric(row: Measurement, locked: Accuracy | None) -> Accuracy | None:
    measured = [each for each in (row.accuracy, *row.metrics) if each is not None]
    alike = (each for each in measured if locked is not None and each.metric == locked.metric)
    return next(alike, row.accuracy)


def _on_other_samples(
    before: Accuracy | None, after: Accuracy | None, data: DataIdentity | None, locked: LockedModel
) -> UnpairedAccuracies:
    here = _samples_text(data.samples, data.sha256) if data else "none"
    there = _samples_text(locked.test_samples, locked.test_sha256)
    reason = f"the test samples differ from those of the lock: {here} here, {there} there"
    if before is None or after is None or before.metric != after.metric:
        return UnpairedAccuracies(reference="lock", reason=reason)
    return UnpairedAccuracies(reference="lock", reason=reason, before=before, after=after)


def _samples_text(samples: int, sha256: str) -> str:
    return f"{samples} (hash {sha256[:_DIGITS]})"


def pair_accuracies(
    reference: Reference, before: Accuracy | None, after: Accuracy | None, *, is_same: bool
) -> PairedAccuracies | UnpairedAccuracies:
    """Two accuracies, if they are of the same samples; `is_same`: of the same file."""
    if before is None or after is None:
        which = "this model" if after is None else "its reference"
        return UnpairedAccuracies(
            reference=reference, reason=f"the accuracy of {which} was not measured"
        )
    if reason := _unlike(before, after):
        return UnpairedAccuracies(reference=reference, reason=reason)
    is_same = is_same and before == after
    return PairedAccuracies(reference=reference, before=before, after=after, is_same=is_same)


def _unlike(before: Accuracy, after: Accuracy) -> str:
    """Why the two cannot be paired; "" where they can."""
    if before.metric != after.metric or before.higher_is_better != after.higher_is_better:
        names = f'"{after.metric}", "{before.metric}"'
        return (
            f"the metric is {after.metric}, and was {before.metric}; measure both to compare them: "
            f"metric = [{names}] in [bench]"
        )
    if before.samples != after.samples or after.samples == 0:
        return f"it has {after.samples} samples, its reference {before.samples}"
    counts = {len(before.correct or before.per_sample), len(after.correct or after.per_sample)}
    if counts != {after.samples} or bool(before.correct) != bool(after.correct):
        return "there is no result for every sample"
    return ""
