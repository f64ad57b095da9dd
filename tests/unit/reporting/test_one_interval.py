"""A number has one interval: in the table, on the page, and in all that the gate says of it."""

import msgspec
import pytest
import report_example as example

from edgeconv.gate.flow import check_report
from edgeconv.reporting.html import render_html
from edgeconv.reporting.markdown import render_markdown
from edgeconv.reporting.pages import text_of
from edgeconv.reporting.units import drop_value, interval_value
from edgeconv.reporting.verdicts import FORMATS, render
from edgeconv.types import Budget, Checked, GateStatistics, Limits, Report

LIMITS = Budget(every=Limits(max_accuracy_drop=0.001, min_accuracy=0.1, max_latency_ratio=1.0))


@pytest.fixture(scope="module")
def report() -> Report:
    report = example.report()
    check = check_report(report, LIMITS, GateStatistics(confidence=0.99))
    return msgspec.structs.replace(report, verdict=check.verdict)


def test_all_that_is_said_of_a_drop_has_the_interval_of_the_measurement(report):
    checked = Checked(checks=(check_report(report, LIMITS, GateStatistics(confidence=0.99)),))
    pages = [
        text_of(report) + text_of(report.verdict, below_table=True),
        render_html(report),
        render_markdown(report).replace("\\", ""),
    ]
    said = {name: render(checked, name).replace("\\", "") for name in FORMATS}
    judged = {
        (finding.model, finding.limit): finding for finding in checked.checks[0].verdict.findings
    }
    rows = [row for row in report.measurements if row.accuracy_drop_interval]
    assert len(rows) >= 3
    for row in rows:
        interval = row.accuracy_drop_interval
        assert all(interval_value(interval, "") in page for page in pages)
        finding = judged[row.name, "max-accuracy-drop"]
        assert finding.interval == interval
        in_words = f"95 % interval {drop_value(interval[0], '')} to {drop_value(interval[1], '')}"
        for name in ("text", "junit", "github-summary", "github-comment"):
            assert in_words in said[name], name
        assert str(interval[0]) in said["json"]
    shown = {row.accuracy_drop_interval for row in rows}
    stages = [stage for stage in checked.checks[0].stages if stage.stage == "float32"]
    assert {stage.own_interval for stage in stages} <= shown
