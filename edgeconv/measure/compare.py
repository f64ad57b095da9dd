"""The verb `compare`: what changed between two reports, or between two .tflite files."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from edgeconv.errors import InputRefused
from edgeconv.measure.comparable import accuracy_differences, latency_differences, measured
from edgeconv.measure.compare_files import changed_ends, changed_operators, compare_files
from edgeconv.statistics.paired import paired_difference
from edgeconv.statistics.rounds import median_interval, unpaired_ratio_bounds
from edgeconv.types import Difference, FlipCount, ModelDifference, NumberChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.requests.looking import CompareRequest
    from edgeconv.types import Accuracy, Latency, Measurement, Report


def compare(asked: CompareRequest) -> Difference:
    """What changed from one to the other: two report.json, or two .tflite files.

    Raises `InputRefused` for a file that cannot be read, or for one of each kind.
    """
    one, other = Path(asked.before), Path(asked.after)
    kinds = {path.suffix == ".tflite" for path in (one, other)}
    if len(kinds) == 2:
        raise InputRefused(
            f"{one} and {other} are not of one kind",
            hint="give two report.json, or two .tflite files",
        )
    if kinds == {True}:
        return compare_files(one, other)
    from edgeconv.reporting.files import read_report

    return compare_reports(read_report(one), read_report(other), str(one), str(other))


def compare_reports(
    before: Report, after: Report, name_before: str = "", name_after: str = ""
) -> Difference:
    """What changed between two reports, model by model.

    Times of different machines, runtimes or threads are left out, and accuracies on different
    samples; `refused` says why. Sizes and operators compare always. Raises `InputRefused` where
    one has no measurements.
    """
    measured((before, after))
    timing = latency_differences(before, after)
    judging = accuracy_differences(before, after)
    pairs, only_before, only_after = _paired(before, after)
    return Difference(
        before=name_before or before.title,
        after=name_after or after.title,
        models=tuple(
            _model(one, other, before, after, timed=not timing, judged=not judging)
            for one, other in pairs
        ),
        only_before=only_before,
        only_after=only_after,
        refused=(
            *(f"times and memory: {difference}" for difference in timing),
            *(f"accuracy and flips: {difference}" for difference in judging),
        ),
    )


_Pairs = list[tuple["Measurement", "Measurement"]]


def _paired(before: Report, after: Report) -> tuple[_Pairs, tuple[str, ...], tuple[str, ...]]:
    """The models that both have: by name, else by a recipe of one model, else the only ones."""
    ones, others = list(before.measurements), list(after.measurements)
    pairs = _matched(ones, others, "name") + _matched(ones, others, "recipe")
    if len(ones) == len(others) == 1:
        pairs.append((ones.pop(), others.pop()))
    if before.baseline and after.baseline:
        pairs.insert(0, (before.baseline, after.baseline))
    return pairs, tuple(one.name for one in ones), tuple(other.name for other in others)


def _matched(ones: list[Measurement], others: list[Measurement], field: str) -> _Pairs:
    """The pairs that agree in a field which has the value once on each side; taken from both."""
    pairs = []
    for one in list(ones):
        value = getattr(one, field)
        mine = [m for m in ones if getattr(m, field) == value]
        found = [other for other in others if getattr(other, field) == value]
        if value is not None and len(mine) == len(found) == 1:
            pairs.append((one, found[0]))
            ones.remove(one)
            others.remove(found[0])
    return pairs


def _model(
    one: Measurement,
    other: Measurement,
    before: Report,
    after: Report,
    *,
    timed: bool,
    judged: bool,
) -> ModelDifference:
    made = {a.sha256: a for report in (before, after) for a in report.artifacts}
    first, second = made.get(one.sha256), made.get(other.sha256)
    numbers = [*_sizes(one, other)]
    numbers += _times(one, other) if timed else ()
    numbers += _metrics(one, other) if judged else ()
    fixed, broken = _turned(one, other) if judged else (None, None)
    return ModelDifference(
        before=one.name,
        after=other.name,
        same_file=one.sha256 == other.sha256,
        numbers=tuple(n for n in numbers if n.before != n.after),
        operators=changed_operators(first.operators, second.operators) if first and second else (),
        tensors=changed_ends(first.signatures, second.signatures) if first and second else (),
        fixed=fixed,
        broken=broken,
        flips=_flips(one, other, after.labels) if judged else (),
    )


def _sizes(one: Measurement, other: Measurement) -> Iterator[NumberChange]:
    for field in ("size_bytes", "gzip_size_bytes", "arena_bytes"):
        yield NumberChange(quantity=field, before=getattr(one, field), after=getattr(other, field))


def _times(one: Measurement, other: Measurement) -> Iterator[NumberChange]:
    for percent in (50, 90, 99):
        field = f"p{percent}_us"
        yield NumberChange(
            quantity=f"latency_{field}",
            before=getattr(one.latency, field) if one.latency else None,
            after=getattr(other.latency, field) if other.latency else None,
            interval=_slower_by(one.latency, other.latency, percent),
        )
    yield NumberChange(
        quantity="peak_memory_bytes",
        before=one.peak_memory_bytes,
        after=other.peak_memory_bytes,
    )


def _slower_by(
    was: Latency | None, is_now: Latency | None, percent: int
) -> tuple[float, float] | None:
    """The interval of the change of a percentile in microseconds, None where nothing is known."""
    before, after = _percentile(was, percent), _percentile(is_now, percent)
    if before is None or after is None:
        return None
    low, high = unpaired_ratio_bounds(*after, *before)
    return (low - 1) * before[0], (high - 1) * before[0]


def _percentile(latency: Latency | None, percent: int) -> tuple[float, tuple[float, float]] | None:
    """A percentile and its interval, by those of the rounds; a lone round has none."""
    if latency is None or len(latency.rounds_us) < 2 or not all(latency.rounds_us):
        return None
    value: float = getattr(latency, f"p{percent}_us")
    by_round = [[float(np.percentile(one, percent))] for one in latency.rounds_us]
    if min(value, *(number for (number,) in by_round)) <= 0:
        return None
    if percent == 50:
        return value, latency.p50_interval_us
    low, high = median_interval(by_round)
    middle = median(number for (number,) in by_round)
    return value, (low / middle * value, high / middle * value)


def _metrics(one: Measurement, other: Measurement) -> Iterator[NumberChange]:
    first, second = _by_metric(one), _by_metric(other)
    for name in dict.fromkeys((*first, *second)):
        was, is_now = first.get(name), second.get(name)
        yield NumberChange(
            quantity=f"metric:{name}",
            before=was.value if was else None,
            after=is_now.value if is_now else None,
            interval=_interval(was, is_now),
        )


def _by_metric(model: Measurement) -> dict[str, Accuracy]:
    found = (*([model.accuracy] if model.accuracy else []), *model.metrics)
    return {accuracy.metric: accuracy for accuracy in found}


def _interval(was: Accuracy | None, is_now: Accuracy | None) -> tuple[float, float] | None:
    if not (was and is_now and was.correct and len(was.correct) == len(is_now.correct)):
        return None
    _, low, high = paired_difference(is_now.correct, was.correct)
    return low, high


def _turned(one: Measurement, other: Measurement) -> tuple[int | None, int | None]:
    """How many samples became right and wrong."""
    was = one.accuracy.correct if one.accuracy else ""
    is_now = other.accuracy.correct if other.accuracy else ""
    if not was or len(was) != len(is_now):
        return None, None
    pairs = list(zip(was, is_now, strict=True))
    return pairs.count(("0", "1")), pairs.count(("1", "0"))


def _flips(one: Measurement, other: Measurement, labels: Sequence[int]) -> tuple[FlipCount, ...]:
    """The samples whose class changed, in groups, the largest first."""
    was = one.accuracy.predicted if one.accuracy else ()
    is_now = other.accuracy.predicted if other.accuracy else ()
    if len(was) != len(is_now):
        return ()
    known = labels if len(labels) == len(was) else None
    groups: dict[tuple[int | None, int, int], list[int]] = {}
    for i, (a, b) in enumerate(zip(was, is_now, strict=True)):
        if a != b:
            groups.setdefault((known[i] if known else None, a, b), []).append(i)
    found = [
        FlipCount(label=label, before=a, after=b, samples=tuple(samples))
        for (label, a, b), samples in groups.items()
    ]
    return tuple(sorted(found, key=lambda flip: (-len(flip.samples), flip.samples)))
