"""The report of a sweep: order, fronts, changes, files, and the gate."""

import csv
import json
import os
from pathlib import Path

import msgspec
import pytest
from json_schemas import jsonschema
from places import ROOT
from sweeps import SWEEP, planned, result_of, write_models
from wording import fails

import edgeconv
from edgeconv.plugins.scale.sweep import summarize
from edgeconv.plugins.scale.sweep_jobs import Results
from edgeconv.plugins.scale.sweep_plan import SweepPlan
from edgeconv.reporting.pages import text_of
from edgeconv.reporting.sweeps import render_sweep, sweep_csv, write_sweep
from edgeconv.reporting.verdicts.machine import schema_of
from edgeconv.system.store import read_noun
from edgeconv.types import Limits, Swept
from edgeconv.types.errors import ToolFailed, UsageError

SCHEMA = ROOT / "docs" / "schemas" / "sweep.json"
FOUR = SWEEP.replace('"int8"', '"int8", "float16", "dynamic"')


@pytest.fixture
def plan(tmp_path) -> SweepPlan:
    write_models(tmp_path)
    return planned(tmp_path, FOUR + "[budget]\nmax-accuracy-drop = 0.5\n")


@pytest.fixture
def results(plan, tmp_path) -> Results:
    """One cell is fine, one is worse, one failed, and one is missing."""
    results = Results(tmp_path / "out")
    float32, int8, float16, _ = plan.jobs[0].cells
    results.write(result_of(float32, "float32", drop=0.0))
    results.write(result_of(int8, "int8", drop=0.02))
    results.fail((float16,), ToolFailed("<b>it</b> crashed\nwith a log", hint="try again"))
    return results


def swept(plan: SweepPlan, results: Results, last: Swept | None = None) -> Swept:
    return summarize(plan, results, last, title="portfolio", directory="")


def test_the_worst_cells_are_first(plan, results):
    cells = swept(plan, results).cells
    assert [cell.recipe for cell in cells] == ["float16", "dynamic", "int8", "float32"]
    assert [cell.state for cell in cells] == ["failed", "missing", "done", "done"]
    assert (cells[0].reason, cells[0].hint) == ("<b>it</b> crashed", "try again")


def test_the_front_has_what_no_other_cell_betters(plan, results):
    fronts = {cell.recipe for cell in swept(plan, results).cells if cell.on_front}
    assert fronts == {"float32", "int8"}
    # As large as int8, and worse.
    results.write(result_of(plan.jobs[0].cells[3], "int8", drop=0.03))
    fronts = {cell.recipe for cell in swept(plan, results).cells if cell.on_front}
    assert fronts == {"float32", "int8"}
    results.write(result_of(plan.jobs[0].cells[3], "int8", drop=-0.03))
    fronts = {cell.recipe for cell in swept(plan, results).cells if cell.on_front}
    assert fronts == {"dynamic"}


def test_what_one_runtime_runs_does_not_better_what_another_one_runs(tmp_path):
    write_models(tmp_path)
    plan = planned(tmp_path, 'runtimes = ["litert", "tflite-micro"]\n' + SWEEP)
    results = Results(tmp_path / "out")
    for cell in plan.jobs[0].cells:
        here = str(cell.runtime) == "litert"
        results.write(result_of(cell, drop=0.0 if here else 0.02))
    fronts = {(cell.recipe, cell.runtime) for cell in swept(plan, results).cells if cell.on_front}
    assert {runtime for _, runtime in fronts} == {"litert", "tflite-micro"}


def test_what_changed_is_shown_and_kept_until_something_else_does(plan, results):
    first = swept(plan, results)
    assert not any(cell.change for cell in first.cells)
    results.write(result_of(plan.jobs[0].cells[2], "int8", drop=0.01))
    second = swept(plan, results, first)
    changes = {cell.recipe: cell.change for cell in second.cells if cell.change}
    assert changes == {"float16": "failed → done"}
    assert swept(plan, results, second) == second
    fewer = plan._replace(cells=plan.cells[1:])
    third = swept(fewer, results, second)
    assert third.removed == ("nets/a.tflite test float32 litert",)


def test_the_order_of_the_results_does_not_count(plan, tmp_path):
    texts = []
    for number, cells in enumerate((plan.jobs[0].cells, plan.jobs[0].cells[::-1])):
        results = Results(tmp_path / str(number))
        for cell in cells:
            results.write(result_of(cell))
        write_sweep(swept(plan, results), results.directory)
        files = sorted(results.directory.glob("sweep.*"))
        texts.append([file.read_bytes() for file in files])
    assert texts[0] == texts[1]
    assert len(texts[0]) == 3


def test_the_files_have_every_cell(plan, results):
    whole = swept(plan, results)
    write_sweep(whole, results.directory)
    assert read_noun(results.directory / "sweep.json", Swept, what="sweep") == whole
    lines = list(csv.DictReader(sweep_csv(whole).splitlines()))
    assert [line["recipe"] for line in lines] == [cell.recipe for cell in whole.cells]
    assert lines[2]["drop"] == "0.02"
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.validate(json.loads((results.directory / "sweep.json").read_bytes()), schema)


def test_no_text_becomes_markup(plan, results):
    page = render_sweep(swept(plan, results))
    assert "<b>it</b>" not in page
    assert "&lt;b&gt;it&lt;/b&gt; crashed" in page
    assert page.count("<tr") == 1 + 4
    assert "data-sortable" in page
    assert 'id="filter"' in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_text_has_the_reasons(plan, results):
    lines = text_of(swept(plan, results)).splitlines()
    assert lines[0] == "portfolio: 4 cells, 2 done, 1 failed, 1 missing"
    assert "<b>it</b> crashed" in lines[5]
    assert all(len(line) <= 60 for line in text_of(swept(plan, results), width=60).splitlines())


def test_the_reason_of_several_cells_is_below_the_last_of_them(plan, tmp_path):
    results = Results(tmp_path / "twice")
    listing = "m has 2 signatures:\n  one(x)\n  two(x)\nthe log of a tool"
    results.fail(plan.jobs[0].cells, UsageError(listing, hint="choose one"))
    lines = text_of(swept(plan, results)).splitlines()
    states, reason, hint = lines[4:8], lines[8], lines[9]
    assert all(line.endswith("failed") for line in states)
    assert reason.strip() == "m has 2 signatures: one(x); two(x)"
    assert hint.strip() == "next: choose one"


def test_the_schema_is_the_documented_one():
    """Set EDGECONV_WRITE_GOLDEN=1 to write it anew."""
    schema = schema_of(Swept, "edgeconv sweep")
    if os.environ.get("EDGECONV_WRITE_GOLDEN"):
        SCHEMA.write_bytes(schema)
    assert SCHEMA.read_bytes() == schema


def check(whole: Swept, tmp_path: Path, **changes) -> dict[str, bool]:
    write_sweep(msgspec.structs.replace(whole, **changes), tmp_path)
    checked = edgeconv.check(report=str(tmp_path / "sweep.json"))
    return {each.name: each.verdict.ok for each in checked.checks}


def test_the_gate_holds_each_cell_to_the_budget(plan, results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "nets/a.tflite on test"
    whole = swept(plan, results)
    # One failed, and one has not run.
    assert check(whole, tmp_path) == {name: False}
    assert check(whole, tmp_path, gate="a-cell-per-model") == {name: True}
    for cell in plan.jobs[0].cells[2:]:
        results.write(result_of(cell))
    assert check(swept(plan, results), tmp_path) == {name: True}


def test_the_gate_holds_a_model_to_its_own_limits(plan, results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "nets/a.tflite on test"
    for cell in plan.jobs[0].cells[2:]:
        results.write(result_of(cell))
    whole = swept(plan, results)
    tight = edgeconv.Budget(every=Limits(max_size_bytes=1))
    assert check(whole, tmp_path, budgets={name: tight}) == {name: False}
    assert check(whole, tmp_path, budget=tight, budgets={name: whole.budget}) == {name: True}
    with fails(UsageError):
        check(whole, tmp_path, budget=edgeconv.Budget(), budgets={"another": tight})


def test_without_any_budget_the_gate_is_refused(plan, results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with fails(UsageError):
        check(swept(plan, results), tmp_path, budget=edgeconv.Budget())
