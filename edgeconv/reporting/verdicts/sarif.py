"""SARIF 2.1.0 (OASIS, 2020): what does not hold, as the results of an analysis.

GitHub shows 5,000 results of a run at most, and files may have 10 MB compressed.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import edgeconv
from edgeconv.reporting import units
from edgeconv.reporting.limits import meaning, sentence
from edgeconv.reporting.verdicts.machine import as_json, fingerprint
from edgeconv.reporting.verdicts.words import closing, file_of, level_of, unheld

if TYPE_CHECKING:
    from edgeconv.types import Check, Checked, Finding

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_MOST = 5000
# In the texts of SARIF (3.11.5 and 3.11.6), what else makes placeholders and links of them.
_ESCAPES = str.maketrans({"\\": "\\\\", "[": "\\[", "]": "\\]", "{": "{{", "}": "}}"})


def render_sarif(checked: Checked) -> str:
    """One run; a result for each limit that does not hold, and a rule for each limit among them."""
    found = list(islice(unheld(checked), _MOST))
    rules = list(dict.fromkeys(units.plain(finding.limit) for _, finding in found))
    file = file_of(checked)
    driver = {
        "name": "edgeconv",
        "version": edgeconv.__version__,
        "rules": [_rule(limit) for limit in rules],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"edgeconv/{units.plain(file)}/"},
        "invocations": [{"executionSuccessful": True, "exitCode": 0 if checked.ok else 1}],
        "results": [_result(check, each, rules, file) for check, each in found],
        "properties": {"said": closing(checked)},
    }
    return as_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(limit: str) -> dict[str, Any]:
    is_of, to_do = (message(text) for text in meaning(limit))
    return {
        "id": limit,
        "shortDescription": {"text": is_of},
        "fullDescription": {"text": is_of},
        "help": {"text": to_do},
        "defaultConfiguration": {"level": "error"},
    }


def _result(check: Check, finding: Finding, rules: list[str], config: str) -> dict[str, Any]:
    limit = units.plain(finding.limit)
    return {
        "ruleId": limit,
        "ruleIndex": rules.index(limit),
        "level": level_of(finding),
        "message": {"text": message(f"{check.name}, {sentence(finding)}")},
        "locations": [{"physicalLocation": _place(config, finding.line)}],
        "partialFingerprints": {"limit/v1": fingerprint(check, finding)},
        "properties": {"outcome": finding.outcome},
    }


def _place(config: str, line: int | None) -> dict[str, Any]:
    file = quote(config.encode("utf-8", "backslashreplace")) or "edgeconv.toml"
    return {
        "artifactLocation": {"uri": file, "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": line or 1},
    }


def message(text: str) -> str:
    """A text as SARIF has them, with nothing in it that would be a placeholder or a link."""
    return units.plain(text).translate(_ESCAPES)
