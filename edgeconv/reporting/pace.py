"""Invokes in a fixed period and cold starts, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units

if TYPE_CHECKING:
    from edgeconv.types import Latency, Measurement, PacedLatency

# A period is kept that is longer by no more than a timer's grain.
_KEPT_WITHIN = 1.1


def pace_title(paced: PacedLatency) -> str:
    """How often a model was invoked: "every 10 ms", and the distance where that was not kept."""
    number, _, unit = units.duration(paced.period_us).partition(" ")
    whole = number.rstrip("0").rstrip(".") if "." in number else number
    title = f"every {whole} {unit}"
    if paced.distance_us <= _KEPT_WITHIN * paced.period_us:
        return title
    return f"{title} (not kept: one in {units.duration(paced.distance_us)})"


def pace_lines(model: Measurement) -> tuple[str, ...]:
    """One line for the invokes in a period, and one for the cold starts, where there are any."""
    lines = []
    if model.paced:
        count = units.counted(sum(map(len, model.paced.rounds_us)), "invoke")
        lines.append(f"{pace_title(model.paced)}: {_percentiles(model.paced)}, {count}")
    if model.cold:
        count = f"{len(model.cold.rounds_us)} fresh process{'es' * (len(model.cold.rounds_us) > 1)}"
        lines.append(f"load and first invoke: {_percentiles(model.cold)}, {count}")
    return tuple(lines)


def _percentiles(latency: Latency) -> str:
    p50, p90, p99 = map(units.duration, (latency.p50_us, latency.p90_us, latency.p99_us))
    interval = units.duration_interval(latency.p50_interval_us)
    return f"p50 {units.with_interval(p50, interval)}, p90 {p90}, p99 {p99}"
