"""The gate on versions of a runtime: which fail, how each format says it, what is not repeated."""

import json
from typing import Any

import msgspec
import pytest
from report_example import report
from test_gate_flow import LENIENT, checking, job, model, work
from wording import fails, says

from edgeconv.gate.check import Project, _with_lines
from edgeconv.gate.flow import check_report, version_findings
from edgeconv.measure import bench
from edgeconv.reporting.verdicts import FORMATS, render
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.check import CheckRequest
from edgeconv.requests.config.chosen import settled
from edgeconv.requests.config.file import load_config
from edgeconv.requests.config.tables import OptionNames
from edgeconv.runtimes import choice
from edgeconv.types import (
    Checked,
    Finding,
    GateStatistics,
    Report,
    RuntimeVersions,
    TargetRuntime,
    VersionResult,
)
from edgeconv.types.errors import ToolFailed
from edgeconv.types.measurement import VersionState

__all__ = ["model", "work"]
VERSIONS = RuntimeVersions(name="litert", specifier=">=2.0")


def result(version: str, state: VersionState = "right", **fields: Any) -> VersionResult:
    return VersionResult(model="int8", runtime=f"litert=={version}", state=state, **fields)


def finding(*results: VersionResult) -> Finding:
    (only,) = version_findings(msgspec.structs.replace(report(), matrix=results))
    return only


REFERENCE = result("2.3.0", is_reference=True)
WRONG = result("2.1.0", "wrong", snr_db=4.25, flips=3)
CRASHES = result("2.1.1", "crashes", detail="signal 11\nmore")
ABSENT = result("2.0.2", "not installable", detail="no wheel")


def test_a_file_that_is_right_everywhere_passes():
    only = finding(result("2.0.3"), REFERENCE)
    assert (only.model, only.limit, only.outcome) == ("int8", "runtimes", "passed")
    assert (only.allowed, only.actual) == ("right in 2 versions", "right in 2 versions")


def test_the_first_bad_version_is_named_with_what_to_do():
    only = finding(result("2.0.3"), WRONG, CRASHES, REFERENCE)
    assert (only.outcome, only.actual) == ("failed", "litert==2.1.0 answers wrong")
    says(only.reason)


@pytest.mark.parametrize("state", ["wrong", "does not load", "does not run", "crashes"])
def test_each_bad_state_fails(state):
    assert finding(result("2.1.0", state, detail="because"), REFERENCE).outcome == "failed"


def test_a_version_that_could_not_be_installed_never_passes():
    only = finding(ABSENT, REFERENCE)
    assert only.outcome == "missing"
    assert not only.ok
    says(only.reason)
    both = finding(ABSENT, CRASHES, REFERENCE)
    assert both.outcome == "failed"
    says(both.reason)
    assert "more" not in both.reason.replace("bad too", "")


def test_each_file_has_its_own_finding():
    other = msgspec.structs.replace(CRASHES, model="float32")
    findings = version_findings(msgspec.structs.replace(report(), matrix=(REFERENCE, other)))
    assert [(each.model, each.outcome) for each in findings] == [
        ("int8", "passed"),
        ("float32", "failed"),
    ]


def test_a_report_without_the_versions_that_are_wanted_does_not_pass():
    assert version_findings(report()) == ()
    check = check_report(report(), LENIENT, GateStatistics(), versions=VERSIONS)
    (only,) = [each for each in check.verdict.findings if each.limit == "runtimes"]
    assert only.outcome == "missing"
    says(only.reason)
    assert not check.verdict.ok


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_names_the_first_bad_version(name):
    matrix = (result("2.0.3"), WRONG, ABSENT, REFERENCE)
    example = msgspec.structs.replace(report(), matrix=matrix)
    check = check_report(example, LENIENT, GateStatistics())
    text = render(Checked(checks=(check,)), name).replace("\\", "")
    if name == "gitlab-metrics":
        line = 'edgeconv_holds{check="digits",model="int8",limit="runtimes"} 0.0'
        assert line.replace('"digits"', f'"{check.name}"') in text.splitlines()
        return
    assert "litert==2.1.0 answers wrong" in text
    assert "--target-runtime litert==2.1.0" in text
    if name == "sarif":
        (rule,) = (
            each
            for each in json.loads(text)["runs"][0]["tool"]["driver"]["rules"]
            if each["id"] == "runtimes"
        )
        assert "!=2.1.0" in rule["help"]["text"]


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ('[check]\nruntimes = "litert>=2.0"\n', 4),
        ('[bench]\nruntimes = "litert>=2.0"\n', 4),
        ('[model.m.bench]\nruntimes = "litert>=2.0"\n', 4),
        ("", 1),
    ],
)
def test_the_finding_has_the_line_of_the_key(tmp_path, tables, line):
    path = tmp_path / "edgeconv.toml"
    path.write_text(f'[model.m]\nsource = "m"\n{tables}[budget]\nmax-size-bytes = 1\n')
    example = msgspec.structs.replace(report(), matrix=(CRASHES, REFERENCE))
    check = check_report(example, LENIENT, GateStatistics())
    check = _with_lines(check, load_config(path, OptionNames()), "m")
    (only,) = [each for each in check.verdict.findings if each.limit == "runtimes"]
    assert only.line == line


class Index:
    """What pip's index and the versions answer, and how often the latter were asked."""

    def __init__(self) -> None:
        self.versions = ["2.2.0", "2.3.0"]
        self.states: dict[str, VersionState] = {}
        self.asked: list[BenchRequest] = []

    def matching(self, versions: RuntimeVersions) -> tuple[TargetRuntime, ...]:
        if not self.versions:
            raise ToolFailed(f"the versions of {versions.name} are unknown")
        return tuple(TargetRuntime(name="litert", version=each) for each in self.versions)

    def run(self, request: BenchRequest, **_: Any) -> tuple[VersionResult, ...]:
        self.asked.append(request)
        return tuple(result(each, self.states.get(each, "right")) for each in self.versions)


@pytest.fixture
def index(monkeypatch) -> Index:
    index = Index()
    monkeypatch.setattr(choice, "matching_versions", index.matching)
    monkeypatch.setattr(bench, "bench_versions", index.run)
    return index


def outcome(checked: Any) -> str:
    outcomes = [each.outcome for each in checked.verdict.findings if each.limit == "runtimes"]
    return outcomes[0] if outcomes else ""


def test_an_unchanged_check_runs_no_version_again(work, model, index):
    first = checking().check(job(work, model, versions=VERSIONS))
    assert outcome(first) == "passed"
    assert not first.reused
    again = checking().check(job(work, model, versions=VERSIONS))
    assert again.reused
    assert len(index.asked) == 1
    asked = index.asked[0].measuring
    assert (asked.versions, asked.is_timed) == (VERSIONS, False)
    assert work.asked[0].measuring.versions is None


def test_a_new_version_in_the_index_is_run_and_nothing_is_measured_again(work, model, index):
    checking().check(job(work, model, versions=VERSIONS))
    index.versions.append("2.4.0")
    index.states["2.4.0"] = "crashes"
    again = checking().check(job(work, model, versions=VERSIONS))
    assert outcome(again) == "failed"
    assert (len(index.asked), work.benches) == (2, 1)


@pytest.mark.parametrize("state", ["not installable", "crashes", "does not load"])
def test_what_may_do_better_next_time_is_not_kept(work, model, index, state):
    index.states["2.2.0"] = state
    assert not checking().check(job(work, model, versions=VERSIONS)).verdict.ok
    index.states.clear()
    assert outcome(checking().check(job(work, model, versions=VERSIONS))) == "passed"


@pytest.mark.parametrize(
    ("table", "typed", "specifier"),
    [
        ('[check]\nruntimes = "litert>=2.0"\n', None, ">=2.0"),
        ('[bench]\nruntimes = "litert>=2.0"\n', None, ">=2.0"),
        ('[bench]\nruntimes = "litert>=2.0"\n[check]\nruntimes = "litert>=2.1"\n', None, ">=2.1"),
        ('[check]\nruntimes = "litert>=2.0"\n', ">=2.2", ">=2.2"),
        ("", None, None),
    ],
)
def test_the_versions_are_typed_or_of_check_or_of_bench(model, table, typed, specifier):
    config = model.parent / "edgeconv.toml"
    source = f'[model.m]\nsource = "{model.name}"\n[convert]\nto = "int8"\n'
    config.write_text(f"{source}{table}[budget]\nmax-size-bytes = 9\n")
    versions = RuntimeVersions(name="litert", specifier=typed) if typed else None
    request = settled(CheckRequest(config=str(config), versions=versions), "check")
    (only,) = Project(request, lambda _: None).jobs([])
    assert (only.versions.specifier if only.versions else None) == specifier


def test_without_an_answer_of_the_index_the_model_is_not_checked(work, model, index):
    index.versions.clear()
    with fails(ToolFailed):
        checking().check(job(work, model, versions=VERSIONS))


def test_a_report_in_a_file_keeps_its_versions():
    example = msgspec.structs.replace(report(), matrix=(WRONG, REFERENCE))
    again = msgspec.json.decode(msgspec.json.encode(example), type=Report)
    assert version_findings(again) == version_findings(example)
