"""What machines read: JSON and its schemas, SARIF, and GitLab's metrics and code quality.

Sources: SARIF 2.1.0 (OASIS, 2020); the OpenMetrics specification 1.0 (openmetrics.io), section
"Text format"; "Code Quality report format" in GitLab's documentation, a subset of Code Climate's:
every issue has `description`, `check_name`, `fingerprint`, `severity` and `location` with `path`
and `lines.begin`.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import msgspec

from edgeconv.reporting import units
from edgeconv.reporting.limits import explanation, in_words, name_of, sentence
from edgeconv.reporting.verdicts.words import (
    broken_findings,
    closing,
    file_of,
    headline,
    level_of,
    remarks,
    statistics_line,
    worst_first,
)
from edgeconv.system.processes.escaping import encodable
from edgeconv.types import Check, Checked, Finding, Report, Verdict, limit_kind
from edgeconv.types.version import VERSION

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render_json(checked: Checked) -> str:
    """The checks as one JSON document; NaN becomes null."""
    return as_json(msgspec.to_builtins(checked))


def as_json(value: Any) -> str:
    """A JSON document of plain values, ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(encodable(value)), indent=1).decode() + "\n"


def fingerprint(check: Check, finding: Finding) -> str:
    """A hash of what is checked, not of the result: the same in the next check."""
    parts = (check.name, finding.model, finding.limit, finding.reference, finding.subject)
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()


def report_schema() -> bytes:
    """The content of docs/schemas/report.json."""
    return schema_of(Report, "edgeconv report")


def schema_of(noun: type[msgspec.Struct], title: str) -> bytes:
    """The JSON Schema of a type; equal bytes for equal types."""
    schema = {"$schema": _DIALECT, "title": title, **msgspec.json.schema(noun)}
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2) + b"\n"


SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
# GitHub shows no more results of a run, and takes 10 MB of compressed JSON.
_MOST = 5000
# What makes placeholders and links in the texts of SARIF (3.11.5 and 3.11.6).
_ESCAPES = str.maketrans({"\\": "\\\\", "[": "\\[", "]": "\\]", "{": "{{", "}": "}}"})


def render_sarif(checked: Checked) -> str:
    """One run; a result for each limit that does not hold, and a rule for each limit among them."""
    broken = list(islice(broken_findings(checked), _MOST))
    limits = list(dict.fromkeys(units.plain(finding.limit) for _, finding in broken))
    file = file_of(checked)
    results = [_result(check, finding, limits, file) for check, finding in broken]
    return sarif_document(
        [_rule(limit) for limit in limits],
        f"edgeconv/{units.plain(file)}/",
        0 if checked.ok else 1,
        results,
        properties={"said": closing(checked)},
    )


def sarif_document(
    rules: list[Any], run_id: str, exit_code: int, results: list[Any], **further: Any
) -> str:
    """A document of one run of edgeconv; `further` are more fields of the run."""
    driver = {"name": "edgeconv", "version": VERSION, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": run_id},
        "invocations": [{"executionSuccessful": True, "exitCode": exit_code}],
        "results": results,
        **further,
    }
    return as_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(limit: str) -> dict[str, Any]:
    kind = limit_kind(limit)
    description = message(kind.words)
    return {
        "id": limit,
        "shortDescription": {"text": description},
        "fullDescription": {"text": description},
        "help": {"text": message(kind.advice)},
        "defaultConfiguration": {"level": "error"},
    }


def _result(check: Check, finding: Finding, rules: list[str], config: str) -> dict[str, Any]:
    limit = units.plain(finding.limit)
    return {
        "ruleId": limit,
        "ruleIndex": rules.index(limit),
        "level": level_of(finding),
        "message": {"text": message(f"{check.name}, {sentence(finding)}")},
        "locations": [{"physicalLocation": _location(config, finding.line)}],
        "partialFingerprints": {"limit/v1": fingerprint(check, finding)},
        "properties": {"outcome": finding.outcome},
    }


def _location(config: str, line: int | None) -> dict[str, Any]:
    file = quote(config.encode("utf-8", "backslashreplace")) or "edgeconv.toml"
    return {
        "artifactLocation": {"uri": file, "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": line or 1},
    }


def message(text: str) -> str:
    """A text for SARIF, in which nothing is a placeholder or a link."""
    return units.plain(text).translate(_ESCAPES)


_SEVERITIES = {"error": "major", "warning": "minor"}
_FAMILIES = {
    "edgeconv_actual": "The number that was compared with a limit.",
    "edgeconv_allowed": "The limit.",
    "edgeconv_holds": "1 where the limit holds, else 0; NaN where it was not measured.",
    "edgeconv_stage": "The value of the metric of a stage.",
}
_Labels = tuple[tuple[str, str], ...]


def render_metrics(checked: Checked) -> str:
    """Gauges for the actual and allowed number of each limit, and for the value of each stage."""
    samples: dict[str, dict[_Labels, float]] = {family: {} for family in _FAMILIES}
    for check in checked.checks:
        for family, labels, value in (*_limits(check), *_stages(check)):
            # A series must not appear twice; the worst findings come first.
            samples[family].setdefault(labels, value)
    lines = [line for family, series in samples.items() for line in _family(family, series)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _family(name: str, samples: dict[_Labels, float]) -> Iterator[str]:
    if samples:
        yield f"# TYPE {name} gauge"
        yield f"# HELP {name} {_FAMILIES[name]}"
    for labels, value in samples.items():
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        yield f"{name}{{{shown}}} {_number(value)}"


def _limits(check: Check) -> Iterator[tuple[str, _Labels, float]]:
    for finding in worst_first(check):
        labels = _labels(check, finding)
        if isinstance(finding.actual, float | int):
            yield "edgeconv_actual", labels, finding.actual
        if isinstance(finding.allowed, float | int):
            yield "edgeconv_allowed", labels, finding.allowed
        held = math.nan if finding.outcome == "missing" else float(finding.outcome == "passed")
        yield "edgeconv_holds", labels, held


def _stages(check: Check) -> Iterator[tuple[str, _Labels, float]]:
    for stage in check.stages:
        if stage.after is not None:
            labels = {"check": check.name, "stage": stage.stage, "model": stage.model}
            yield "edgeconv_stage", (*labels.items(), ("metric", stage.metric)), stage.after


def _labels(check: Check, finding: Finding) -> _Labels:
    labels = {
        "check": check.name,
        "model": finding.model,
        "limit": finding.limit,
        "reference": finding.reference,
        "subject": finding.subject,
    }
    return tuple((key, text) for key, text in labels.items() if text)


def _escaped(text: str) -> str:
    return units.plain(text).replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def render_code_quality(checked: Checked) -> str:
    """An issue for each limit that does not hold; an empty list where all do."""
    file = file_of(checked)
    return as_json(
        [
            {
                "description": f"{units.plain(check.name)}, {sentence(finding)}",
                "check_name": units.plain(finding.limit),
                "fingerprint": fingerprint(check, finding),
                "severity": _SEVERITIES[level_of(finding)],
                "location": {
                    "path": units.plain(file).removeprefix("./") or "edgeconv.toml",
                    "lines": {"begin": finding.line or 1},
                },
            }
            for check, finding in broken_findings(checked)
        ]
    )


_COUNTED = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}


def render_junit(checked: Checked) -> str:
    """The document; its counts of failures and errors agree with the gate."""
    checks = checked.checks or (Check(name="edgeconv check", verdict=Verdict(findings=())),)
    suites = [_suite(check, checked.config) for check in checks]
    root = ElementTree.Element("testsuites", {"name": "edgeconv check", **_counts(suites)})
    # The schema has no count of skipped cases here.
    del root.attrib["skipped"]
    root.extend(suites)
    ElementTree.indent(root, " ")
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _suite(check: Check, config: str) -> Element:
    name = units.plain(check.name)
    # A gate that checked nothing fails, and so must its report.
    cases = [_case(finding, name) for finding in check.verdict.findings] or [_empty_case(name)]
    suite = ElementTree.Element("testsuite", {"name": name, **_counts(cases)})
    if config:
        suite.set("file", units.plain(config))
    suite.extend(cases)
    summary = [units.plain(check.summary)] if check.summary else []
    lines = [headline(check), *summary, *remarks(check), statistics_line(check)]
    ElementTree.SubElement(suite, "system-out").text = "\n".join(lines)
    return suite


def _case(finding: Finding, suite: str) -> Element:
    name = f"{units.plain(finding.model)}: {name_of(finding)}"
    case = ElementTree.Element("testcase", {"name": name, "classname": suite})
    if finding.outcome == "passed":
        allowed, actual = in_words(finding)
        clauses = [f"{actual}, allowed {allowed}", *explanation(finding)]
        ElementTree.SubElement(case, "system-out").text = "; ".join(clauses)
        return case
    kind = "skipped" if finding.ok else "error" if finding.outcome == "missing" else "failure"
    trouble = ElementTree.SubElement(case, kind, {"message": sentence(finding)})
    if kind != "skipped":
        trouble.set("type", finding.outcome)
    return case


def _empty_case(suite: str) -> Element:
    case = ElementTree.Element("testcase", {"name": "the budget", "classname": suite})
    message = "the budget has no limit for any model"
    ElementTree.SubElement(case, "error", {"message": message, "type": "missing"})
    return case


def _counts(elements: Iterable[Element]) -> dict[str, str]:
    listed = list(elements)
    return {
        attribute: str(sum(1 for each in listed for _ in each.iter(tag)))
        for attribute, tag in _COUNTED.items()
    }
