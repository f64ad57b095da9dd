"""GitLab's code quality report: a list of issues, in its subset of Code Climate's format.

Source: "Code Quality report format" in GitLab's documentation: every issue has `description`,
`check_name`, `fingerprint`, `severity` and `location` with `path` and `lines.begin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.reporting import units
from edgeconv.reporting.limits import sentence
from edgeconv.reporting.verdicts.fingerprints import fingerprint
from edgeconv.reporting.verdicts.machine import as_json
from edgeconv.reporting.verdicts.words import file_of, level_of, unheld

if TYPE_CHECKING:
    from edgeconv.types import Check, Checked, Finding

_SEVERITIES = {"error": "major", "warning": "minor"}


def render_code_quality(checked: Checked) -> str:
    """An issue for each limit that does not hold; an empty list where all do."""
    file = file_of(checked)
    return as_json([_issue(check, each, file) for check, each in unheld(checked)])


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
