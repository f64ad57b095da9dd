"""What Vela estimates for NPUs, in words: always marked as an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.tables import Cell, Column, Table, number, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edgeconv.types import Measurement, NpuEstimate, NpuLeft, Report

    _Pair = tuple[Measurement, NpuEstimate]


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
        return f"failed: {units.first_line(estimate.error)}"
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


def npu_table(report: Report) -> Table | None:
    """One line for each file and NPU; None without estimates."""
    if not (rows := npu_rows(report)):
        return None
    caption = " ".join(f"{line[:1].upper()}{line[1:]}." for line in npu_lines(report))
    return table(_COLUMNS, rows, name="npu", caption=caption)


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


def _column(
    heading: str, text: Callable[[NpuEstimate], str], key: Callable[[NpuEstimate], float | None]
) -> Column[_Pair]:
    """A column of numbers, which an estimate that failed has not."""

    def cell(pair: _Pair) -> Cell:
        _, estimate = pair
        return number(units.ABSENT if estimate.error else text(estimate), key(estimate))

    return Column(heading, cell)


_COLUMNS: tuple[Column[_Pair], ...] = (
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
