"""Limits on time, which no two runs take alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from edgeconv.statistics.enough import normal_quantile
from edgeconv.statistics.rounds import median_interval, ratio_bounds

if TYPE_CHECKING:
    from edgeconv.gate.asked import Asked, Question
    from edgeconv.statistics.evidence import Evidence, Levels
    from edgeconv.types import Finding, Latency, Measurement, Report

_ONE_ROUND = "a single round has no interval: measure with --rounds 3 or more"
_NO_PARTNER = "there is no float32 .tflite that was timed in the same rounds"
_MOST_ROUNDS = 1000


def latency_p50(asked: Asked, row: Measurement, report: Report) -> Finding | Question:
    """The median time of an invoke."""
    del report
    latency = row.latency
    if latency is None or not math.isfinite(latency.p50_us) or latency.p50_us <= 0:
        return asked.missing("it was not timed")
    return asked.question(lambda levels: _judged(asked, _Median(latency), levels))


def latency_ratio(asked: Asked, row: Measurement, report: Report) -> Finding | Question:
    """The median time over that of the float32 .tflite in the same runtime, by rounds."""
    if row.latency is None or row.latency_ratio is None or not math.isfinite(row.latency_ratio):
        return asked.missing("it was not timed beside a float32 .tflite")
    other = row.float_latency(report.measurements)
    if other is row.latency:
        return asked.plain(row.latency_ratio)
    if other is None or len(other.rounds_us) != len(row.latency.rounds_us):
        return _untold(asked, row, _NO_PARTNER)
    if len(other.rounds_us) == 1:
        return _untold(asked, row, _ONE_ROUND)
    evidence = _Ratio(row.latency, other, row.latency_ratio)
    return asked.question(lambda levels: _judged(asked, evidence, levels))


@dataclass(frozen=True)
class _Median:
    latency: Latency

    @property
    def method(self) -> str:
        return "student, of rounds"

    @property
    def samples(self) -> int:
        return len(self.latency.rounds_us)

    @property
    def value(self) -> float:
        return self.latency.p50_us

    def bounds(self, low_level: float, high_level: float, limit: float) -> tuple[float, float]:
        del limit
        rounds = self.latency.rounds_us
        return median_interval(rounds, 2 * low_level)[0], median_interval(rounds, 2 * high_level)[1]

    def enough(self, limit: float, levels: Levels) -> int | None:
        return _enough_rounds(self, limit, levels)


@dataclass(frozen=True)
class _Ratio:
    latency: Latency
    other: Latency
    value: float

    @property
    def method(self) -> str:
        return "student, of ratios by round"

    @property
    def samples(self) -> int:
        return len(self.latency.rounds_us)

    def bounds(self, low_level: float, high_level: float, limit: float) -> tuple[float, float]:
        del limit
        return ratio_bounds(self.latency.rounds_us, self.other.rounds_us, low_level, high_level)

    def enough(self, limit: float, levels: Levels) -> int | None:
        return _enough_rounds(self, limit, levels)


def _judged(asked: Asked, evidence: Evidence, levels: Levels) -> Finding:
    """As of any evidence, but what there is of it are rounds, and no samples."""
    found = asked.judged(evidence, levels)
    needed, reason = found.samples_needed, found.reason
    if needed is not None:
        reason = f"{evidence.samples} rounds are too few: {needed} (--rounds) may tell"
    return msgspec.structs.replace(found, samples=None, samples_needed=None, reason=reason)


def _enough_rounds(evidence: Evidence, limit: float, levels: Levels) -> int | None:
    """How many rounds tell a time from a limit, if both stay as they are."""
    from scipy.special import stdtrit

    if evidence.value == limit or limit <= 0:
        return None
    count = evidence.samples
    _, high = evidence.bounds(levels.fail, levels.hold, limit)
    far = -float(stdtrit(max(1, count - 1), levels.hold))
    spread = abs(math.log(high / evidence.value)) / far * math.sqrt(count)
    needed = normal_quantile(min(levels.fail, levels.hold)) + normal_quantile(levels.missed)
    rounds = (needed * spread / math.log(evidence.value / limit)) ** 2 + 2
    return max(count + 1, math.ceil(rounds)) if rounds <= _MOST_ROUNDS else None


def _untold(asked: Asked, row: Measurement, reason: str) -> Finding:
    return asked.found("inconclusive", row.latency_ratio, reason=reason)
