"""Limits on one model's own numbers, and on what it is made of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.errors import UsageError
from edgeconv.gate.drops import accuracy_evidence
from edgeconv.gate.times import latency_p50, latency_ratio
from edgeconv.types import MAX_SNR_DB, OperatorsLimit, RuntimeLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.gate.asked import Asked, Question
    from edgeconv.types import Artifact, Finding, Measurement, Report

    Answer = Callable[[Asked, Measurement, Report], Finding | Question]

_PARTS = 3


def own_number(asked: Asked, row: Measurement, report: Report) -> Finding | Question:
    """The limit held against the model's number of that name."""
    return _ANSWERS[asked.name](asked, row, report)


def _plain(read: Callable[[Measurement], float | None]) -> Answer:
    return lambda asked, row, _: asked.plain(read(row), "it was not measured")


def _min_accuracy(asked: Asked, row: Measurement, _: Report) -> Finding | Question:
    accuracy = row.accuracy
    if accuracy is None or accuracy.samples == 0 or not math.isfinite(accuracy.value):
        return asked.missing("the accuracy was not measured")
    if not accuracy.higher_is_better:
        return asked.missing(f"of the metric {accuracy.metric} less is better")
    if len(accuracy.correct or accuracy.per_sample) != accuracy.samples:
        return asked.missing("there is no result for every sample")

    evidence = accuracy_evidence(accuracy, asked.judging)
    return asked.question(lambda levels: asked.judged(evidence, levels))


def _snr(asked: Asked, row: Measurement, _: Report) -> Finding:
    worst = min(row.agreement, key=lambda one: one.snr_db, default=None)
    if worst is None:
        return asked.missing("the outputs were not compared with a reference's")
    if worst.is_flat and worst.snr_db < MAX_SNR_DB:
        reason = f"output {worst.output} is the same throughout, so that there is no signal"
        return asked.missing(f"{reason}: measure on samples that it differs for")
    return asked.plain(worst.snr_db, "it is not finite", worst.output)


def _oldest_runtime(asked: Asked, row: Measurement, report: Report) -> Finding:
    assert isinstance(asked.limit, RuntimeLimit)
    allowed = _release(asked.limit.limit)
    artifact = _artifact_of(row, report)
    needs = artifact.oldest_runtime if artifact else None
    if needs is not None and needs.unknown:
        names = ", ".join(sorted({need.operator for need in needs.unknown}))
        return asked.missing(f"from which runtime on there is {names} is not known")
    if not row.oldest_runtime:
        return asked.missing("the oldest runtime is not known")
    holds = _release(row.oldest_runtime) <= allowed
    return asked.found("passed" if holds else "failed", row.oldest_runtime)


def _operators(asked: Asked, row: Measurement, report: Report) -> Finding:
    assert isinstance(asked.limit, OperatorsLimit)
    artifact = _artifact_of(row, report)
    if artifact is None:
        return asked.missing("the file has no manifest that says its operators")
    names = tuple(sorted({one.name for one in artifact.operators}))
    further = [name for name in names if name not in asked.limit.limit]
    subject = further[0] if len(further) == 1 else ""
    return asked.found("failed" if further else "passed", names, subject=subject)


def _artifact_of(row: Measurement, report: Report) -> Artifact | None:
    return next((one for one in report.artifacts if one.sha256 == row.sha256), None)


def _release(version: str) -> tuple[int, ...]:
    """A version to compare by, of three numbers. Raises `UsageError`."""
    parts = version.split(".")
    if not (1 <= len(parts) <= _PARTS and all(part.isascii() and part.isdigit() for part in parts)):
        raise UsageError(f"{version!r} is no release of a runtime", hint='such as "2.14.0"')
    return (*map(int, parts), *(0,) * (_PARTS - len(parts)))


_ANSWERS: dict[str, Answer] = {
    "max-size-bytes": _plain(lambda model: model.size_bytes),
    "max-gzip-size-bytes": _plain(lambda model: model.gzip_size_bytes),
    "max-size-ratio": _plain(lambda model: model.size_ratio),
    "max-latency-p50-us": latency_p50,
    "max-latency-ratio": latency_ratio,
    "max-peak-memory-bytes": _plain(lambda model: model.peak_memory_bytes),
    "max-arena-bytes": _plain(lambda model: model.arena_bytes),
    "min-accuracy": _min_accuracy,
    "min-output-snr-db": _snr,
    "oldest-runtime": _oldest_runtime,
    "allowed-operators": _operators,
}
