"""Estimates for NPUs in every form of a report: never without the word for it."""

from __future__ import annotations

import csv
import io

import msgspec
from report_example import report

from edgeconv.reporting.html import render_html
from edgeconv.reporting.markdown import render_markdown
from edgeconv.reporting.npu import npu_lines, npu_rows
from edgeconv.reporting.pages import text_of
from edgeconv.reporting.spreadsheet import render_csv
from edgeconv.types import NpuEstimate, NpuLeft, Report

WHOLE = NpuEstimate(
    npu="ethos-u55-128",
    compiler="ethos-u-vela 5.2.0",
    system="Ethos_U55_High_End_Embedded",
    memory="Shared_Sram",
    clock_hz=5e8,
    operators=12,
    on_npu=10,
    macs=1000,
    macs_on_npu=990,
    sram_bytes=4096,
    dram_bytes=0,
    flash_bytes=71_000,
    latency_us=1234.5,
    left=(
        NpuLeft(operator="SVDF", count=2, reason="Unsupported opType"),
        NpuLeft(operator="<b>", count=1),
    ),
)
FLOAT = msgspec.structs.replace(
    WHOLE,
    on_npu=0,
    macs_on_npu=0,
    latency_us=None,
    left=(NpuLeft(operator="CONV_2D", count=12, reason="unsupported DataType Float32"),),
)
FAILED = NpuEstimate(npu="ethos-u55-128", compiler="ethos-u-vela 5.2.0", error="ended by SIGSEGV")


def example() -> Report:
    plain = report()
    estimates = {"float32": FLOAT, "int8": WHOLE, "dynamic": FAILED}
    rows = tuple(
        msgspec.structs.replace(row, npu=(estimates[row.recipe],))
        if row.recipe in estimates
        else row
        for row in plain.measurements
    )
    # The same file in another runtime, which has the same estimate.
    again = [msgspec.structs.replace(row, name=f"{row.name} again") for row in rows]
    return msgspec.structs.replace(plain, measurements=(*rows, *again))


def test_a_file_has_one_line_whatever_ran_it() -> None:
    names = [row.name for row, _ in npu_rows(example())]
    assert len(names) == 3
    assert not any(name.endswith("again") for name in names)


def test_the_lines_name_compiler_chip_and_what_the_time_is_of() -> None:
    first, chip, time, floats = npu_lines(example())
    assert first == "estimates of ethos-u-vela 5.2.0, not measurements: nothing ran on an NPU"
    assert chip == (
        "ethos-u55-128: system Ethos_U55_High_End_Embedded, memory mode Shared_Sram, 500 MHz"
    )
    assert time == "the time is that of the NPU alone, without what stays on the CPU"
    assert floats.startswith("no operator on the NPU: ")
    assert "int8 and int16" in floats


def test_every_form_has_the_estimates() -> None:
    text = text_of(example())
    page = render_html(example())
    # Without the marks that keep its text from becoming markup.
    markdown = render_markdown(example()).replace("\\", "")
    for shown in (text, markdown, page):
        assert "10 of 12" in shown
        assert "99 %" in shown
        assert "~1.23 ms" in shown
        assert "SVDF ×2 (Unsupported opType)" in shown
        assert "failed: ended by SIGSEGV" in shown
        assert "all: CONV_2D ×12 (unsupported DataType Float32)" in shown
        assert "not measurements" in shown
    assert "&lt;b&gt;" in page
    assert "SVDF ×2 (Unsupported opType); <b>" not in page


def test_a_report_without_estimates_has_no_such_table() -> None:
    for shown in (text_of(report()), render_markdown(report()), render_csv(report())):
        assert "ethos" not in shown
    assert 'id="npu"' not in render_html(report())


def test_the_columns_of_the_spreadsheet_are_of_the_npu() -> None:
    lines = list(csv.DictReader(io.StringIO(render_csv(example()))))
    by_recipe = {line["recipe"]: line for line in lines[: len(report().measurements) + 1]}
    int8 = by_recipe["int8"]
    assert float(int8["ethos-u55-128: share of operators"]) == 10 / 12
    assert int8["ethos-u55-128: SRAM (bytes)"] == "4096"
    assert float(int8["ethos-u55-128: estimated latency (us)"]) == 1234.5
    assert by_recipe["float32"]["ethos-u55-128: estimated latency (us)"] == ""
    assert by_recipe["float16"]["ethos-u55-128: share of operators"] == ""
