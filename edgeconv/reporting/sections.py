"""Sections that only some reports have: versions of a runtime, estimates for NPUs, flips."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from edgeconv.reporting import units
from edgeconv.reporting.tables import Cell, Column, Table, number, table
from edgeconv.types import Measurement, NpuEstimate, NpuLeft, Report, VersionResult

_Pair = tuple[Measurement, NpuEstimate]


def _snr(each: VersionResult) -> Cell:
    if each.is_reference:
        return number("reference", each.snr_db)
    return number(units.decibels(each.snr_db), each.snr_db)


_VERSIONS: tuple[Column[VersionResult], ...] = (
    Column("model", lambda each: units.plain(each.model), is_text=True),
    Column("version", lambda each: units.plain(each.runtime), is_text=True),
    Column("state", lambda each: each.state, is_text=True),
    Column("flipped", lambda each: number(units.count(each.flips), each.flips)),
    Column("SNR", _snr),
    Column("why", lambda each: units.plain_line(each.detail), is_text=True, wraps=True),
)


def matrix_table(report: Report) -> Table | None:
    """One line for each file and version; None where versions were not run."""
    if not report.matrix:
        return None
    return table(
        _VERSIONS,
        report.matrix,
        name="matrix",
        caption="Each file in each version that pip can install here. Right: its answers are those "
        "of the reference, to 20 dB. " + " ".join(matrix_lines(report)),
    )


def matrix_lines(report: Report) -> tuple[str, ...]:
    """For each file its first bad version, or that there is none."""
    lines = []
    for name in dict.fromkeys(each.model for each in report.matrix):
        own = [each for each in report.matrix if each.model == name]
        bad = first_bad(own)
        counted = units.counted(len(own), "version")
        left = sum(each.state == "not installable" for each in own)
        missing = f", {left} of them not installable" if left else ""
        does = f"{bad.runtime}, which {_does(bad)}" if bad else ""
        verdict = f"first bad version {does}" if bad else "none is bad"
        lines.append(units.plain(f"{name} in {counted}{missing}: {verdict}."))
    return tuple(lines)


def first_bad(results: Iterable[VersionResult]) -> VersionResult | None:
    """The oldest version of one file's that could be installed and is not right."""
    bad = (each for each in results if each.state not in ("right", "not installable"))
    return next(bad, None)


def what_it_does(bad: VersionResult) -> str:
    """A bad version in words: "litert==2.1.0 answers wrong"."""
    return f"{bad.runtime} {_does(bad)}"


def _does(bad: VersionResult) -> str:
    return "answers wrong" if bad.state == "wrong" else bad.state


def npu_rows(report: Report) -> tuple[_Pair, ...]:
    """Each estimate with the first row of its file: runtimes do not change it."""
    first: dict[tuple[str, str], _Pair] = {}
    for row in report.measurements:
        for estimate in row.npu:
            first.setdefault((row.sha256, estimate.npu), (row, estimate))
    return tuple(first.values())


def left_text(estimate: NpuEstimate) -> str:
    """The operators that stay on the processor, and why; or why there is no estimate."""
    if estimate.error:
        return f"failed: {units.plain_line(estimate.error)}"
    if not estimate.operators:
        return "no operators"
    if not estimate.on_npu:
        return f"all: {_kinds(estimate)}"
    return _kinds(estimate) or "none"


def estimated(estimate: NpuEstimate) -> str:
    """The time, with a sign that it is not measured."""
    known = estimate.latency_us is not None
    return f"~{units.duration(estimate.latency_us)}" if known else units.ABSENT


def chip(estimate: NpuEstimate) -> str:
    """The NPU, and the chip that was compiled for."""
    clock = f", {estimate.clock_hz / 1e6:g} MHz" if estimate.clock_hz else ""
    system, memory = units.plain(estimate.system), units.plain(estimate.memory)
    return f"{units.plain(estimate.npu)}: system {system}, memory mode {memory}{clock}"


def npu_lines(report: Report) -> tuple[str, ...]:
    """Whose estimates they are, for which chips, and which time they mean."""
    estimates = [estimate for _, estimate in npu_rows(report)]
    if not estimates:
        return ()
    compilers = ", ".join(dict.fromkeys(units.plain(each.compiler) for each in estimates))
    return (
        f"estimates of {compilers}, not measurements: nothing ran on an NPU",
        *dict.fromkeys(chip(each) for each in estimates if not each.error),
        "the time is that of the NPU alone, without what stays on the CPU",
        *_float_lines(report),
    )


def npu_table(report: Report) -> Table | None:
    """One line for each file and NPU; None without estimates."""
    if not (rows := npu_rows(report)):
        return None
    caption = " ".join(f"{line[:1].upper()}{line[1:]}." for line in npu_lines(report))
    return table(_NPUS, rows, name="npu", caption=caption)


def _kinds(estimate: NpuEstimate) -> str:
    return "; ".join(map(_kind, estimate.left))


def _kind(left: NpuLeft) -> str:
    times = f" ×{left.count}" if left.count > 1 else ""
    reason = f" ({units.plain_line(left.reason)})" if left.reason else ""
    return f"{units.plain(left.operator)}{times}{reason}"


def _float_lines(report: Report) -> Iterator[str]:
    """A line for files of floats, which are not for an NPU."""
    names = {
        units.plain(row.name)
        for row, estimate in npu_rows(report)
        if not (estimate.error or estimate.on_npu)
    }
    if names:
        yield (
            f"no operator on the NPU: {', '.join(sorted(names))}; it computes on int8 and int16 "
            "only, as recipes such as int8 have them"
        )


def _column(
    heading: str, text: Callable[[NpuEstimate], str], key: Callable[[NpuEstimate], float | None]
) -> Column[_Pair]:
    """A column of numbers, which an estimate that failed has not."""

    def cell(pair: _Pair) -> Cell:
        _, estimate = pair
        return number(units.ABSENT if estimate.error else text(estimate), key(estimate))

    return Column(heading, cell)


_NPUS: tuple[Column[_Pair], ...] = (
    Column("model", lambda pair: units.plain(pair[0].name), is_text=True, wraps=True),
    Column("NPU", lambda pair: units.plain(pair[1].npu), is_text=True),
    _column("operators", lambda e: f"{e.on_npu} of {e.operators}", lambda e: e.operator_share),
    _column("MACs", lambda e: units.percent(e.work_share, 0), lambda e: e.work_share),
    _column("SRAM", lambda e: units.size(e.sram_bytes), lambda e: e.sram_bytes),
    _column("flash", lambda e: units.size(e.flash_bytes), lambda e: e.flash_bytes),
    _column("DRAM", lambda e: units.size(e.dram_bytes), lambda e: e.dram_bytes),
    _column("estimate", estimated, lambda e: e.latency_us),
    Column("on the CPU", lambda pair: left_text(pair[1]), is_text=True),
)


Effect = Literal["broken", "fixed", "other"]
MOST_EXAMPLES = 8
_WORDS: dict[Effect, tuple[str, str]] = {
    "broken": ("became wrong", "mark over"),
    "fixed": ("became right", "mark ok"),
    "other": ("still wrong", ""),
}
_ORDER: tuple[Effect, ...] = ("broken", "fixed", "other")


@dataclass(frozen=True, kw_only=True)
class Flip:
    """Samples of one class that two models assign to different classes, by their indices."""

    effect: Effect
    label: int | None
    before: int
    after: int
    samples: tuple[int, ...]


def flips_of(model: Measurement, baseline: Measurement, labels: tuple[int, ...]) -> list[Flip]:
    """The flips from the baseline to the model, broken ones first, then by frequency.

    Without `labels` every effect is "other". Empty where a model has no classes, or where the
    samples differ.
    """
    before = baseline.accuracy.predicted if baseline.accuracy else ()
    after = model.accuracy.predicted if model.accuracy else ()
    if len(before) != len(after):
        return []
    known = labels if len(labels) == len(after) else ()
    groups: dict[tuple[int | None, int, int], list[int]] = defaultdict(list)
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            groups[(known[i] if known else None, old, new)].append(i)
    flips = [
        Flip(
            effect=_effect(label, old, new),
            label=label,
            before=old,
            after=new,
            samples=tuple(samples),
        )
        for (label, old, new), samples in groups.items()
    ]
    return sorted(flips, key=lambda f: (_ORDER.index(f.effect), -len(f.samples), f.samples))


def flip_tables(report: Report) -> list[tuple[str, str, Table]]:
    """For each artifact with flips: its name, a summary and the table."""
    if report.baseline is None:
        return []
    tables = []
    for index, model in enumerate(report.measurements):
        flips = flips_of(model, report.baseline, report.labels)
        if flips:
            name = units.plain(model.name)
            tables.append((name, _summary(flips), _table(index, name, flips, report.class_names)))
    return tables


def class_name(index: int | None, names: tuple[str, ...]) -> str:
    """The name of a class where it is known, else its index; "–" for None."""
    if index is None:
        return units.ABSENT
    return units.plain(names[index]) if 0 <= index < len(names) else str(index)


def _effect(label: int | None, before: int, after: int) -> Effect:
    if label is None:
        return "other"
    return "fixed" if after == label else "broken" if before == label else "other"


def _summary(flips: list[Flip]) -> str:
    counts = {effect: sum(len(f.samples) for f in flips if f.effect == effect) for effect in _ORDER}
    if all(flip.label is None for flip in flips):
        return f"{counts['other']} changed"
    return ", ".join(f"{n} {_WORDS[effect][0]}" for effect, n in counts.items() if n)


def _table(index: int, name: str, flips: list[Flip], names: tuple[str, ...]) -> Table:
    return table(
        (
            Column("Class", lambda flip: class_name(flip.label, names), is_text=True),
            Column("Baseline", lambda flip: class_name(flip.before, names), is_text=True),
            Column("This model", lambda flip: class_name(flip.after, names), is_text=True),
            Column("Effect", _word, is_text=True),
            Column("Samples", lambda flip: number(str(len(flip.samples)), len(flip.samples))),
            Column("Examples", _examples, is_text=True),
        ),
        flips,
        name=f"flips-{index}",
        caption=f"Where {name} predicts another class than the baseline. Samples are indices in "
        "the data, from 0.",
    )


def _word(flip: Flip) -> Cell:
    word, kind = _WORDS[flip.effect] if flip.label is not None else ("changed", "")
    return Cell(word, kind=kind)


def _examples(flip: Flip) -> str:
    examples = ", ".join(map(str, flip.samples[:MOST_EXAMPLES]))
    more = len(flip.samples) - MOST_EXAMPLES
    return f"{examples} and {more} more" if more > 0 else examples
