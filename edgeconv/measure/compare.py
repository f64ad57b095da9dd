"""The verb `compare`: what changed between two reports, or between two .tflite files."""

import gzip
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
import numpy as np

from edgeconv.measure.metrics.scoring import flips
from edgeconv.model.source import identify
from edgeconv.model.tflite import summarize
from edgeconv.model.tflite.summary import tensor_specs
from edgeconv.reporting.closeness import snr
from edgeconv.reporting.files import read_report
from edgeconv.requests.looking import CompareRequest
from edgeconv.statistics.comparison import median_interval, paired_difference, unpaired_ratio_bounds
from edgeconv.system.store import read_noun
from edgeconv.types import (
    Accuracy,
    Artifact,
    Difference,
    FlipCount,
    GraphSummary,
    Latency,
    Measurement,
    ModelDifference,
    NumberChange,
    OperatorChange,
    OperatorCount,
    Report,
    Signature,
    TensorChange,
    TensorSpec,
)
from edgeconv.types.errors import InputRefused


def compare(request: CompareRequest) -> Difference:
    """What changed between two reports or report.json, or two .tflite files.

    Raises `InputRefused` for a file that cannot be read, or for one of each kind.
    """
    sides = (request.before, request.after)
    names = [each.title if isinstance(each, Report) else str(Path(each)) for each in sides]
    are_files = [isinstance(each, str) and each.endswith(".tflite") for each in sides]
    if any(are_files) and not all(are_files):
        raise InputRefused(
            f"{names[0]} and {names[1]} are not of the same kind",
            hint="give two report.json files, or two .tflite files",
        )
    if all(are_files):
        return compare_files(*map(Path, names))
    was, now = (each if isinstance(each, Report) else read_report(Path(each)) for each in sides)
    return compare_reports(was, now, *names)


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
    numbers = [
        NumberChange(quantity=field, before=getattr(was, field), after=getattr(now, field))
        for field in ("size_bytes", "gzip_size_bytes", "arena_bytes")
    ]
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
        quantity="peak_memory_bytes", before=was.peak_memory_bytes, after=now.peak_memory_bytes
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
    """A percentile and its interval, from the percentiles of the rounds; a lone round has none."""
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
    return {accuracy.title: accuracy for accuracy in accuracies}


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


Position = Literal["input", "output", "inside"]


def compare_files(before: Path, after: Path) -> Difference:
    """What changed from one .tflite to another; neither is run.

    Where both have a manifest, their closeness to the float model is compared too. Raises
    `InputRefused` for a file that is not a model.
    """
    was, now = identify(before), identify(after)
    contents = [before.read_bytes(), after.read_bytes()]
    graphs = [
        summarize(data, where=str(f)) for data, f in zip(contents, (before, after), strict=True)
    ]
    manifests, refused = _manifests((before, was.sha256), (after, now.sha256))
    numbers = [
        NumberChange(quantity="size_bytes", before=len(contents[0]), after=len(contents[1])),
        NumberChange(
            quantity="gzip_size_bytes",
            before=len(gzip.compress(contents[0], mtime=0)),
            after=len(gzip.compress(contents[1], mtime=0)),
        ),
        *_graph_numbers(graphs),
        *_manifest_numbers(manifests),
    ]
    specs = [
        tensor_specs(data, where=str(f)) for data, f in zip(contents, (before, after), strict=True)
    ]
    ends = changed_tensors(graphs[0].signatures, graphs[1].signatures)
    model = ModelDifference(
        before=before.name,
        after=after.name,
        same_file=was.sha256 == now.sha256,
        numbers=tuple(n for n in numbers if n.before != n.after),
        operators=changed_operators(graphs[0].operators, graphs[1].operators),
        tensors=(*ends, *_changed("inside", specs[0], specs[1])),
    )
    return Difference(before=str(before), after=str(after), models=(model,), refused=refused)


def changed_operators(
    before: Sequence[OperatorCount], after: Sequence[OperatorCount]
) -> tuple[OperatorChange, ...]:
    """The operators, by version, whose counts differ."""
    was, now = ({(o.name, o.version): o.count for o in side} for side in (before, after))
    changes = (
        OperatorChange(
            operator=name,
            version=version,
            before=was.get((name, version), 0),
            after=now.get((name, version), 0),
        )
        for name, version in sorted({*was, *now})
    )
    return tuple(change for change in changes if change.before != change.after)


def changed_tensors(
    before: Iterable[Signature], after: Iterable[Signature]
) -> tuple[TensorChange, ...]:
    """The inputs and outputs, by signature and name, that are not the same."""
    before, after = tuple(before), tuple(after)
    positions: tuple[Position, ...] = ("input", "output")
    return tuple(
        change
        for position in positions
        for change in _changed(position, _specs(before, position), _specs(after, position))
    )


def _specs(signatures: Sequence[Signature], position: Position) -> dict[str, TensorSpec]:
    several = len(signatures) > 1
    return {
        f"{s.key}: {t.name}" if several else t.name: t
        for s in signatures
        for t in (s.inputs if position == "input" else s.outputs)
    }


def _changed(
    position: Position, before: dict[str, TensorSpec], after: dict[str, TensorSpec]
) -> list[TensorChange]:
    names = dict.fromkeys((*before, *after))
    pairs = ((before.get(name), after.get(name)) for name in names)
    return [TensorChange(role=position, before=a, after=b) for a, b in pairs if a != b]


def _graph_numbers(graphs: Sequence[GraphSummary]) -> list[NumberChange]:
    was, now = graphs
    fields = ("weight_bytes", "quantized_weight_share", "float16_weight_share")
    return [
        NumberChange(quantity=field, before=getattr(was, field), after=getattr(now, field))
        for field in fields
    ]


def _manifest_numbers(manifests: Sequence[Artifact | None]) -> list[NumberChange]:
    before, after = manifests
    # Distances from different references do not compare: float32 refers to the trained model.
    if not (before and after) or before.verification.reference != after.verification.reference:
        return []
    was, now = ({o.output: o for o in each.verification.outputs} for each in (before, after))
    changes = []
    for name in dict.fromkeys((*was, *now)):
        both = was.get(name), now.get(name)
        errors = [each.max_abs_error if each else None for each in both]
        ratios = [snr(each) if each else None for each in both]
        for what, (first, second) in (("max_error", errors), ("snr_db", ratios)):
            changes.append(NumberChange(quantity=f"{what}:{name}", before=first, after=second))
    return changes


def _manifests(*files: tuple[Path, str]) -> tuple[list[Artifact | None], tuple[str, ...]]:
    """The manifest next to each file, and why one cannot be used."""
    manifests: list[Artifact | None] = []
    refused = []
    for file, sha256 in files:
        path = file.with_suffix(".json")
        artifact = None
        if path.is_file():
            try:
                artifact = read_noun(path, Artifact, what="manifest")
            except InputRefused as error:
                refused.append(f"manifests: {error.message}")
        if artifact and artifact.sha256 != sha256:
            refused.append(f"manifests: {path.name} describes another {file.name}")
            artifact = None
        manifests.append(artifact)
    return manifests, tuple(refused)


_DIGITS = 12


def latency_differences(first: Report, second: Report) -> tuple[str, ...]:
    """Why the times of two reports do not compare, such as "threads: 1 and 2".

    Empty where they do, or one has none. The baseline's count only if there are no others.
    """
    timed, others = _timed(first), _timed(second)
    if not (timed and others):
        return ()
    return tuple(_different(_timing(first, timed), _timing(second, others)))


def accuracy_differences(first: Report, second: Report) -> tuple[str, ...]:
    """Why the accuracies of two reports do not compare; empty if they do, or one has none."""
    metrics, others = _metric_names(first), _metric_names(second)
    if not (metrics and others):
        return ()
    differences = tuple(_different(_samples(first), _samples(second)))
    if not set(metrics) & set(others):
        return (*differences, f"metric: {_listed(metrics)} and {_listed(others)}")
    return differences


def agreement_differences(first: Report, second: Report) -> tuple[str, ...]:
    """Why the agreement of outputs does not compare; empty if it does, or one has none."""
    if not all(any(row.agreement for row in _rows(report)) for report in (first, second)):
        return ()
    return tuple(_different(_samples(first), _samples(second)))


def _different(first: dict[str, str], second: dict[str, str]) -> Iterator[str]:
    for what, value in first.items():
        if value != second[what]:
            yield f"{what}: {value or 'none'} and {second[what] or 'none'}"


def _rows(report: Report) -> list[Measurement]:
    return [*([report.baseline] if report.baseline else []), *report.measurements]


def _timed(report: Report) -> list[tuple[Measurement, Latency]]:
    timed = [(row, row.latency) for row in _rows(report) if row.latency is not None]
    return [pair for pair in timed if pair[0].role == "artifact"] or timed


def _timing(report: Report, timed: list[tuple[Measurement, Latency]]) -> dict[str, str]:
    here = report.environment
    return {
        "host": here.host or "this machine",
        "machine": here.machine,
        "processor": here.cpu,
        "cores": str(here.cores),
        # The release of a kernel changes with every update, and hardly the times.
        "system": here.system.partition(" ")[0],
        "runtime": _listed([row.runtime for row, _ in timed]),
        "threads": _listed([str(latency.threads) for _, latency in timed]),
        "batch": _listed([str(latency.batch) for _, latency in timed]),
    }


def _samples(report: Report) -> dict[str, str]:
    data = report.data
    return {
        "number of samples": str(data.samples) if data else "",
        "preprocessing": data.preprocessing if data else "",
        "hash of the samples": data.sha256[:_DIGITS] if data else "",
    }


def _metric_names(report: Report) -> list[str]:
    rows = [row for row in _rows(report) if row.accuracy is not None]
    return [
        accuracy.title
        for row in rows
        for accuracy in (row.accuracy, *row.metrics)
        if accuracy is not None
    ]


def _listed(values: list[str]) -> str:
    return ", ".join(sorted(set(values)))


def combine_reports(reports: Sequence[Report]) -> Report:
    """One report with the rows of all; a name that occurs twice gets its report's title.

    Raises `InputRefused` if the reports do not compare, or nothing was measured.
    """
    measured(reports)
    first, *others = reports
    for other in others:
        if differences := differences_of(first, other):
            raise InputRefused(
                f"{first.title!r} and {other.title!r} cannot be compared: {'; '.join(differences)}",
                hint="show them separately with --side-by-side, or measure them in one run",
            )
    if not others:
        return first
    names = [row.name for report in reports for row in report.measurements]
    taken: dict[str, int] = {}
    rows = []
    for report in reports:
        for row in report.measurements:
            name = row.name if names.count(row.name) == 1 else f"{report.title}: {row.name}"
            taken[name] = taken.get(name, 0) + 1
            unique = name if taken[name] == 1 else f"{name} ({taken[name]})"
            rows.append(msgspec.structs.replace(row, name=unique))
    artifacts = {artifact.sha256: artifact for r in reports for artifact in r.artifacts}
    return msgspec.structs.replace(
        first,
        title=" and ".join(dict.fromkeys(report.title for report in reports)),
        baseline=next((r.baseline for r in reports if r.baseline), None),
        measurements=tuple(rows),
        comparisons=(),
        training=next((r.training for r in reports if r.training), None),
        artifacts=tuple(artifacts.values()),
        command=(),
        verdict=None,
        notes=tuple(dict.fromkeys(note for r in reports for note in r.notes)),
    )


def measured(reports: Iterable[Report]) -> None:
    """Raise `InputRefused` if there is no report, or one without measurements."""
    all_reports = list(reports)
    if not all_reports:
        raise InputRefused("there is no report to show", hint="give the report.json of a bench")
    for report in all_reports:
        if not report.measurements and report.baseline is None:
            raise InputRefused(
                f"the report {report.title!r} has no measurements",
                hint="make one with edgeconv bench",
            )


def differences_of(first: Report, second: Report) -> tuple[str, ...]:
    """Why two reports must not share a table; empty if they may."""
    differences = [
        *latency_differences(first, second),
        *accuracy_differences(first, second),
        *agreement_differences(first, second),
    ]
    before, after = first.baseline, second.baseline
    if before and after and before.sha256 != after.sha256:
        differences.append(f"baseline: {_named(before)} and {_named(after)}")
    return tuple(dict.fromkeys(differences))


def _named(baseline: Measurement) -> str:
    return f"{baseline.name} ({baseline.sha256[:12]})"
