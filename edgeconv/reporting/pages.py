"""What the verbs return, as text for a terminal or a log, and as HTML for a notebook."""

from __future__ import annotations

import os
import sys
import tempfile
import webbrowser
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.reporting.layout import to_html, to_text

if TYPE_CHECKING:
    from edgeconv.reporting.layout import Page

_HERE = "edgeconv.reporting"
# By name of the type: what makes its page is imported only where it is shown.
PAGES = {
    "Check": f"{_HERE}.verdicts.terminal:check_page",
    "Conversion": f"{_HERE}.text:conversion_page",
    "Debugged": f"{_HERE}.debugged:debugged_page",
    "Diagnosis": f"{_HERE}.diagnosis:diagnosis_page",
    "Difference": f"{_HERE}.changes:difference_page",
    "Evidence": f"{_HERE}.verified:evidence_page",
    "Inspection": f"{_HERE}.inspected:inspection_page",
    "Report": f"{_HERE}.text:report_page",
    "Scan": f"{_HERE}.scans:scan_page",
    "Swept": f"{_HERE}.sweeps:sweep_page",
    "TrainingRecord": f"{_HERE}.text:training_page",
    "Tuning": f"{_HERE}.tuning:tuning_page",
    "Verdict": f"{_HERE}.text:verdict_page",
}


def page_of(result: Any, **options: Any) -> Page:
    """The page of a result; `options` are those of its function."""
    module, _, function = PAGES[type(result).__name__].partition(":")
    return tuple(getattr(import_module(module), function)(result, **options))


def text_of(result: Any, *, width: int | None = None, color: bool = False, **options: Any) -> str:
    """The page of a result as text, at most `width` cells wide; see `layout.to_text`."""
    return to_text(page_of(result, **options), width=width, color=color)


def as_text(result: Any) -> str:
    """The result as text, as wide as the terminal."""
    return text_of(result, width=os.get_terminal_size(1).columns if os.isatty(1) else None)


def show(result: Any) -> None:
    """Show the page of a result: below the cell of a notebook, else in the browser."""
    kernel = sys.modules.get("IPython")
    shell = kernel.get_ipython() if kernel else None
    page = _page(result)
    if shell is not None and hasattr(shell, "kernel"):
        frame = f'<iframe srcdoc="{escape(page)}" width="100%" height="600"></iframe>'
        display: Any = import_module("IPython.display")
        display.display(display.HTML(f"<div>{frame}</div>"))
        return
    # It must be there for as long as the browser shows it.
    with tempfile.NamedTemporaryFile("w", suffix=".html", delete=False, encoding="utf-8") as file:
        file.write(page)
    webbrowser.open(Path(file.name).as_uri())


def _page(result: Any) -> str:
    """The whole page of a result: of a report the one that `bench` writes."""
    if type(result).__name__ == "Report":
        from edgeconv.reporting.html import render_html

        return render_html(result)
    return f"<!doctype html><meta charset=utf-8>{as_html(result)}"


def as_html(result: Any) -> str:
    """The result as a fragment of HTML."""
    return to_html(page_of(result))
