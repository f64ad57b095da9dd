"""SARIF 2.1.0 (OASIS, 2020): what does not hold, as the results of an analysis.

GitHub shows at most 5,000 results of a run, and takes 10 MB of compressed JSON.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import edgeconv
from edgeconv.reporting import units
from edgeconv.reporting.limits import meaning, sentence
from edgeconv.reporting.verdicts.machine import as_json, fingerprint
from edgeconv.reporting.verdicts.words import broken_findings, closing, file_of, level_of

if TYPE_CHECKING:
    from edgeconv.types import Check, Checked, Finding

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
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
    driver = {"name": "edgeconv", "version": edgeconv.__version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": run_id},
        "invocations": [{"executionSuccessful": True, "exitCode": exit_code}],
        "results": results,
        **further,
    }
    return as_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(limit: str) -> dict[str, Any]:
    description, advice = (message(text) for text in meaning(limit))
    return {
        "id": limit,
        "shortDescription": {"text": description},
        "fullDescription": {"text": description},
        "help": {"text": advice},
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
