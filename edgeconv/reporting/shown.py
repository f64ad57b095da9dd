"""What the verbs return as Python shows it: as text, and as HTML in a notebook or a browser."""

import html
import os
import sys
import tempfile
import warnings
import webbrowser
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from edgeconv.reporting.pages import Block, Labeled, Page, page_of, to_text
from edgeconv.reporting.styled import Text
from edgeconv.reporting.tables import Row


def as_text(result: Any) -> str:
    """The result as text, as wide as the terminal."""
    width = os.get_terminal_size(1).columns if os.isatty(1) else None
    return to_text(_in_python(page_of(result)), width=width, color=False)


def show(result: Any) -> None:
    """Show the page of a result: below the cell of a notebook, else in the browser."""
    kernel = sys.modules.get("IPython")
    shell = kernel.get_ipython() if kernel else None
    page = _page(result)
    if shell is not None and hasattr(shell, "kernel"):
        frame = f'<iframe srcdoc="{html.escape(page)}" width="100%" height="600"></iframe>'
        display: Any = import_module("IPython.display")
        display.display(display.HTML(f"<div>{frame}</div>"))
        return
    # It must be there for as long as the browser shows it.
    with tempfile.NamedTemporaryFile("w", suffix=".html", delete=False, encoding="utf-8") as file:
        file.write(page)
    if not webbrowser.open(Path(file.name).as_uri()):
        warnings.warn(f"no browser opened: the page is {file.name}", stacklevel=3)


def _page(result: Any) -> str:
    """The whole page of a result: of a report the one that `bench` writes."""
    if type(result).__name__ == "Report":
        from edgeconv.reporting.html import render_html

        return render_html(result)
    return f"<!doctype html><meta charset=utf-8>{as_html(result)}"


def as_html(result: Any) -> str:
    """The result as a fragment of HTML."""
    return to_html(_in_python(page_of(result)))


def _in_python(page: Page) -> Page:
    """A page that names arguments, where that of a command names options."""
    named: Any = import_module("edgeconv.requests.in_memory").as_arguments

    def line(text: str | Text) -> Text:
        style = text.style if isinstance(text, Text) else ""
        return Text(named(str(text)), style) if "--" in str(text) else Text().join([text])

    def block(each: Block) -> Block:
        if isinstance(each, Labeled):
            return Labeled([(label, named(text)) for label, text in each.pairs])
        if isinstance(each, str | Text):
            return line(each)
        rows = (replace(row, details=tuple(map(line, row.details))) for row in each.rows)
        return replace(each, rows=tuple(rows))

    return [block(each) for each in page]


def to_html(page: Page) -> str:
    """The page as a fragment of HTML, in which all text is escaped."""
    return f"<div>{''.join(map(_html, page))}</div>"


def _html(block: Block) -> str:
    if isinstance(block, str | Text):
        return f"<div>{html.escape(str(block)) or '&nbsp;'}</div>"
    if isinstance(block, Labeled):
        pairs = (
            f"<tr><th>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in block.pairs
        )
        return f"<table>{''.join(pairs)}</table>"
    heads = "".join(f"<th>{html.escape(column.heading)}</th>" for column in block.columns)
    rows = "".join(_html_row(row) for row in block.rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _html_row(row: Row) -> str:
    cells = "".join(f"<td>{html.escape(cell.text + cell.aside)}</td>" for cell in row.cells)
    details = "<br>".join(html.escape(str(detail)) for detail in row.details)
    wide = f'<tr><td colspan="{len(row.cells)}">{details}</td></tr>' if details else ""
    return f"<tr>{cells}</tr>{wide}"
