"""JUnit XML, one suite a model and one case a limit.

The schema is Jenkins's (xunit-plugin, junit-10.xsd), which GitLab's and GitHub's readers
take too. The format knows no warnings: what is only warned of is a skipped case, so that it
shows and fails nothing. A number that is missing is an error of the case, not a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from edgeconv.reporting import units
from edgeconv.reporting.limits import explanation, in_words, name_of, sentence
from edgeconv.reporting.verdicts.words import judging_line, remarks
from edgeconv.types import Check, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from xml.etree.ElementTree import Element

    from edgeconv.types import Checked, Finding

_COUNTED = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}


def render_junit(checked: Checked) -> str:
    """The document, with numbers of failures and errors that agree with the gate."""
    checks = checked.checks or (Check(name="edgeconv check", verdict=Verdict(findings=())),)
    suites = [_suite(check, checked.config) for check in checks]
    root = ElementTree.Element("testsuites", {"name": "edgeconv check", **_counts(suites)})
    # The schema has no number of skipped cases here.
    del root.attrib["skipped"]
    root.extend(suites)
    ElementTree.indent(root, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{_text(root)}\n'


def _suite(check: Check, config: str) -> Element:
    name = units.plain(check.name)
    # A gate that judged nothing fails, and so must its report.
    cases = [_case(finding, name) for finding in check.verdict.findings] or [_nothing(name)]
    suite = ElementTree.Element("testsuite", {"name": name, **_counts(cases)})
    if config:
        suite.set("file", units.plain(config))
    suite.extend(cases)
    said = [units.plain(check.summary)] if check.summary else []
    said += [*remarks(check), judging_line(check)]
    ElementTree.SubElement(suite, "system-out").text = "\n".join(said)
    return suite


def _case(finding: Finding, suite: str) -> Element:
    name = f"{units.plain(finding.model)}: {name_of(finding)}"
    case = ElementTree.Element("testcase", {"name": name, "classname": suite})
    if finding.outcome == "passed":
        allowed, actual = in_words(finding)
        said = "; ".join([f"{actual}, allowed {allowed}", *explanation(finding)])
        ElementTree.SubElement(case, "system-out").text = said
        return case
    kind = "skipped" if finding.ok else "error" if finding.outcome == "missing" else "failure"
    trouble = ElementTree.SubElement(case, kind, {"message": sentence(finding)})
    if kind != "skipped":
        trouble.set("type", finding.outcome)
    return case


def _nothing(suite: str) -> Element:
    case = ElementTree.Element("testcase", {"name": "the budget", "classname": suite})
    message = "the budget held no model to any limit"
    ElementTree.SubElement(case, "error", {"message": message, "type": "missing"})
    return case


def _counts(elements: Iterable[Element]) -> dict[str, str]:
    found = list(elements)
    return {
        attribute: str(sum(1 for each in found for _ in each.iter(tag)))
        for attribute, tag in _COUNTED.items()
    }


def _text(root: Element) -> str:
    return ElementTree.tostring(root, encoding="unicode")
