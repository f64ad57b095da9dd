"""A report as files: report.json, and report.html to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.nouns import Report
from edgeconv.store import publish_bytes, read_noun

if TYPE_CHECKING:
    from pathlib import Path


def write_report(report: Report, directory: Path) -> tuple[Path, Path]:
    """Write report.json and report.html into `directory`; returns both paths.

    Raises `OutputRefused` where they cannot be written.
    """
    from edgeconv.report.html import render_html

    as_json, as_html = directory / "report.json", directory / "report.html"
    publish_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n", as_json)
    publish_bytes(render_html(report).encode(), as_html)
    return as_json, as_html


def read_report(path: Path) -> Report:
    """The report in a report.json. Raises `InputRefused`."""
    return read_noun(path, Report, what="report")
