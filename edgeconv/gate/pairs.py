"""What a model is held beside, on the same samples: the trained baseline, and the lock."""

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
    """Two accuracies of the same samples, by the same metric.

    `is_same` says that not even the file is another one, and every answer as it was.
    """

    reference: Reference
    before: Accuracy
    after: Accuracy
    is_same: bool


@dataclass(frozen=True, kw_only=True)
class UnpairedAccuracies:
    """There is nothing to be paired with, and why.

    `is_same` says that the file and the samples are those of the reference all the same, so that
    no answer can be another one. `before` and `after` are known where they are of one metric, and
    of different samples.
    """

    reference: Reference
    reason: str
    is_same: bool = False
    before: Accuracy | None = None
    after: Accuracy | None = None


def pairs_of(
    row: Measurement, report: Report, locked: LockedModel | None
) -> Iterator[PairedAccuracies | UnpairedAccuracies]:
    """Of an artifact: beside the trained baseline; and of every model that is locked, the lock."""
    if row.role == "artifact":
        baseline = baseline_of(report)
        if baseline is None:
            yield UnpairedAccuracies(
                reference="baseline", reason="the trained model was not measured"
            )
        else:
            is_same = baseline.sha256 == row.sha256
            yield paired("baseline", baseline.accuracy, row.accuracy, is_same=is_same)
    was = locked.stage_of(row) if locked else None
    if locked is not None and was is not None:
        yield _beside_lock(row, report, locked, was)


def baseline_of(report: Report) -> Measurement | None:
    """The trained model; where the source is a .tflite, the float32 artifact made of it."""
    if report.baseline is not None:
        return report.baseline
    sources = {one.sha256 for one in report.artifacts if one.source_kind == "tflite"}
    rows = [row for row in report.measurements if row.recipe == "float32" and not row.error]
    return next((row for row in rows if row.sha256 in sources), None)


def _beside_lock(
    row: Measurement, report: Report, locked: LockedModel, was: LockedStage
) -> PairedAccuracies | UnpairedAccuracies:
    after = _by_metric(row, was.accuracy)
    data = report.data
    if data is None or data.sha256 != locked.test_sha256:
        return _of_others(was.accuracy, after, data, locked)
    is_same = was.sha256 == row.sha256
    if was.accuracy is None and after is None:
        # The preprocessing is no part of the samples: the same file may answer otherwise now.
        is_same = is_same and data.preprocessing == locked.preprocessing
        reason = (
            "without labels the lock has no answers to compare with; give the test data labels, or "
            "look at the outputs before you accept them with edgeconv check --update"
        )
        return UnpairedAccuracies(reference="lock", reason=reason, is_same=is_same)
    return paired("lock", was.accuracy, after, is_same=is_same)


def _by_metric(row: Measurement, was: Accuracy | None) -> Accuracy | None:
    """The accuracy of a model by the metric that is locked, where that was measured too."""
    measured = [one for one in (row.accuracy, *row.metrics) if one is not None]
    alike = (one for one in measured if was is not None and one.metric == was.metric)
    return next(alike, row.accuracy)


def _of_others(
    before: Accuracy | None, after: Accuracy | None, data: DataIdentity | None, locked: LockedModel
) -> UnpairedAccuracies:
    """The lock is of other samples: the two sets, each by its number and hash."""
    here = _named(data.samples, data.sha256) if data else "none"
    there = _named(locked.test_samples, locked.test_sha256)
    reason = f"the test samples are others than those of the lock: {here} here, {there} there"
    if before is None or after is None or before.metric != after.metric:
        return UnpairedAccuracies(reference="lock", reason=reason)
    return UnpairedAccuracies(reference="lock", reason=reason, before=before, after=after)


def _named(samples: int, sha256: str) -> str:
    return f"{samples} (hash {sha256[:_DIGITS]})"


def paired(
    reference: Reference, before: Accuracy | None, after: Accuracy | None, *, is_same: bool
) -> PairedAccuracies | UnpairedAccuracies:
    """Two accuracies, if they are of the same samples; `is_same`: they are of the same file."""
    if before is None or after is None:
        which = "this model" if after is None else "what it is compared with"
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
        return f"it has {after.samples} samples, and what it is compared with {before.samples}"
    counts = {len(before.correct or before.per_sample), len(after.correct or after.per_sample)}
    if counts != {after.samples} or bool(before.correct) != bool(after.correct):
        return "there is no result for every sample"
    return ""
