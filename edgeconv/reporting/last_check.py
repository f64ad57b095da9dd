"""The verdict of the last check beside each published file, for whoever ships the file.

MODEL.verdict.json carries the hash of the bytes that were judged: a file that was made anew since
was never checked. It keeps mistakes from being shipped, and nobody who means to: whoever can write
the file can write its verdict.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import msgspec

import edgeconv
from edgeconv.errors import CheckFailed, InputRefused
from edgeconv.reporting import units
from edgeconv.reporting.limits import sentence
from edgeconv.store import json_with_checksum, publish_bytes, read_checked, read_noun
from edgeconv.types import LastCheck

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.types import Check, Finding, Outcome

_SUFFIX = ".verdict.json"
_TRAINED = ("checkpoint", "trained")
_WORST: tuple[Outcome, ...] = ("failed", "missing", "inconclusive")
_MOST_SAID = 3
_AGAIN = "fix what broke, and run `edgeconv check` again"


def verdict_file(model: Path) -> Path:
    """Where the verdict of a published .tflite is."""
    return model.with_suffix(_SUFFIX)


def write_last_check(
    check: Check, model: Path, sha256: str, *, clears: bool = True, report_sha256: str = ""
) -> None:
    """Note what a check said of a published file with this hash, beside the file.

    A verdict that is there already stays, with its date; one that did not pass stays too where the
    new one is not to clear it (`clears`). `report_sha256` is the hash of the report.json that was
    judged, "" where none was written. Raises `OutputRefused` where it cannot be written.
    """
    now = datetime.now(timezone.utc).replace(microsecond=0).isoformat()
    held = _held(check, sha256)
    findings = tuple(finding for finding in held if finding.outcome != "passed")
    new = LastCheck(
        model=check.name,
        sha256=sha256,
        outcome=_outcome(findings),
        date=now,
        is_locked=check.is_locked,
        findings=findings,
        data=check.data,
        edgeconv=edgeconv.__version__,
        passed=tuple(finding for finding in held if finding.outcome == "passed"),
        report_sha256=report_sha256,
    )
    text = _text(new)
    if old := _intact(model, sha256):
        is_worse = not clears and new.outcome == "passed" and old.outcome != "passed"
        if is_worse or _text(msgspec.structs.replace(new, date=old.date)) == _text(old):
            return
        # What was measured may differ from one time to the next; the verdict is the same.
        if _verdict(old) == _verdict(new):
            text = _text(msgspec.structs.replace(new, date=old.date))
    publish_bytes(text, verdict_file(model))


def _verdict(check: LastCheck) -> LastCheck:
    return msgspec.structs.replace(check, date="", passed=(), report_sha256="")


def _intact(model: Path, sha256: str) -> LastCheck | None:
    """The last verdict on these bytes, unless the file was damaged since it was written."""
    try:
        found, checksum = read_checked(verdict_file(model), LastCheck, what="verdict of a check")
    except InputRefused:
        return None
    return found if found.sha256 == sha256 and checksum != "changed" else None


def _text(check: LastCheck) -> bytes:
    return json_with_checksum(check, indent=1)


def last_check(model: Path, sha256: str) -> LastCheck | None:
    """The last verdict on the file with this hash; None where these bytes were never checked.

    Raises `InputRefused` where it cannot be read.
    """
    place = verdict_file(model)
    if not place.exists():
        return None
    try:
        found = read_noun(place, LastCheck, what="verdict of a check")
    except InputRefused as error:
        error.hint = "run `edgeconv check` again, which writes it"
        raise
    return found if found.sha256 == sha256 else None


def judged_report(model: Path, sha256: str) -> str:
    """The hash of the report that the last verdict on these bytes is of, "" where none is known."""
    found = _intact(model, sha256)
    return found.report_sha256 if found else ""


def require_passed(model: Path, sha256: str, *, is_required: bool) -> str:
    """What is to be said of a file that is about to be shipped; "" where its last check passed.

    It begins with "note: " or "warning: ". Raises `CheckFailed` where the last check did not pass,
    and, where one `is_required`, where there was none; `InputRefused` for a verdict that cannot be
    read.
    """
    found = last_check(model, sha256)
    if found is None:
        said = f"{model} was never checked, or was made anew since"
        if is_required:
            raise CheckFailed(said, hint="run `edgeconv check`, which judges it")
        return f"note: {said}: edgeconv check says whether it keeps the budget"
    if found.outcome == "passed":
        return ""
    broken = [one for one in found.findings if one.outcome == found.outcome and not one.ok]
    more = f"; and {len(broken) - _MOST_SAID} more" if len(broken) > _MOST_SAID else ""
    why = "; ".join(map(sentence, broken[:_MOST_SAID])) + more
    when = units.plain(found.date)
    if found.outcome == "inconclusive":
        return f"warning: the last check of {model} ({when}) had too few samples to tell: {why}"
    failed = "failed" if found.outcome == "failed" else "was not measured by"
    raise CheckFailed(f"{model} {failed} its last check ({when}): {why}", hint=_AGAIN)


def _held(check: Check, sha256: str) -> list[Finding]:
    """What was held against these bytes, and the trained model that they were made from."""
    judged = {
        stage.model for stage in check.stages if stage.sha256 == sha256 or stage.stage in _TRAINED
    }
    return [
        msgspec.structs.replace(one, line=None)
        for one in check.verdict.findings
        if one.model in judged
    ]


def _outcome(findings: tuple[Finding, ...]) -> Outcome:
    fatal = {one.outcome for one in findings if not one.ok}
    return next((outcome for outcome in _WORST if outcome in fatal), "passed")
