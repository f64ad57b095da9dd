"""Reports as files, written and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from edgeconv.system.store import html_with_checksum, json_with_checksum, publish_all, read_noun
from edgeconv.system.store.converted import in_project
from edgeconv.types import Report
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from pathlib import Path

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
    """The report in a report.json. Raises `InputRefused`, also for one of another version."""
    try:
        return read_noun(path, Report, what="report")
    except InputRefused as error:
        try:
            version = read_noun(path, _Version, what="report").format
        except InputRefused:
            raise error from None
        if version is None or version == FORMAT_VERSION:
            raise
    raise InputRefused(
        f"{path} is a report of format {version}, and this edgeconv reads format {FORMAT_VERSION}",
        hint="measure again with `edgeconv bench`"
        if version < FORMAT_VERSION
        else "install the version of edgeconv that wrote it, or a newer one",
    )
