"""Tables and facts of the page: latency, agreement, the machine, and how to reproduce it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from edgeconv.processes.escaping import shell_line
from edgeconv.reporting import units
from edgeconv.reporting.closeness import snr, span
from edgeconv.reporting.pace import pace_title
from edgeconv.reporting.rows import all_models
from edgeconv.reporting.tables import Cell, Line, PageTable, headings, number
from edgeconv.reporting.training import Fact
from edgeconv.reporting.units import duration_interval

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import Agreement, Conditions, Latency, Measurement, Report


def latency_table(report: Report) -> PageTable | None:
    """Load, first invoke and percentiles of every model that was timed; None without any."""
    timed = [model for model in all_models(report) if model.latency]
    if not timed:
        return None
    is_cold = any(model.cold for model in timed)
    return PageTable(
        name="latency",
        caption="Load and first invoke are the medians of the processes. "
        "Percentiles are over the samples of all processes"
        + ("; of cold starts, over load and first invoke together." if is_cold else "."),
        headings=headings(
            *("Model", "Load", "First invoke", "p50", "95 % interval", "p90", "p99"),
            *("Samples", "Warm-up", "Threads", "Batch"),
        ),
        lines=tuple(_latency_line(model, *kind) for model in timed for kind in _kinds(model)),
    )


def batched_line(model: Measurement | None) -> str:
    """The time of the trained model per batch; "" where that was not measured."""
    if model is None or not model.batched_us or not model.batched_size:
        return ""
    middle = median(model.batched_us)
    return (
        f"{units.plain(model.name)} in batches of {model.batched_size}: "
        f"{units.duration(middle)} a call, {units.duration(middle / model.batched_size)} a sample."
    )


def agreement_table(report: Report) -> PageTable | None:
    """The error of every output against its reference; None where that was not measured."""
    pairs = [(m, each) for m in report.measurements for each in (*m.agreement, *m.kernels)]
    if not pairs:
        return None
    return PageTable(
        name="agreement",
        caption="The outputs of each model on the samples, compared with those of its reference. "
        "Flipped: samples whose highest score is at another index. SNR: the variance of the "
        "reference over the error; every 6 dB halve the error, and a constant reference has none.",
        headings=headings(
            *("Model", "Output", "Reference", "Flipped", "Largest error", "Outputs span"),
            *("SNR", "Cosine", "Samples"),
            text={0, 1, 2},
        ),
        lines=tuple(_agreement_line(model, each) for model, each in pairs),
    )


def machine_facts(report: Report) -> list[Fact]:
    """The machine, its load, and the data."""
    here, data = report.environment, report.data
    facts = [Fact("machine", units.plain(here.machine))]
    if here.host:
        facts.append(Fact("host", units.plain(here.host), is_code=True))
    facts.append(Fact("processor", f"{units.plain(here.cpu)}, {units.counted(here.cores, 'core')}"))
    facts.append(Fact("system", f"{units.plain(here.system)}, Python {units.plain(here.python)}"))
    facts += condition_facts(report.conditions)
    if data:
        steps = f", {units.plain(data.preprocessing)}" if data.preprocessing else ""
        facts.append(Fact("data", f"{data.samples} samples of {units.plain(data.source)}{steps}"))
    return facts


def condition_facts(conditions: Conditions | None) -> list[Fact]:
    """The load of the machine, as far as it is known."""
    if conditions is None:
        return []
    facts = []
    loads = [load for load in (conditions.load_before, conditions.load_after) if load is not None]
    if loads:
        facts.append(Fact("load", " before, ".join(f"{load:.2f}" for load in loads) + " after"))
    for label, share in (("stolen time", conditions.steal), ("other processes", conditions.busy)):
        if share is not None:
            facts.append(Fact(label, f"{units.percent(share, 1)} of the processors' time"))
    if conditions.governor:
        facts.append(Fact("frequency governor", units.plain(conditions.governor)))
    if conditions.frequency_mhz:
        low, high = conditions.frequency_mhz
        facts.append(Fact("frequency", f"{low:.0f} to {high:.0f} MHz"))
    return facts


def command_line(report: Report) -> str:
    """The command of the report for a shell; "" where it is not known."""
    return shell_line(report.command)


def version_facts(report: Report) -> list[Fact]:
    """The runtimes, and the tools with their versions."""
    runtimes = dict.fromkeys(model.runtime for model in all_models(report) if model.runtime)
    facts = [Fact("runtimes", units.plain(", ".join(runtimes)))] if runtimes else []
    tools = ", ".join(f"{name} {v}" for name, v in sorted(report.environment.tools.items()))
    return [*facts, *([Fact("tools", units.plain(tools))] if tools else [])]


def hash_table(report: Report) -> PageTable:
    """The hash of every model and of the samples."""
    data = [("the samples", report.data.sha256)] if report.data else []
    rows = [*((units.plain(m.name), m.sha256) for m in all_models(report)), *data]
    return PageTable(
        name="hashes",
        caption="SHA-256 of every model and of the samples.",
        headings=headings("What", "SHA-256", text={0, 1}),
        lines=tuple(
            Line(cells=(Cell(text=name), Cell(text=units.plain(sha256), kind="code")))
            for name, sha256 in rows
        ),
        is_sortable=False,
    )


def _kinds(model: Measurement) -> Iterator[tuple[str, Latency]]:
    """The latencies of a model: without pause, in a period, and of cold starts."""
    if model.latency:
        yield "", model.latency
    if model.paced:
        yield f", {pace_title(model.paced)}", model.paced
    if model.cold:
        yield ", cold", model.cold


def _latency_line(model: Measurement, kind: str, latency: Latency) -> Line:
    rounds, count = len(latency.rounds_us), sum(map(len, latency.rounds_us))
    load, first = (
        median(times) if times else None for times in (latency.load_us, latency.first_us)
    )
    return Line(
        cells=(
            Cell(
                text=f"{units.plain(model.name)}{kind}",
                under=f"{rounds} process{'es' * (rounds > 1)}",
            ),
            number(units.duration(load), load),
            number(units.duration(first), first),
            number(units.duration(latency.p50_us), latency.p50_us),
            Cell(text=duration_interval(latency.p50_interval_us), key=latency.p50_interval_us[0]),
            number(units.duration(latency.p90_us), latency.p90_us),
            number(units.duration(latency.p99_us), latency.p99_us),
            number(str(count), count),
            Cell(text=", ".join(map(str, latency.warmup)) or units.ABSENT),
            number(str(latency.threads), latency.threads),
            number(str(latency.batch), latency.batch),
        )
    )


def _agreement_line(model: Measurement, each: Agreement) -> Line:
    flips = units.ABSENT if each.flips is None else str(each.flips)
    return Line(
        cells=(
            Cell(text=units.plain(model.name)),
            Cell(text=units.plain(each.output)),
            Cell(text=units.plain(each.reference)),
            number(flips, each.flips),
            number(units.significant(each.max_error), each.max_error),
            Cell(text=span(each)),
            number(units.decibels(snr(each)), each.snr_db),
            number(units.significant(each.cosine, 5), each.cosine),
            number(str(each.samples), each.samples),
        )
    )
