"""GitLab: the metrics report, which shows changes in a merge request, and code quality.

Sources: the OpenMetrics specification 1.0 (openmetrics.io), section "Text format"; "Code Quality
report format" in GitLab's documentation, a subset of Code Climate's: every issue has
`description`, `check_name`, `fingerprint`, `severity` and `location` with `path` and
`lines.begin`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edgeconv.reporting import units
from edgeconv.reporting.limits import sentence
from edgeconv.reporting.verdicts.machine import as_json, fingerprint
from edgeconv.reporting.verdicts.words import broken_findings, file_of, level_of, worst_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import Check, Checked, Finding

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
    return as_json([_issue(check, each, file) for check, each in broken_findings(checked)])


def _issue(check: Check, finding: Finding, config: str) -> dict[str, Any]:
    return {
        "description": f"{units.plain(check.name)}, {sentence(finding)}",
        "check_name": units.plain(finding.limit),
        "fingerprint": fingerprint(check, finding),
        "severity": _SEVERITIES[level_of(finding)],
        "location": {
            "path": units.plain(config).removeprefix("./") or "edgeconv.toml",
            "lines": {"begin": finding.line or 1},
        },
    }
