import html
import json
import re
import sys
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import msgspec
import pytest
import verdict_example as example
import xmlschema
from commands import captured
from golden_files import assert_golden
from json_schemas import jsonschema
from markdown_it import MarkdownIt
from places import SCHEMAS
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from wording import fails

from edgeconv.reporting import units
from edgeconv.reporting.verdicts import FORMATS, render
from edgeconv.reporting.verdicts.github import MOST_IN_A_COMMENT, MOST_IN_A_SUMMARY
from edgeconv.reporting.verdicts.words import class_table
from edgeconv.types import (
    IN_VERSIONS,
    LIMIT_KINDS,
    NOT_CHECKED,
    Check,
    Checked,
    ClassDrop,
    Finding,
    Limits,
    StageState,
    Verdict,
)
from edgeconv.types.errors import UsageError

SCHEMAS = SCHEMAS
JUNIT = xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")
SARIF = jsonschema.Draft4Validator(
    json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8")),
    format_checker=jsonschema.FormatChecker(),
)
# What GitLab's reader requires of an issue, and the severities it knows.
CODE_QUALITY = jsonschema.Draft202012Validator(
    {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["description", "check_name", "fingerprint", "severity", "location"],
            "properties": {
                "description": {"type": "string"},
                "check_name": {"type": "string"},
                "fingerprint": {"type": "string"},
                "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
                "location": {
                    "type": "object",
                    "required": ["path", "lines"],
                    "properties": {
                        "path": {"type": "string", "pattern": "^[^/]"},
                        "lines": {
                            "type": "object",
                            "required": ["begin"],
                            "properties": {"begin": {"type": "integer"}},
                        },
                    },
                },
            },
        },
    }
)
MARKDOWN = MarkdownIt("commonmark").enable("table")
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe]")
NOTHING = Checked(config="edgeconv.toml", checks=())
NO_LIMIT = Checked(config="edgeconv.toml", checks=(Check(name="m", verdict=Verdict(findings=())),))
hostile = pytest.mark.parametrize("name", example.HOSTILE, ids=repr)


# Every format


@pytest.mark.parametrize("name", FORMATS)
def test_a_verdict_looks_as_it_did(name):
    file = f"verdict_{name}.txt"
    rendered = render(example.checked(), name)
    assert_golden(file, re.sub(r'("version": )"\d[^"]*"(?=,\n +"rules")', r'\1"0"', rendered))


@pytest.mark.parametrize("width", [40, 80])
def test_the_text_looks_as_it_did(width):
    rendered = render(example.checked(), "text", width=width)
    assert max(map(len, rendered.splitlines())) <= width
    assert_golden(f"verdict_text_{width}.txt", rendered)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "github-annotations"])
@pytest.mark.parametrize("checked", [example.good(), NO_LIMIT, NOTHING])
def test_every_format_ends_with_a_newline_also_where_there_is_nothing_to_say(name, checked):
    assert render(checked, name).endswith("\n")


def test_a_format_that_is_none_is_an_error_with_a_suggestion():
    with fails(UsageError):
        render(example.checked(), "junitt")


@hostile
@pytest.mark.parametrize("form", FORMATS)
def test_no_format_has_an_invisible_character_of_a_name_in_it(name, form):
    text = render(example.named(name), form)
    assert form == "json" or not INVISIBLE.search(text)
    text.encode()


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "text"])
def test_no_format_but_the_text_loads_anything_heavy(name):
    code = (
        "import sys; from edgeconv.types import Check, Checked, Verdict\n"
        "from edgeconv.reporting.verdicts import render\n"
        "check = Check(name='m', verdict=Verdict(findings=()))\n"
        f"render(Checked(config='c', checks=(check,)), {name!r})\n"
        "heavy = {'numpy', 'scipy', 'rich', 'jinja2', 'tensorflow', 'google.protobuf'}\n"
        "print(*(heavy & {*sys.modules}), end='')"
    )
    done = captured([sys.executable, "-c", code])
    assert (done.stdout, done.stderr) == ("", "")


# The terminal


def test_a_verdict_without_broken_limits_or_without_checks_ends_with_its_own_line():
    assert render(example.good(), "text").endswith("\nPASS 1 model within budget.\n")
    assert render(NOTHING, "text") == "FAIL No model was checked.\n"
    summary = shown(render(example.good(), "github-summary"))
    assert "✅ edgeconv check: 1 model within budget." in summary


def test_a_metric_that_is_no_share_has_no_percentages():
    stage = StageState(stage="quantized", model="m", changed=None, metric="mae", after=1.5)
    drop = ClassDrop(
        model="m",
        kind="slice",
        reference="baseline",
        name="night",
        samples=5,
        before=1.25,
        after=1.5,
        drop=0.25,
        interval=(-0.5, 1.0),
    )
    (check,) = example.good().checks
    checked = Checked(checks=(msgspec.structs.replace(check, stages=(stage,), classes=(drop,)),))
    text = render(checked, "text")
    assert "%" not in text.replace("95 %", "")
    assert "0.250 [−0.500, 1.00]" in text


def test_what_every_model_lost_of_a_class_is_one_row():
    (check,) = example.good().checks
    drops = [
        example.class_drop(name, 50, 0.9, after, model=model)
        for name, after in (("3", 0.5), ("7", 0.6))
        for model in ("float16", "float32", "int8")
    ]
    drops.append(example.class_drop("7", 50, 0.9, 0.7, model="dynamic"))
    grid = class_table(msgspec.structs.replace(check, classes=tuple(drops)), 2)
    assert grid is not None
    assert [[cell.text for cell in row.cells][:3] for row in grid.rows] == [
        ["3", "class", "float16, float32, int8"],
        ["7", "class", "float16, float32, int8"],
    ]
    assert grid.left_out == 1


def test_there_are_colours_only_where_they_are_asked_for(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in render(example.checked(), "text", color=True)
    assert "\x1b[" not in render(example.checked(), "text")


@hostile
@pytest.mark.parametrize("width", [20, 40, 80, None])
def test_no_line_of_the_text_is_a_command_to_the_log_of_a_job(name, width):
    text = render(example.named(name), "text", width=width)
    assert not re.search(r"^\s*::", text, re.MULTILINE)
    assert "##[" not in text
    assert not INVISIBLE.search(text)


# JSON


def test_the_json_is_the_noun():
    text = render(example.checked(), "json")
    assert msgspec.json.decode(text, type=Checked) == example.checked()


@hostile
def test_the_json_has_every_name_as_it_is_but_for_lone_surrogates(name):
    found = msgspec.json.decode(render(example.named(name), "json"), type=Checked)
    assert found.checks[0].name == name.encode("utf-8", "backslashreplace").decode()


# JUnit


def test_junit_has_one_case_a_limit_and_fails_where_the_gate_does():
    text = render(example.checked(), "junit")
    JUNIT.validate(text)
    root = ElementTree.fromstring(text)
    suites = {suite.get("name"): suite for suite in root}
    cases = suites["mnist"].findall("testcase")
    assert [len(suite.findall("testcase")) for suite in root] == [8, 2]
    outcomes = {case.get("name"): [child.tag for child in case] for case in cases}
    assert outcomes["mnist-int8: max-size-bytes"] == ["system-out"]
    assert outcomes["mnist-int8: max-accuracy-drop (baseline)"] == ["failure"]
    assert outcomes["mnist-int8: max-accuracy-drop (lock)"] == ["error"]
    assert outcomes["mnist-int8: max-class-drop of seven (baseline)"] == ["failure"]
    assert outcomes["mnist-int8: max-latency-ratio"] == ["skipped"]
    counts = {suite.get("name"): dict(suite.items()) for suite in root}
    assert counts["mnist"].items() >= {"failures": "4", "errors": "1", "skipped": "1"}.items()
    assert counts["keywords"].items() >= {"failures": "0", "errors": "0", "skipped": "1"}.items()
    assert dict(root.items()).items() >= {"tests": "10", "failures": "4", "errors": "1"}.items()
    out = suites["mnist"].findtext("system-out") or ""
    assert "int8 lost 3.0 points" in out
    assert "the calibration data changed since the lock" in out


@pytest.mark.parametrize("checked", [NOTHING, NO_LIMIT])
def test_junit_is_no_success_where_nothing_was_judged(checked):
    text = render(checked, "junit")
    JUNIT.validate(text)
    assert ElementTree.fromstring(text).get("errors") == "1"


@hostile
def test_junit_shows_every_name_as_it_is_said(name):
    text = render(example.named(name), "junit")
    JUNIT.validate(text)
    root = ElementTree.fromstring(text)
    assert root[0].get("name") == units.plain(name)
    assert [case.get("classname") for case in root.iter("testcase")] == [units.plain(name)] * 4
    assert len(list(root.iter("failure"))) == 2


# SARIF


def results(checked: Checked) -> list[dict[str, Any]]:
    document = json.loads(render(checked, "sarif"))
    SARIF.validate(document)
    (run,) = document["runs"]
    found: list[dict[str, Any]] = run["results"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in found)
    return found


def test_sarif_has_a_result_for_each_limit_that_does_not_hold_and_one_fingerprint_each():
    found = results(example.checked())
    assert [result["level"] for result in found] == ["error"] * 5 + ["warning"] * 2
    assert len({result["partialFingerprints"]["limit/v1"] for result in found}) == 7
    place = found[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "ci/edgeconv.toml", "uriBaseId": "%SRCROOT%"}
    assert results(example.good()) == []


def test_a_fingerprint_is_of_the_limit_and_not_of_its_value():
    (check,) = example.good().checks
    worse = [
        msgspec.structs.replace(each, actual=actual, outcome="failed", reason=reason)
        for each in check.verdict.findings
        for actual, reason in ((20.0, ""), (30.0, "x"))
    ]
    prints = [
        results(Checked(checks=(Check(name="m", verdict=Verdict(findings=(each,))),)))[0]
        for each in worse
    ]
    assert prints[0]["message"] != prints[1]["message"]
    assert prints[0]["partialFingerprints"] == prints[1]["partialFingerprints"]


def test_every_limit_that_can_be_set_has_a_meaning():
    names = [field.encode_name for field in msgspec.structs.fields(Limits)]
    assert list(LIMIT_KINDS) == [*names, IN_VERSIONS, NOT_CHECKED]
    assert len({LIMIT_KINDS[name].words for name in names}) == len(names)
    assert len({LIMIT_KINDS[name].advice for name in names}) == 8


@hostile
def test_sarif_makes_no_link_and_no_placeholder_of_a_name(name):
    for result in results(example.named(name)):
        text = result["message"]["text"]
        assert not re.search(r"(?<!\\)[\[\]]", text)
        assert not re.search(r"[{}]", text.replace("{{", "").replace("}}", ""))
        assert not INVISIBLE.search(text)
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert unquote(uri) == name.encode("utf-8", "backslashreplace").decode()
        assert re.fullmatch(r"[A-Za-z0-9%._~/-]+", uri)


def test_sarif_has_no_more_results_than_are_shown():
    assert len(results(many(6000))) == 5000


# GitHub annotations


COMMAND = re.compile(r"::(error|warning|notice) (?:file=([^:,\n]*),line=1,)?title=([^:,\n]*)::(.*)")


def commands(checked: Checked) -> list[tuple[str, str, str]]:
    """Level, title and message of each, as the runner of GitHub Actions reads them."""
    found = []
    for line in render(checked, "github-annotations").splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        found.append((match[1], unquote(match[3]), unquote(match[4])))
    return found


def test_annotations_are_of_the_limits_that_do_not_hold_and_of_what_is_said():
    found = commands(example.checked())
    assert [level for level, *_ in found] == ["error"] * 5 + ["warning"] * 2 + ["notice"] * 2
    assert found[0][1:] == (
        "mnist",
        "mnist-int8: max-accuracy-drop (baseline): 3.06 pp, allowed ≤ 1.00 pp; 95 % interval "
        "2.41 pp to 3.71 pp; tested at 95 % by mcnemar, 10000 samples",
    )
    assert render(example.good(), "github-annotations") == ""


def test_there_are_ten_annotations_of_a_level_at_most_and_the_last_says_how_many_more():
    found = commands(many(12))
    assert len(found) == 10
    assert found[-1][2] == "3 more limits do not hold; see the summary of the job"
    assert len(commands(many(10))) == 10
    assert "more limits" not in commands(many(10))[-1][2]


def test_an_annotation_is_no_longer_than_github_takes():
    for line in render(example.named("é" * 100_000), "github-annotations").splitlines():
        match = COMMAND.fullmatch(line)
        assert match
        assert len(match[3]) <= 255
        assert len(match[4].encode()) < 2**16


@hostile
def test_a_name_ends_no_annotation_and_starts_none(name):
    found = commands(example.named(name))
    assert [level for level, *_ in found] == ["error"] * 3 + ["warning", "notice"]
    assert {title for _, title, _ in found} == {units.plain(name)}
    assert found[-1][2] == units.plain(name)


# GitHub's summary and comment


def shown(markdown: str) -> str:
    """The text of the page that a browser would show."""
    page = MARKDOWN.render(markdown)
    assert set(re.findall(r"<(?!!--)/?([a-z0-9]+)", page)) <= {
        *("h2", "h3", "p", "table", "thead", "tbody", "tr", "th", "td", "strong", "em", "ul"),
        *("li", "details", "summary"),
    }
    return html.unescape(re.sub(r"<!--.*?-->|<[^>]*>", "", page))


def test_a_comment_starts_with_a_marker_that_is_that_of_the_configuration_alone():
    marker, rest = render(example.checked(), "github-comment").split("\n", 1)
    assert marker == "<!-- edgeconv check: ci/edgeconv.toml -->"
    assert rest == render(example.checked(), "github-summary")
    renamed = msgspec.structs.replace(example.good(), config="ci/edgeconv.toml")
    assert render(renamed, "github-comment").startswith(f"{marker}\n")


@hostile
def test_a_name_is_shown_and_is_no_markup(name):
    text = render(example.named(name), "github-comment")
    page = MARKDOWN.render(text)
    assert not INVISIBLE.search(text)
    assert text.splitlines()[0].count("-->") == 1
    cells = [len(re.findall(r"<t[hd]\b", line)) for line in page.split("</tr>")]
    assert set(cells) - {0} == {4, 6, 8}
    assert not re.search(r"<(a|img|script|code|em)\b", page)
    assert units.plain(name) in shown(text)


@pytest.mark.parametrize("count", [1, 100, 1000, 20_000])
@pytest.mark.parametrize(
    ("name", "most"), [("github-comment", MOST_IN_A_COMMENT), ("github-summary", MOST_IN_A_SUMMARY)]
)
def test_what_is_too_long_is_shortened_and_says_so(name, most, count):
    text = render(many(count), name)
    assert len(text.encode()) <= most
    assert "1 of 1 model: m." in text
    assert text.count("<details>") == text.count("</details>")
    assert ("further limit" in text) == (count > 200)


@pytest.mark.parametrize("name", ["github-comment", "github-summary"])
@pytest.mark.parametrize("length", [300, 10_000, 100_000])
def test_names_of_any_length_fit(name, length):
    checked = example.named("<" * length)
    many_models = msgspec.structs.replace(checked, checks=checked.checks * 30)
    assert len(render(many_models, name).encode()) <= (
        MOST_IN_A_COMMENT if name == "github-comment" else MOST_IN_A_SUMMARY
    )


# GitLab


def test_code_quality_has_an_issue_for_each_limit_that_does_not_hold():
    found = json.loads(render(example.checked(), "gitlab-codequality"))
    CODE_QUALITY.validate(found)
    assert [issue["severity"] for issue in found] == ["major"] * 5 + ["minor"] * 2
    assert len({issue["fingerprint"] for issue in found}) == 7
    assert found[0]["location"] == {"path": "ci/edgeconv.toml", "lines": {"begin": 1}}
    assert json.loads(render(example.good(), "gitlab-codequality")) == []


@hostile
def test_code_quality_shows_every_name_as_it_is_said(name):
    found = json.loads(render(example.named(name), "gitlab-codequality"))
    CODE_QUALITY.validate(found)
    assert all(units.plain(name) in issue["description"] for issue in found)
    assert not INVISIBLE.search(json.dumps(found, ensure_ascii=False))


def samples(checked: Checked) -> dict[str, list[Any]]:
    families = text_string_to_metric_families(render(checked, "gitlab-metrics"))
    return {family.name: family.samples for family in families}


def test_metrics_are_what_was_found_what_is_allowed_and_whether_it_holds():
    found = samples(example.checked())
    assert len(found["edgeconv_holds"]) == 10
    assert [each.value for each in found["edgeconv_holds"]].count(1.0) == 3
    drop = next(s for s in found["edgeconv_actual"] if s.labels.get("subject") == "seven")
    assert drop.value == 0.0522
    assert drop.labels == {
        "check": "mnist",
        "model": "mnist-int8",
        "limit": "max-class-drop",
        "reference": "baseline",
        "subject": "seven",
    }
    assert {s.labels["stage"]: s.value for s in found["edgeconv_stage"]}["quantized"] == 0.9592
    assert list(samples(NOTHING)) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e-300, 0.1])
def test_a_metric_is_exact_and_may_be_no_number(value):
    (check,) = example.good().checks
    finding = msgspec.structs.replace(check.verdict.findings[0], actual=value)
    checked = Checked(checks=(Check(name="m", verdict=Verdict(findings=(finding,))),))
    (found,) = samples(checked)["edgeconv_actual"]
    assert str(found.value) == str(value)


@hostile
def test_a_metric_has_every_name_as_its_label(name):
    found = samples(example.named(name))
    assert {each.labels["check"] for each in found["edgeconv_holds"]} == {units.plain(name)}


def many(count: int) -> Checked:
    """One model with so many broken limits."""
    (check,) = example.good().checks
    (finding,) = check.verdict.findings
    findings = tuple(
        msgspec.structs.replace(finding, actual=1e9, outcome="failed", subject=f"class {i}")
        for i in range(count)
    )
    return Checked(
        config="edgeconv.toml",
        checks=(msgspec.structs.replace(check, verdict=Verdict(findings=findings)),),
    )


def unbroken() -> Checked:
    """A check that fails, and in which no limit is broken: two were not measured, one not told."""
    findings = tuple(
        Finding(
            model="int8",
            limit="max-accuracy-drop",
            allowed=0.01,
            actual=None if outcome == "missing" else 0.0,
            outcome=outcome,
            reference=reference,
            reason="the trained model was not measured" if outcome == "missing" else "",
            samples=None if outcome == "missing" else 50,
            samples_needed=None if outcome == "missing" else 2900,
            line=line,
        )
        for outcome, reference, line in (
            ("missing", "baseline", 7),
            ("missing", "lock", 8),
            ("inconclusive", "", 9),
        )
    )
    check = Check(name="net", verdict=Verdict(findings=findings))
    return Checked(config="edgeconv.toml", checks=(check,))


def test_what_was_not_measured_is_not_said_to_be_broken_in_any_format():
    assert not unbroken().ok
    for name in FORMATS:
        text = render(unbroken(), name)
        assert "not measured" in text or name in ("json", "gitlab-metrics"), name
        assert "broken" not in text.replace("limits_broken", ""), name
    text = render(unbroken(), "text", color=True)
    head, _, end = text.rpartition("FAIL")
    assert "NOT MEASURED" in head
    assert "FAIL" not in head
    # Bold red is for what broke, and for the last line, which says how the command ends.
    assert head.count("[1;31m") == 1
    assert head.rstrip().endswith("[1;31m")
    assert "net" in end
    assert "❌" not in render(unbroken(), "github-summary").split("\n", 1)[1]
    assert "NaN" in render(unbroken(), "gitlab-metrics")


def test_what_cannot_be_told_is_said_once_with_its_samples_and_has_a_mark_in_the_rows():
    for name in ("text", "github-summary", "github-comment"):
        text = render(unbroken(), name)
        assert len(re.findall("2,?900", text)) == 1, name
        assert "2,900 samples are needed, there are 50" in units.plain(text).replace("\\", "")
    lines = render(unbroken(), "text").splitlines()
    assert [line[0] for line in lines if "max-accuracy-drop" in line] == ["–", "–", "?"]


def test_annotations_and_results_point_at_the_line_of_the_limit():
    lines = re.findall(
        r"::error file=edgeconv.toml,line=(\d+)", render(unbroken(), "github-annotations")
    )
    assert lines == ["7", "8", "9"]
    places = [one["locations"][0]["physicalLocation"] for one in results(unbroken())]
    assert [place["region"]["startLine"] for place in places] == [7, 8, 9]
    issues = json.loads(render(unbroken(), "gitlab-codequality"))
    assert [issue["location"]["lines"]["begin"] for issue in issues] == [7, 8, 9]
