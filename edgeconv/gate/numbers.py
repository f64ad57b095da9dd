"""Limits on one model's own numbers, on its times, and on what it is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import UsageError
from edgeconv.gate.drops import accuracy_evidence, accuracy_interval
from edgeconv.statistics.evidence import Bounded
from edgeconv.statistics.rounds import median_interval, ratio_bounds
from edgeconv.types import MAX_SNR_DB, OperatorsLimit, RuntimeLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.gate.asked import Asked, Interval, Question
    from edgeconv.statistics.evidence import Levels
    from edgeconv.types import Artifact, Finding, Measurement, Report

    Answer = Callable[[Asked, Measurement, Report], Finding | Question]

_PARTS = 3
_MOST_ROUNDS = 1000
_ONE_ROUND = "a single round has no interval: measure with --rounds 3 or more"
_NO_PARTNER = "there is no float32 .tflite that was timed in the same rounds"


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
    evidence, interval = accuracy_evidence(accuracy, asked.judging), accuracy_interval(accuracy)
    return asked.question(lambda levels: asked.judged(evidence, levels, interval=interval))


def _latency_p50(asked: Asked, row: Measurement, _: Report) -> Finding | Question:
    """The median time of an invoke."""
    latency = row.latency
    if latency is None or not math.isfinite(latency.p50_us) or latency.p50_us <= 0:
        return asked.missing("it was not timed")
    rounds = latency.rounds_us

    def bounds(low: float, high: float) -> Interval:
        return median_interval(rounds, 2 * low)[0], median_interval(rounds, 2 * high)[1]

    evidence = _Times("student, of rounds", latency.p50_us, len(rounds), bounds)
    return _timed(asked, evidence, latency.p50_interval_us)


def _latency_ratio(asked: Asked, row: Measurement, report: Report) -> Finding | Question:
    """The median time over that of the float32 .tflite in the same runtime, by rounds."""
    ratio = row.latency_ratio
    if row.latency is None or ratio is None or not math.isfinite(ratio):
        return asked.missing("it was not timed beside a float32 .tflite")
    other, rounds = row.float_latency(report.measurements), row.latency.rounds_us
    if other is row.latency:
        return asked.plain(ratio)
    if other is None or len(other.rounds_us) != len(rounds):
        return asked.found("inconclusive", ratio, reason=_NO_PARTNER)
    if len(rounds) == 1:
        return asked.found("inconclusive", ratio, reason=_ONE_ROUND)
    bounds = partial(ratio_bounds, rounds, other.rounds_us)
    evidence = _Times("student, of ratios by round", ratio, len(rounds), bounds)
    return _timed(asked, evidence, row.latency_ratio_interval)


@dataclass(frozen=True)
class _Times(Bounded):
    """Evidence of a time, or a ratio of two, of which the rounds are the samples."""

    method: str
    value: float
    samples: int
    bounded: Callable[[float, float], Interval]

    def bounds(self, low_level: float, high_level: float) -> Interval:
        """See `Bounded`."""
        return self.bounded(low_level, high_level)

    def enough(self, limit: float, levels: Levels) -> int | None:
        """How many rounds tell a time from a limit, if both stay as they are."""
        from scipy.special import stdtrit

        if self.value == limit or limit <= 0:
            return None
        _, high = self.bounds(levels.fail, levels.hold)
        far = -float(stdtrit(max(1, self.samples - 1), levels.hold))
        spread = abs(math.log(high / self.value)) / far * math.sqrt(self.samples)
        rounds = (levels.far * spread / math.log(self.value / limit)) ** 2 + 2
        return max(self.samples + 1, math.ceil(rounds)) if rounds <= _MOST_ROUNDS else None


def _timed(asked: Asked, evidence: _Times, interval: Interval | None) -> Question:
    """As of any evidence, but what there is of it are rounds, and no samples."""

    def answer(levels: Levels) -> Finding:
        found = asked.judged(evidence, levels, interval=interval)
        needed, reason = found.samples_needed, found.reason
        if needed is not None:
            reason = f"{evidence.samples} rounds are too few: {needed} (--rounds) may tell"
        return msgspec.structs.replace(found, samples=None, samples_needed=None, reason=reason)

    return asked.question(answer)


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
        raise UsageError(f"{version!r} is not a release of a runtime", hint='such as "2.14.0"')
    return (*map(int, parts), *(0,) * (_PARTS - len(parts)))


_ANSWERS: dict[str, Answer] = {
    "max-size-bytes": _plain(lambda model: model.size_bytes),
    "max-gzip-size-bytes": _plain(lambda model: model.gzip_size_bytes),
    "max-size-ratio": _plain(lambda model: model.size_ratio),
    "max-latency-p50-us": _latency_p50,
    "max-latency-ratio": _latency_ratio,
    "max-peak-memory-bytes": _plain(lambda model: model.peak_memory_bytes),
    "max-arena-bytes": _plain(lambda model: model.arena_bytes),
    "min-accuracy": _min_accuracy,
    "min-output-snr-db": _snr,
    "oldest-runtime": _oldest_runtime,
    "allowed-operators": _operators,
}
