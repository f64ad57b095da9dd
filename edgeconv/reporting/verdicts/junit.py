"""JUnit XML, one suite a model and one case a limit.

The schema is Jenkins's (xunit-plugin, junit-10.xsd), which GitLab and GitHub read too. The format
has no warnings: they are skipped cases, which are shown and do not fail. A missing number is an
error of the case, not a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from edgeconv.reporting import units
from edgeconv.reporting.limits import explanation, in_words, name_of, sentence
from edgeconv.reporting.verdicts.words import headline, remarks, statistics_line
from edgeconv.types import Check, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from xml.etree.ElementTree import Element

    from edgeconv.types import Checked, Finding

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
