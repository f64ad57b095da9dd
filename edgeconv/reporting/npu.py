"""What Vela estimates for NPUs, in words: always marked as an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.tables import Cell, Line, PageTable, headings, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import Measurement, NpuEstimate, NpuLeft, Report

# Each column, and whether it has numbers.
NPU_COLUMNS = {
    "Model": False,
    "NPU": False,
    "Operators": True,
    "MACs": True,
    "SRAM": True,
    "Flash": True,
    "DRAM": True,
    "Estimate": True,
    "On the CPU": False,
}


def npu_rows(report: Report) -> tuple[tuple[Measurement, NpuEstimate], ...]:
    """Each estimate with the first row of its file: runtimes do not change it."""
    first: dict[tuple[str, str], tuple[Measurement, NpuEstimate]] = {}
    for row in report.measurements:
        for estimate in row.npu:
            first.setdefault((row.sha256, estimate.npu), (row, estimate))
    return tuple(first.values())


def npu_cells(row: Measurement, estimate: NpuEstimate) -> tuple[str, ...]:
    """The cells of `NPU_COLUMNS`, as harmless text."""
    if estimate.error:
        blank = [units.ABSENT] * 6
        return (*_named(row, estimate), *blank, f"failed: {units.first_line(estimate.error)}")
    return (
        *_named(row, estimate),
        f"{estimate.on_npu} of {estimate.operators}",
        _share(estimate.work_share),
        units.size(estimate.sram_bytes),
        units.size(estimate.flash_bytes),
        units.size(estimate.dram_bytes),
        estimated(estimate),
        left_text(estimate),
    )


def left_text(estimate: NpuEstimate) -> str:
    """The operators that stay on the processor, and why."""
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
    """What the estimates are: of which compiler, for which chips, and of what."""
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


def npu_table(report: Report) -> PageTable | None:
    """One line for each file and NPU; None without estimates."""
    if not (rows := npu_rows(report)):
        return None
    lines = [f"{line[:1].upper()}{line[1:]}." for line in npu_lines(report)]
    text = {index for index, is_number in enumerate(NPU_COLUMNS.values()) if not is_number}
    return PageTable(
        name="npu",
        caption=" ".join(lines),
        headings=headings(*NPU_COLUMNS, text=text),
        lines=tuple(_line(*pair) for pair in rows),
    )


def _named(row: Measurement, estimate: NpuEstimate) -> tuple[str, str]:
    return units.plain(row.name), units.plain(estimate.npu)


def _share(share: float | None) -> str:
    return units.percent(share, 0)


def _kinds(estimate: NpuEstimate) -> str:
    return "; ".join(map(_kind, estimate.left))


def _kind(left: NpuLeft) -> str:
    times = f" ×{left.count}" if left.count > 1 else ""
    reason = f" ({units.first_line(left.reason)})" if left.reason else ""
    return f"{units.plain(left.operator)}{times}{reason}"


def _float_lines(report: Report) -> Iterator[str]:
    """That files of floats are not for an NPU."""
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


def _line(row: Measurement, estimate: NpuEstimate) -> Line:
    model, npu, operators, macs, sram, flash, dram, time, left = npu_cells(row, estimate)
    return Line(
        cells=(
            Cell(text=model),
            Cell(text=npu),
            number(operators, estimate.operator_share),
            number(macs, estimate.work_share),
            number(sram, estimate.sram_bytes),
            number(flash, estimate.flash_bytes),
            number(dram, estimate.dram_bytes),
            number(time, estimate.latency_us),
            Cell(text=left),
        )
    )
