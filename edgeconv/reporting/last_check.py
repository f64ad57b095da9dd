"""The verdict of the last check of each published file, in MODEL.verdict.json next to it.

It has the hash of the bytes that were checked: a file that was written since counts as unchecked.
It prevents mistakes, not intent: whoever can write the file can write its verdict.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import msgspec

from edgeconv.reporting import units
from edgeconv.reporting.limits import sentence
from edgeconv.system.store import json_with_checksum, publish_bytes, read_checked, read_noun
from edgeconv.types import LastCheck
from edgeconv.types.errors import CheckFailed, InputRefused
from edgeconv.types.version import VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.types import Check, Finding, Outcome

_SUFFIX = ".verdict.json"
_TRAINED = ("checkpoint", "trained")
_WORST: tuple[Outcome, ...] = ("failed", "missing", "inconclusive")
_MOST_REASONS = 3
_AGAIN = "fix what is broken, and run `edgeconv check` again"


def verdict_file(model: Path) -> Path:
    """The path of the verdict of a published .tflite."""
    return model.with_suffix(_SUFFIX)


def write_last_check(
    check: Check,
    model: Path,
    sha256: str,
    *,
    clears: bool = True,
    report_sha256: str = "",
    recipe: str = "",
) -> None:
    """Write the verdict of a check on a published file with this hash.

    An equal verdict keeps its date. Without `clears`, a verdict that did not pass is not replaced
    by one that does. `report_sha256` is the hash of the report.json, "" where none was written.
    `recipe` is that of a file which the check could not make anew.
    Raises `OutputRefused` where it cannot be written.
    """
    now = datetime.now(timezone.utc).replace(microsecond=0).isoformat()
    own = _findings_of(check, sha256, recipe)
    findings = tuple(finding for finding in own if finding.outcome != "passed")
    new = LastCheck(
        model=check.name,
        sha256=sha256,
        outcome=_outcome(findings),
        date=now,
        is_locked=check.is_locked,
        findings=findings,
        data=check.data,
        edgeconv=VERSION,
        passed=tuple(finding for finding in own if finding.outcome == "passed"),
        report_sha256=report_sha256,
    )
    text = _text(new)
    if old := _intact(model, sha256):
        is_worse = not clears and new.outcome == "passed" and old.outcome != "passed"
        if is_worse or _text(msgspec.structs.replace(new, date=old.date)) == _text(old):
            return
        # Measured numbers vary from one check to the next; the verdict is the same.
        if _verdict(old) == _verdict(new):
            text = _text(msgspec.structs.replace(new, date=old.date))
    publish_bytes(text, verdict_file(model))


def _verdict(check: LastCheck) -> LastCheck:
    return msgspec.structs.replace(check, date="", passed=(), report_sha256="")


def _intact(model: Path, sha256: str) -> LastCheck | None:
    """The last verdict on these bytes, unless its file was changed since it was written."""
    try:
        check, checksum = read_checked(verdict_file(model), LastCheck, what="verdict of a check")
    except InputRefused:
        return None
    return check if check.sha256 == sha256 and checksum != "changed" else None


def _text(check: LastCheck) -> bytes:
    return json_with_checksum(check, indent=1)


def last_check(model: Path, sha256: str) -> LastCheck | None:
    """The last verdict on the file with this hash; None where these bytes were never checked.

    Raises `InputRefused` where it cannot be read.
    """
    path = verdict_file(model)
    if not path.exists():
        return None
    try:
        check = read_noun(path, LastCheck, what="verdict of a check")
    except InputRefused as error:
        error.hint = "run `edgeconv check` again, which writes it"
        raise
    return check if check.sha256 == sha256 else None


def checked_report(model: Path, sha256: str) -> str:
    """The hash of the report of the last verdict on these bytes, "" where it is not known."""
    check = _intact(model, sha256)
    return check.report_sha256 if check else ""


def require_passed(model: Path, sha256: str, *, is_required: bool) -> str:
    """A note or warning about a file that is to be shipped; "" where its last check passed.

    Raises `CheckFailed` where the last check did not pass, or, where a check `is_required`, where
    there was none; `InputRefused` for a verdict that cannot be read.
    """
    check = last_check(model, sha256)
    if check is None:
        state = f"{model} was never checked, or was written since its last check"
        if is_required:
            raise CheckFailed(state, hint="run `edgeconv check`")
        return f"note: {state}: `edgeconv check` shows whether it keeps the budget"
    if check.outcome == "passed":
        return ""
    broken = [each for each in check.findings if each.outcome == check.outcome and not each.ok]
    more = f"; and {len(broken) - _MOST_REASONS} more" if len(broken) > _MOST_REASONS else ""
    why = "; ".join(map(sentence, broken[:_MOST_REASONS])) + more
    date = units.plain(check.date)
    if check.outcome == "inconclusive":
        return f"warning: the last check of {model} ({date}) had too few samples: {why}"
    failed = "failed" if check.outcome == "failed" else "was not measured by"
    raise CheckFailed(f"{model} {failed} its last check ({date}): {why}", hint=_AGAIN)


def _findings_of(check: Check, sha256: str, recipe: str) -> list[Finding]:
    """The findings about the file with this hash or of a recipe, and about the trained model."""
    models = {recipe} | {
        stage.model for stage in check.stages if stage.sha256 == sha256 or stage.stage in _TRAINED
    }
    return [
        msgspec.structs.replace(finding, line=None)
        for finding in check.verdict.findings
        if finding.model in models
    ]


def _outcome(findings: tuple[Finding, ...]) -> Outcome:
    fatal = {finding.outcome for finding in findings if not finding.ok}
    return next((outcome for outcome in _WORST if outcome in fatal), "passed")
