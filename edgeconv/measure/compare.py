"""The verb `compare`: what changed between two reports, or between two .tflite files."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from edgeconv.errors import InputRefused
from edgeconv.measure.comparable import accuracy_differences, latency_differences, measured
from edgeconv.measure.compare_files import changed_operators, changed_tensors, compare_files
from edgeconv.measure.metrics.accuracy import flips
from edgeconv.statistics.paired import paired_difference
from edgeconv.statistics.rounds import median_interval, unpaired_ratio_bounds
from edgeconv.types import Difference, FlipCount, ModelDifference, NumberChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.requests.looking import CompareRequest
    from edgeconv.types import Accuracy, Latency, Measurement, Report


def compare(request: CompareRequest) -> Difference:
    """What changed between two report.json, or two .tflite files.

    Raises `InputRefused` for a file that cannot be read, or for one of each kind.
    """
    before, after = Path(request.before), Path(request.after)
    kinds = {path.suffix == ".tflite" for path in (before, after)}
    if len(kinds) == 2:
        raise InputRefused(
            f"{before} and {after} are not of the same kind",
            hint="give two report.json files, or two .tflite files",
        )
    if kinds == {True}:
        return compare_files(before, after)
    from edgeconv.reporting.files import read_report

    return compare_reports(read_report(before), read_report(after), str(before), str(after))


def compare_reports(
    before: Report, after: Report, name_before: str = "", name_after: str = ""
) -> Difference:
    """What changed between two reports, model by model.

    Times of different machines, runtimes or threads are left out, and accuracies on different
    samples; `refused` gives the reasons. Raises `InputRefused` for a report without measurements.
    """
    measured((before, after))
    timing = latency_differences(before, after)
    scoring = accuracy_differences(before, after)
    pairs, only_before, only_after = _paired(before, after)
    return Difference(
        before=name_before or before.title,
        after=name_after or after.title,
        models=tuple(
            _model(pair, before, after, timed=not timing, scored=not scoring) for pair in pairs
        ),
        only_before=only_before,
        only_after=only_after,
        refused=(
            *(f"times and memory: {difference}" for difference in timing),
            *(f"accuracy and flips: {difference}" for difference in scoring),
        ),
    )


_Pairs = list[tuple["Measurement", "Measurement"]]


def _paired(before: Report, after: Report) -> tuple[_Pairs, tuple[str, ...], tuple[str, ...]]:
    """The models that both have: by name, else by a recipe of one model, else the only first."""
    first, second = list(before.measurements), list(after.measurements)
    pairs = _matched(first, second, "name") + _matched(first, second, "recipe")
    if len(first) == len(second) == 1:
        pairs.append((first.pop(), second.pop()))
    if before.baseline and after.baseline:
        pairs.insert(0, (before.baseline, after.baseline))
    return pairs, tuple(m.name for m in first), tuple(m.name for m in second)


def _matched(first: list[Measurement], second: list[Measurement], field: str) -> _Pairs:
    """Remove, and return, the pairs that agree in a field and are the only ones of its value."""
    pairs = []
    for row in list(first):
        value = getattr(row, field)
        rows, matches = (
            [m for m in side if getattr(m, field) == value] for side in (first, second)
        )
        if value is not None and len(rows) == len(matches) == 1:
            pairs.append((row, matches[0]))
            first.remove(row)
            second.remove(matches[0])
    return pairs


def _model(
    pair: tuple[Measurement, Measurement],
    before: Report,
    after: Report,
    *,
    timed: bool,
    scored: bool,
) -> ModelDifference:
    was, now = pair
    artifacts = {a.sha256: a for report in (before, after) for a in report.artifacts}
    first, second = artifacts.get(was.sha256), artifacts.get(now.sha256)
    numbers = [*_sizes(was, now)]
    numbers += _times(was, now) if timed else ()
    numbers += _metrics(was, now) if scored else ()
    fixed, broken = _turned(was, now) if scored else (None, None)
    return ModelDifference(
        before=was.name,
        after=now.name,
        same_file=was.sha256 == now.sha256,
        numbers=tuple(n for n in numbers if n.before != n.after),
        operators=changed_operators(first.operators, second.operators) if first and second else (),
        tensors=changed_tensors(first.signatures, second.signatures) if first and second else (),
        fixed=fixed,
        broken=broken,
        flips=_flips(was, now, after.labels) if scored else (),
    )


def _sizes(was: Measurement, now: Measurement) -> Iterator[NumberChange]:
    for field in ("size_bytes", "gzip_size_bytes", "arena_bytes"):
        yield NumberChange(quantity=field, before=getattr(was, field), after=getattr(now, field))


def _times(was: Measurement, now: Measurement) -> Iterator[NumberChange]:
    for percent in (50, 90, 99):
        field = f"p{percent}_us"
        yield NumberChange(
            quantity=f"latency_{field}",
            before=getattr(was.latency, field) if was.latency else None,
            after=getattr(now.latency, field) if now.latency else None,
            interval=_slower_by(was.latency, now.latency, percent),
        )
    yield NumberChange(
        quantity="peak_memory_bytes",
        before=was.peak_memory_bytes,
        after=now.peak_memory_bytes,
    )


def _slower_by(
    was: Latency | None, now: Latency | None, percent: int
) -> tuple[float, float] | None:
    """The interval of the change of a percentile in microseconds, where both have one."""
    before, after = _percentile(was, percent), _percentile(now, percent)
    if before is None or after is None:
        return None
    low, high = unpaired_ratio_bounds(*after, *before)
    return (low - 1) * before[0], (high - 1) * before[0]


def _percentile(latency: Latency | None, percent: int) -> tuple[float, tuple[float, float]] | None:
    """A percentile and its interval, by those of the rounds; a lone round has none."""
    if latency is None or len(latency.rounds_us) < 2 or not all(latency.rounds_us):
        return None
    value: float = getattr(latency, f"p{percent}_us")
    by_round = [[float(np.percentile(samples, percent))] for samples in latency.rounds_us]
    if min(value, *(number for (number,) in by_round)) <= 0:
        return None
    if percent == 50:
        return value, latency.p50_interval_us
    low, high = median_interval(by_round)
    middle = median(number for (number,) in by_round)
    return value, (low / middle * value, high / middle * value)


def _metrics(before: Measurement, after: Measurement) -> Iterator[NumberChange]:
    first, second = _by_metric(before), _by_metric(after)
    for name in dict.fromkeys((*first, *second)):
        was, now = first.get(name), second.get(name)
        yield NumberChange(
            quantity=f"metric:{name}",
            before=was.value if was else None,
            after=now.value if now else None,
            interval=_interval(was, now),
        )


def _by_metric(model: Measurement) -> dict[str, Accuracy]:
    accuracies = (*([model.accuracy] if model.accuracy else []), *model.metrics)
    return {accuracy.metric: accuracy for accuracy in accuracies}


def _interval(was: Accuracy | None, now: Accuracy | None) -> tuple[float, float] | None:
    if not (was and now and was.correct and len(was.correct) == len(now.correct)):
        return None
    _, low, high = paired_difference(now.correct, was.correct)
    return low, high


def _turned(before: Measurement, after: Measurement) -> tuple[int | None, int | None]:
    """How many samples became right and wrong."""
    was, now = before.accuracy, after.accuracy
    if not (was and now and was.correct and len(was.correct) == len(now.correct)):
        return None, None
    return flips(was, now)


def _flips(before: Measurement, after: Measurement, labels: Sequence[int]) -> tuple[FlipCount, ...]:
    """The samples whose class changed, in groups, the largest first."""
    was = before.accuracy.predicted if before.accuracy else ()
    now = after.accuracy.predicted if after.accuracy else ()
    if len(was) != len(now):
        return ()
    known = labels if len(labels) == len(was) else None
    groups: dict[tuple[int | None, int, int], list[int]] = {}
    for i, (a, b) in enumerate(zip(was, now, strict=True)):
        if a != b:
            groups.setdefault((known[i] if known else None, a, b), []).append(i)
    counts = [
        FlipCount(label=label, before=a, after=b, samples=tuple(samples))
        for (label, a, b), samples in groups.items()
    ]
    return tuple(sorted(counts, key=lambda flip: (-len(flip.samples), flip.samples)))
