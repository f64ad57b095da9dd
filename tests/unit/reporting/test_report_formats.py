"""Reports as Markdown, CSV and JSON, several at once, and `edgeconv report` itself."""

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import report_example as example
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from json_schemas import jsonschema
from loaded_modules import RUN, loaded_by
from places import ROOT
from wording import fails, says

from edgeconv.cli.verbs import report as command
from edgeconv.measure.compare import combine_reports, differences_of
from edgeconv.reporting.files import FORMATS, NAMES, read_report, render, write_formats
from edgeconv.reporting.html import render_html
from edgeconv.reporting.markdown import render_markdown
from edgeconv.reporting.spreadsheet import render_csv, safe
from edgeconv.reporting.tables import escape
from edgeconv.reporting.verdicts.machine import report_schema
from edgeconv.types import Environment, Report
from edgeconv.types.errors import InputRefused, UsageError

SCHEMA = ROOT / "docs" / "schemas" / "report.json"


def changed(**changes: Any) -> Report:
    return msgspec.structs.replace(example.report(), **changes)


def elsewhere(**changes: Any) -> Environment:
    return msgspec.structs.replace(example.report().environment, **changes)


def written(report: Report, folder: Path, name: str = "report.json") -> str:
    path = folder / name
    path.write_bytes(msgspec.json.encode(report))
    return str(path)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(command, arguments)


# Markdown


def test_a_report_that_was_not_judged_has_no_verdict_and_columns_only_of_what_was_measured():
    text = render_markdown(
        changed(verdict=None, baseline=None, measurements=(example.without_accuracy("dynamic"),))
    )
    assert text.startswith("### digits\\_cnn on LiteRT\n\n|  | model | size |")
    assert "accuracy" not in text.split("\n\n")[1]
    assert "What broke" not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("@team fix #12", "@<!-- -->team fix #<!-- -->12"),
        ("[x](http://e.org)", "\\[x\\]\\(http\\://e.org\\)"),
        ("www.e.org", "www<!-- -->.e.org"),
        ("`a` *b* _c_", "\\`a\\` \\*b\\* \\_c\\_"),
        ("a\nb", "a\\\\nb"),
    ],
)
def test_foreign_text_is_no_markup_no_link_and_no_mention(text, shown):
    assert escape(text) == shown


# CSV


def rows_of(*reports: Report) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render_csv(*reports))))


def test_what_was_not_measured_and_what_is_no_number_is_empty():
    model = msgspec.structs.replace(
        example.without_accuracy("dynamic"), size_ratio=math.nan, latency_ratio=math.inf
    )
    (row,) = rows_of(changed(baseline=None, measurements=(model,)))
    empty = ("size ratio", "latency ratio", "drop", "peak memory (bytes)", "value of the metric")
    assert [row[name] for name in empty] == [""] * 5


@pytest.mark.parametrize("text", ["=1+1", "+x", "-2", "@SUM(A1)", "  =x", "\uff1dx"])
def test_no_text_starts_a_formula(text):
    assert safe(text) == f"'{text}"
    model = msgspec.structs.replace(example.measurement("int8"), name=text)
    (row,) = rows_of(changed(baseline=None, measurements=(model,)))
    assert row["model"] == f"'{text}"


@given(st.text(max_size=20))
def test_any_name_comes_back_from_the_csv_as_one_cell(name):
    model = msgspec.structs.replace(example.measurement("int8"), name=name, error=name)
    (row,) = rows_of(changed(baseline=None, measurements=(model,), verdict=None))
    assert row["model"] == row["error"] == safe(name)
    assert not row["model"].lstrip().startswith(("=", "+", "-", "@"))


# JSON


def test_the_published_schema_is_that_of_the_nouns():
    """Write it anew with: python -m edgeconv report --schema > docs/schemas/report.json"""
    assert SCHEMA.read_bytes() == report_schema()
    assert run("--schema").stdout == report_schema().decode()


def test_a_report_validates_and_a_changed_one_does_not():
    schema = msgspec.json.decode(report_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    document = msgspec.json.decode(msgspec.json.encode(example.report()))
    validator = jsonschema.Draft202012Validator(schema)
    assert list(validator.iter_errors(document)) == []
    for change in ({"format": 1}, {"format": 3}, {"title": 5}, {"measurements": [{}]}):
        assert list(validator.iter_errors({**document, **change})) != []


def test_a_report_comes_back_from_its_file_as_it_was(tmp_path):
    write_formats((example.report(),), tmp_path, FORMATS)
    assert read_report(tmp_path / "report.json") == read_report(tmp_path) == example.report()
    assert {path.name for path in tmp_path.iterdir()} == set(NAMES.values())


@pytest.mark.parametrize("version", [1, 3])
def test_a_report_of_another_version_is_refused_with_what_to_do(version, tmp_path):
    document = {**msgspec.json.decode(msgspec.json.encode(example.report())), "format": version}
    (tmp_path / "old.json").write_bytes(msgspec.json.encode({**document, "unknown": 1}))
    with fails(InputRefused):
        read_report(tmp_path / "old.json")


@pytest.mark.parametrize("content", ["{}", "[]", "no JSON", '{"format": 2}', '{"format": "x"}'])
def test_what_is_no_report_is_refused_as_such(content, tmp_path):
    (tmp_path / "x.json").write_text(content, encoding="utf-8")
    with fails(InputRefused):
        read_report(tmp_path / "x.json")


# Several at once


def test_reports_that_compare_become_one_with_names_that_differ():
    first = changed(title="june", measurements=(example.measurement("int8"),))
    second = changed(
        title="july",
        measurements=(example.measurement("int8"), example.measurement("float16")),
        notes=("another",),
    )
    both = combine_reports([first, second])
    assert [row.name for row in both.measurements] == [
        "june: digits_cnn-int8",
        "july: digits_cnn-int8",
        "digits_cnn-float16",
    ]
    assert both.title == "june and july"
    assert both.verdict is None
    assert both.notes == ("latency was measured on a shared machine", "another")
    assert combine_reports([first]) == first


def test_even_the_same_report_twice_has_different_names():
    names = [row.name for row in combine_reports([example.report(), example.report()]).measurements]
    assert len(names) == len(set(names)) == 14


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"environment": elsewhere(machine="other")}, "machine: build-7 and other"),
        ({"environment": elsewhere(host="ssh:pi@pi")}, "host: this machine and ssh:pi@pi"),
        (
            {"data": msgspec.structs.replace(example.report().data, sha256="e" * 64)},
            "hash of the samples",
        ),
        (
            {"baseline": msgspec.structs.replace(example.baseline(), sha256="e" * 64)},
            "baseline: digits_cnn",
        ),
    ],
)
def test_reports_that_do_not_compare_are_refused_with_the_reason(changes, reason):
    other = changed(**changes)
    assert any(reason in found for found in differences_of(example.report(), other))
    with fails(InputRefused):
        combine_reports([example.report(), other])


def test_side_by_side_every_report_is_shown_for_itself():
    other = changed(title="on the <b>phone</b>", environment=elsewhere(machine="phone"))
    page = render_html(example.report(), other)
    assert page.count('<article class="group"') == 2
    assert "on the &lt;b&gt;phone&lt;/b&gt;" in page
    ids = re.findall(' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert "2 reports side by side" in page
    text = render((example.report(), other), "text")
    assert text.count("digits_cnn (baseline)") == 2


# The command


def test_the_command_prints_a_table_and_writes_a_page(tmp_path):
    file = written(example.report(), tmp_path)
    printed = run(file)
    assert printed.exit_code == 0, printed.exception
    assert "digits_cnn-int16x8" in printed.stdout
    assert "FAIL 1 of 7 limits broken" in printed.stdout
    done = run(file, "-o", str(tmp_path / "out"))
    assert done.stdout == f"report: {tmp_path / 'out' / 'report.html'}\n"
    assert "<!doctype html>" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_be_printed(name, tmp_path):
    file = written(example.report(), tmp_path)
    done = run(file, "--format", name)
    assert done.exit_code == 0
    assert done.stdout == render((read_report(Path(file)),), name)


@pytest.mark.parametrize("name", FORMATS)
def test_only_the_page_loads_what_draws_plots(name, tmp_path):
    write_formats((example.report(),), tmp_path, ("json",))
    loaded = loaded_by(RUN, "report", str(tmp_path / "report.json"), "--format", name)
    assert ("vl_convert" in loaded) == (name == "html")


def test_a_budget_gives_the_verdict_and_the_marks(tmp_path):
    (tmp_path / "budget.toml").write_text("[budget]\nmax-size-bytes = 50000\n", encoding="utf-8")
    file = written(changed(verdict=None), tmp_path)
    done = run(file, "--config", str(tmp_path / "budget.toml"))
    assert done.exit_code == 0
    # What did not run holds no limit.
    assert (
        "FAIL 2 of 7 limits broken, 1 not measured: digits_cnn-float32, digits_cnn-float16, "
        in done.stdout
    )


def test_two_machines_are_refused_together_and_shown_apart(tmp_path):
    files = [
        written(example.report(), tmp_path, "a.json"),
        written(changed(title="two", environment=elsewhere(cpu="Other")), tmp_path, "b.json"),
        written(changed(title="three"), tmp_path, "c.json"),
    ]
    refused = run(*files)
    assert isinstance(refused.exception, InputRefused)
    says(refused.exception)
    shown = run(*files, "--side-by-side")
    assert shown.exit_code == 0, shown.exception
    # The first and the third compare, so they share a table.
    assert shown.stdout.count("speed-up") == 2
    assert "three: digits_cnn-int8" in shown.stdout


def test_an_empty_set_is_refused(tmp_path):
    empty = written(changed(baseline=None, measurements=()), tmp_path)
    done = run(empty)
    assert isinstance(done.exception, InputRefused)
    says(done.exception)
    assert run().exit_code == 2
    with fails(InputRefused):
        combine_reports([])


def test_several_formats_need_a_directory_and_an_unknown_one_is_named(tmp_path):
    file = written(example.report(), tmp_path)
    several = run(file, "--format", "csv", "--format", "html")
    assert several.exit_code == 2
    says(several.stderr)
    says(run(file, "--format", "markdwn").stderr)


def test_a_typo_in_the_budget_is_an_error(tmp_path):
    (tmp_path / "budget.toml").write_text("[budget]\nmax-size = 1\n", encoding="utf-8")
    done = run(written(example.report(), tmp_path), "--config", str(tmp_path / "budget.toml"))
    assert isinstance(done.exception, UsageError)
