"""Reports as files, written and read."""

from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from edgeconv.reporting import units
from edgeconv.reporting.limits import sentence
from edgeconv.system.processes.escaping import shell_line
from edgeconv.system.store import (
    html_with_checksum,
    json_with_checksum,
    publish_all,
    publish_bytes,
    read_checked,
    read_noun,
)
from edgeconv.system.store.notes import in_project
from edgeconv.types import Check, Finding, LastCheck, Outcome, Report
from edgeconv.types.errors import CheckFailed, InputRefused
from edgeconv.types.version import VERSION

Format = Literal["html", "text", "markdown", "json", "csv"]
FORMATS: tuple[Format, ...] = get_args(Format)
NAMES: dict[Format, str] = {
    "html": "report.html",
    "text": "report.txt",
    "markdown": "report.md",
    "json": "report.json",
    "csv": "report.csv",
}
FORMAT_VERSION = 2


class _Version(msgspec.Struct):
    format: int | None = None


def write_report(report: Report, directory: Path) -> tuple[Path, Path]:
    """Write report.json and report.html into `directory`; returns both paths.

    Raises `OutputRefused` if they cannot be written.
    """
    as_json, as_html = write_formats((report,), directory, ("json", "html"))
    return as_json, as_html


def write_formats(
    reports: tuple[Report, ...], directory: Path, formats: tuple[Format, ...]
) -> tuple[Path, ...]:
    """Write one file for each format into `directory`, all of them or none; returns the paths.

    Raises `OutputRefused`.
    """
    reports = tuple(in_project(each, directory) for each in reports)
    contents = {directory / NAMES[name]: _document(reports, name) for name in formats}
    publish_all(contents)
    return tuple(contents)


def _document(reports: tuple[Report, ...], name: Format) -> bytes:
    """The content of a file; evidence ends with its checksum."""
    if name == "html":
        return html_with_checksum(render(reports, name))
    if name == "json" and len(reports) == 1:
        return json_with_checksum(reports[0], indent=1)
    return render(reports, name).encode()


def render(
    reports: tuple[Report, ...], name: Format, *, width: int | None = None, color: bool = False
) -> str:
    """The reports in a format, one after another, ending with a newline.

    `width` and `color` are for text. The JSON of several reports is a list.
    """
    if name == "html":
        from edgeconv.reporting.html import render_html

        return render_html(*reports)
    if name == "markdown":
        from edgeconv.reporting.markdown import render_markdown

        return render_markdown(*reports)
    if name == "csv":
        from edgeconv.reporting.spreadsheet import render_csv

        return render_csv(*reports)
    if name == "json":
        shown = reports[0] if len(reports) == 1 else reports
        return msgspec.json.format(msgspec.json.encode(shown), indent=1).decode() + "\n"
    from edgeconv.reporting.pages import text_of

    parts = []
    for report in reports:
        parts.append(text_of(report, width=width, color=color))
        if report.verdict:
            parts.append(text_of(report.verdict, width=width, color=color, below_table=True))
    return "\n\n".join(parts) + "\n"


def read_report(path: Path) -> Report:
    """The report in a report.json, or in the directory with one.

    Raises `InputRefused`, also for one of another version, and for models that have none yet.
    """
    folder, path = path, path / NAMES["json"] if path.is_dir() else path
    if folder != path and not path.exists() and any(folder.glob("*.tflite")):
        raise InputRefused(
            f"{folder} has models, and no report of them",
            hint=f"measure them first: `edgeconv bench {shell_line([str(folder)])} --data SOURCE "
            "-o REPORT`; in Python edgeconv.bench(conversion, data=...) gives the report",
        )
    try:
        return read_noun(path, Report, what="report")
    except InputRefused as error:
        try:
            version = read_noun(path, _Version, what="report").format
        except InputRefused:
            error.hint = error.hint or "give a report.json that `edgeconv bench -o DIR` wrote"
            raise error from None
        if version is None or version == FORMAT_VERSION:
            raise
    raise InputRefused(
        f"{path} is a report of format {version}, and this edgeconv reads format {FORMAT_VERSION}",
        hint="measure again with `edgeconv bench`"
        if version < FORMAT_VERSION
        else "install the version of edgeconv that wrote it, or a newer one",
    )


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
    `recipe` is set if the check could not make the file anew.
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
        if is_worse or _text(replace(new, date=old.date)) == _text(old):
            return
        # Measured numbers vary from one check to the next; the verdict is the same.
        if _verdict(old) == _verdict(new):
            text = _text(replace(new, date=old.date))
    publish_bytes(text, verdict_file(model))


def _verdict(check: LastCheck) -> LastCheck:
    return replace(check, date="", passed=(), report_sha256="")


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
        replace(finding, line=None) for finding in check.verdict.findings if finding.model in models
    ]


def _outcome(findings: tuple[Finding, ...]) -> Outcome:
    fatal = {finding.outcome for finding in findings if not finding.ok}
    return next((outcome for outcome in _WORST if outcome in fatal), "passed")
