"""Trackers: logs of measurements and verdicts, where a team compares its runs.

A tracker is a module with two functions and a line in `edgeconv.plugins.TRACKERS`.
`refuse(location)` raises, before anything is measured, `UsageError` if the tracker's library is
not installed, and `OutputRefused` if nothing can be written at `location`, which is what follows
the colon of `--track`. `track(checked, reports, location)` logs one run for every measured model,
`reports` by the name of its check, and raises `OutputRefused` if it cannot. A project may name
the location of a tracker with `WRITES_FILES_ONLY = True`, which only writes files there.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timezone

from edgeconv.reporting.columns import all_models
from edgeconv.reporting.limits import mark_of
from collections.abc import Iterator, Mapping

from edgeconv.types import Check, Checked, Measurement, Report


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """One measured model of a check.

    `texts` identify it (recipe, runtime, hashes); `numbers` are the finite measured ones, in the
    units of their names. `verdict` is "ok", "warn", "over", "not measured" or "inconclusive", and
    "" where it has no limit.
    """

    check: str
    model: str
    verdict: str
    texts: dict[str, str]
    numbers: dict[str, float]


def runs(checked: Checked, reports: Mapping[str, Report]) -> Iterator[TrackedRun]:
    """A run for every model of every report, the trained ones first."""
    for check in checked.checks:
        report = reports.get(check.name)
        if report is not None:
            for model in all_models(report):
                yield _run(checked.config, check, report, model)


def now() -> datetime:
    """The time in UTC, to the second."""
    return datetime.now(timezone.utc).replace(microsecond=0)


def _run(config: str, check: Check, report: Report, model: Measurement) -> TrackedRun:
    texts = {
        "config": config,
        "role": model.role,
        "recipe": model.recipe or "",
        "runtime": model.runtime,
        "sha256": model.sha256,
        "machine": report.environment.machine,
        "processor": report.environment.cpu,
        "data": report.data.source if report.data else "",
        "metric": model.accuracy.title if model.accuracy else "",
        "error": model.error,
    }
    mark = mark_of(model.name, check.verdict)
    return TrackedRun(
        check=check.name,
        model=model.name,
        verdict={"–": "", "?": "inconclusive"}.get(mark, mark),
        texts=texts,
        numbers={name: value for name, value in _numbers(check, model) if math.isfinite(value)},
    )


def _numbers(check: Check, model: Measurement) -> Iterator[tuple[str, float]]:
    latency, accuracy = model.latency, model.accuracy
    numbers = {
        "size_bytes": model.size_bytes,
        "gzip_size_bytes": model.gzip_size_bytes,
        "size_ratio": model.size_ratio,
        "latency_p50_us": latency.p50_us if latency else None,
        "latency_p90_us": latency.p90_us if latency else None,
        "latency_p99_us": latency.p99_us if latency else None,
        "latency_ratio": model.latency_ratio,
        "peak_memory_bytes": model.peak_memory_bytes,
        "arena_bytes": model.arena_bytes,
        "accuracy": accuracy.value if accuracy else None,
        "accuracy_drop": model.accuracy_drop,
        "samples": accuracy.samples if accuracy else None,
        "fixed": model.fixed,
        "broken": model.broken,
    }
    yield from ((name, float(value)) for name, value in numbers.items() if value is not None)
    yield from ((f"metric_{each.title}".replace(" ", "_"), each.value) for each in model.metrics)
    findings = [each for each in check.verdict.findings if each.model == model.name]
    if findings:
        yield "limits_broken", float(sum(not each.ok for each in findings))
