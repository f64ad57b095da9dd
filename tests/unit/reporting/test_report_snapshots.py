"""Three reports as each format writes them, and names that no format lets come out live."""

import csv
import io
import re
from itertools import product
from typing import Any

import msgspec
import pytest
import report_example as example
import tuning_example
from golden_files import assert_golden
from msgspec import inspect
from report_pages import ReportPage

from edgeconv.reporting.facts import agreement_table, latency_table, models_table
from edgeconv.reporting.files import render
from edgeconv.reporting.html import render_html
from edgeconv.reporting.pages import text_of
from edgeconv.reporting.sections import matrix_table, npu_rows, npu_table
from edgeconv.reporting.spreadsheet import safe
from edgeconv.system.processes.escaping import plain
from edgeconv.types import Conversion, Report

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}{% raw %}",
    "[bold]x[/] \x1b[31m:smile:\n\x00",
    "a|b\n| `x` @team #1 www.e.org",
]
# Each sample's answer, from which numbers are computed, and paths, which may not have any slash.
_NO_NAMES = {"correct", "file"}


@pytest.mark.parametrize("name", ["text", "markdown", "csv"])
def test_a_report_of_all_that_can_be_measured_looks_as_it_did(name):
    assert_golden(f"whole_{name}.txt", render((example.whole_report(),), name))


def test_the_tables_of_its_page_hold_what_they_held():
    report = example.whole_report()
    tables = (models_table, latency_table, agreement_table, matrix_table, npu_table)
    rows = [
        [f"{cell.lead}|{cell.text}|{cell.under}|{cell.sort_key}" for cell in row.cells]
        for table in tables
        if (made := table(report))
        for row in made.rows
    ]
    headings = [
        [made.caption, *(column.heading for column in made.columns)]
        for table in tables
        if (made := table(report))
    ]
    lines = [" ¦ ".join(line) for line in (*headings, *rows)]
    assert_golden("whole_page.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("name", tuning_example.EXAMPLES)
def test_a_search_looks_as_it_did(name):
    assert_golden(f"tuning_{name}.txt", text_of(tuning_example.EXAMPLES[name]) + "\n")


def test_a_file_has_one_line_whatever_ran_it():
    names = [row.name for row, _ in npu_rows(example.whole_report())]
    assert len(names) == 3
    assert not any(name.endswith("again") for name in names)


def renamed(value: Any, kind: inspect.Type, text: str) -> Any:
    """The value with `text` in place of each of its texts; what is empty stays so."""
    if isinstance(value, msgspec.Struct):
        fields = inspect.type_info(type(value)).fields
        kept = (field for field in fields if field.name not in _NO_NAMES)
        new = {each.name: renamed(getattr(value, each.name), each.type, text) for each in kept}
        return msgspec.structs.replace(value, **new)
    if isinstance(kind, inspect.UnionType):
        kinds = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        return value if value is None else renamed(value, kinds[0], text)
    if isinstance(kind, inspect.VarTupleType):
        return tuple(renamed(each, kind.item_type, text) for each in value)
    if isinstance(kind, inspect.TupleType):
        pairs = zip(value, kind.item_types, strict=True)
        return tuple(renamed(each, of, text) for each, of in pairs)
    if isinstance(kind, inspect.DictType):
        keys = (renamed(key, kind.key_type, text) for key in value)
        values = (renamed(each, kind.value_type, text) for each in value.values())
        return dict(zip(keys, values, strict=True))
    return text if isinstance(kind, inspect.StrType) and value else value


def hostile_report(text: str) -> Report:
    """Each name, path, tool and note is `text`, and each file has its own hash as before."""
    whole = example.whole_report()
    named: Report = renamed(whole, inspect.type_info(Report), text)
    artifacts = tuple(
        msgspec.structs.replace(each, sha256=plain.sha256)
        for each, plain in zip(named.artifacts, whole.artifacts, strict=True)
    )
    return msgspec.structs.replace(named, artifacts=artifacts)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_name_comes_out_live(text):
    report = hostile_report(text)
    html = render_html(report)
    page = ReportPage(html)
    assert page.open == []
    assert (page.count("script"), page.count("img")) == (1, 0)
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on")]
    assert "49" not in page.text.split("Notes")[-1].split("Made by")[0]
    assert not re.search("[\x00-\x08\x0b-\x1f]", html)
    if text.isprintable():
        assert page.text.count(text) > 60
    conversion = renamed(example.conversion(), inspect.type_info(Conversion), text)
    for width, noun in product((None, 60), (report, report.training, report.verdict, conversion)):
        shown = text_of(noun, width=width)
        assert not re.search("[\x00-\x09\x0b-\x1f]", shown)
        assert re.sub(r"\s", "", plain(text)) in re.sub(r"\s", "", shown)
    markdown = render((report,), "markdown")
    assert "<script" not in markdown
    assert not re.search(r"<img|@team|#1\b|www\.e", markdown)
    table = [line for line in markdown.split("\n\n")[2].splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert len(table) == 2 + 1 + len(report.measurements)
    rows = list(csv.DictReader(io.StringIO(render((report,), "csv"))))
    assert {row["model"] for row in rows} == {safe(text)}


@pytest.mark.parametrize("has_limits", [True, False])
def test_graded_files_are_a_table_in_80_columns(has_limits):
    report = example.report()
    graded = tuple(msgspec.structs.replace(m, grade="usable") for m in report.measurements)
    verdict = report.verdict if has_limits else None
    shown = text_of(msgspec.structs.replace(report, measurements=graded, verdict=verdict), width=80)
    headings = next(line.split() for line in shown.splitlines() if line.startswith("model "))
    assert headings[-1] == ("budget" if has_limits else "flips")


@pytest.mark.parametrize("width", [40, 70, 100, 200])
def test_no_search_is_cut_at_any_width(width):
    text = text_of(tuning_example.tuning(), width=width)
    assert "int8x4, 1 in int8" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width
