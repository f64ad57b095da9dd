"""Limits on numbers of one model: size, times, memory, accuracy, outputs and operators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from edgeconv.gate.drops import accuracy_estimate, accuracy_interval
from edgeconv.statistics.comparison import median_interval, ratio_bounds
from edgeconv.statistics.estimate import BoundedEstimate
from edgeconv.types import MAX_SNR_DB, OperatorsLimit, RuntimeLimit
from edgeconv.types.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.gate.budget import Interval, LimitCheck, OpenLimit
    from edgeconv.statistics.estimate import Levels
    from edgeconv.types import Artifact, Finding, Measurement, Report

    Answer = Callable[[LimitCheck, Measurement, Report], Finding | OpenLimit]

_PARTS = 3
_MOST_ROUNDS = 1000
_ONE_ROUND = "a single round has no interval: measure with --rounds 3 or more"
_NO_PARTNER = "there is no float32 .tflite that was timed in the same rounds"


def own_number(check: LimitCheck, row: Measurement, report: Report) -> Finding | OpenLimit:
    """The limit checked against the model's number of that name."""
    return _ANSWERS[check.name](check, row, report)


def _plain(
    read: Callable[[Measurement], float | None], reason: str = "it was not measured"
) -> Answer:
    return lambda check, row, _: check.compare(read(row), reason)


def _min_accuracy(check: LimitCheck, row: Measurement, _: Report) -> Finding | OpenLimit:
    accuracy = row.accuracy
    if accuracy is None or accuracy.samples == 0 or not math.isfinite(accuracy.value):
        return check.missing("the accuracy was not measured")
    if not accuracy.higher_is_better:
        return check.missing(f"less is better for the metric {accuracy.metric}")
    if len(accuracy.correct or accuracy.per_sample) != accuracy.samples:
        return check.missing("there is no result for every sample")
    estimate, interval = accuracy_estimate(accuracy, check.statistics), accuracy_interval(accuracy)
    return check.defer(lambda levels: check.test(estimate, levels, interval=interval))


def _latency_p50(check: LimitCheck, row: Measurement, _: Report) -> Finding | OpenLimit:
    latency = row.latency
    if latency is None or not math.isfinite(latency.p50_us) or latency.p50_us <= 0:
        return check.missing("it was not timed")
    rounds = latency.rounds_us

    def bounds(low: float, high: float) -> Interval:
        return median_interval(rounds, 2 * low)[0], median_interval(rounds, 2 * high)[1]

    estimate = _Times("student, of rounds", latency.p50_us, len(rounds), bounds)
    return _timed(check, estimate, latency.p50_interval_us)


def _latency_ratio(check: LimitCheck, row: Measurement, report: Report) -> Finding | OpenLimit:
    """The median time over the float32 .tflite's in the same runtime, by rounds."""
    ratio = row.latency_ratio
    if row.latency is None or ratio is None or not math.isfinite(ratio):
        return check.missing("it was not timed with a float32 .tflite")
    other, rounds = row.float_latency(report.measurements), row.latency.rounds_us
    if other is row.latency:
        return check.compare(ratio)
    if other is None or len(other.rounds_us) != len(rounds):
        return check.finding("inconclusive", ratio, reason=_NO_PARTNER)
    if len(rounds) == 1:
        return check.finding("inconclusive", ratio, reason=_ONE_ROUND)
    bounds = partial(ratio_bounds, rounds, other.rounds_us)
    estimate = _Times("student, of ratios by round", ratio, len(rounds), bounds)
    return _timed(check, estimate, row.latency_ratio_interval)


@dataclass(frozen=True)
class _Times(BoundedEstimate):
    """A time, or a ratio of two times, whose samples are rounds."""

    method: str
    value: float
    samples: int
    bounded: Callable[[float, float], Interval]

    def bounds(self, low_level: float, high_level: float) -> Interval:
        """See `BoundedEstimate`."""
        return self.bounded(low_level, high_level)

    def enough(self, limit: float, levels: Levels) -> int | None:
        """How many rounds distinguish the time from the limit, if it stays the same."""
        from scipy.special import stdtrit

        if self.value == limit or limit <= 0:
            return None
        _, high = self.bounds(levels.fail, levels.hold)
        far = -float(stdtrit(max(1, self.samples - 1), levels.hold))
        spread = abs(math.log(high / self.value)) / far * math.sqrt(self.samples)
        rounds = (levels.far * spread / math.log(self.value / limit)) ** 2 + 2
        return max(self.samples + 1, math.ceil(rounds)) if rounds <= _MOST_ROUNDS else None


def _timed(check: LimitCheck, estimate: _Times, interval: Interval | None) -> OpenLimit:
    """As other estimates, with the number of rounds instead of samples."""

    def answer(levels: Levels) -> Finding:
        finding = check.test(estimate, levels, interval=interval)
        needed, reason = finding.samples_needed, finding.reason
        if needed is not None:
            reason = f"{estimate.samples} rounds are too few: {needed} (--rounds) may be enough"
        return msgspec.structs.replace(finding, samples=None, samples_needed=None, reason=reason)

    return check.defer(answer)


def _snr(check: LimitCheck, row: Measurement, _: Report) -> Finding:
    worst = min(row.agreement, key=lambda agreement: agreement.snr_db, default=None)
    if worst is None:
        return check.missing("the outputs were not compared with a reference")
    if worst.is_flat and worst.snr_db < MAX_SNR_DB:
        reason = f"output {worst.output} is constant, so it has no signal"
        return check.missing(f"{reason}: measure on samples for which it varies")
    return check.compare(worst.snr_db, "it is not finite", worst.output)


def _oldest_runtime(check: LimitCheck, row: Measurement, report: Report) -> Finding:
    assert isinstance(check.limit, RuntimeLimit)
    allowed = _release(check.limit.limit)
    artifact = _artifact_of(row, report)
    needs = artifact.oldest_runtime if artifact else None
    if needs is not None and needs.unknown:
        names = ", ".join(sorted({need.operator for need in needs.unknown}))
        return check.missing(f"the oldest runtime with {names} is not known")
    if not row.oldest_runtime:
        return check.missing("the oldest runtime is not known")
    holds = _release(row.oldest_runtime) <= allowed
    return check.finding("passed" if holds else "failed", row.oldest_runtime)


def _operators(check: LimitCheck, row: Measurement, report: Report) -> Finding:
    assert isinstance(check.limit, OperatorsLimit)
    artifact = _artifact_of(row, report)
    if artifact is None:
        return check.missing("the file has no manifest that lists its operators")
    names = tuple(sorted({operator.name for operator in artifact.operators}))
    further = [name for name in names if name not in check.limit.limit]
    subject = further[0] if len(further) == 1 else ""
    return check.finding("failed" if further else "passed", names, subject=subject)


def _npu_operators(check: LimitCheck, row: Measurement, _: Report) -> Finding:
    """The share on the NPU that has the fewest of the operators."""
    if not row.npu:
        return check.missing('no NPU is named, as in [bench] npu = "ethos-u55-128"')
    failed = next((each for each in row.npu if each.error or each.operator_share is None), None)
    if failed is not None:
        return check.missing(f"{failed.npu}: {failed.error or 'the file has no operators'}")
    worst = min(row.npu, key=lambda each: each.operator_share or 0.0)
    return check.compare(worst.operator_share, subject=worst.npu)


def _artifact_of(row: Measurement, report: Report) -> Artifact | None:
    return next((each for each in report.artifacts if each.sha256 == row.sha256), None)


def _release(version: str) -> tuple[int, ...]:
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
    "min-npu-operators": _npu_operators,
    "max-float-operators": _plain(lambda model: model.float_operators, "it has no manifest"),
}
