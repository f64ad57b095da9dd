"""Markdown for GitHub and GitLab, with foreign text escaped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgeconv.reporting import units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from edgeconv.reporting.tables import Table

# What starts markup in GitHub's Markdown, and what GitHub turns into links: addresses, mentions of
# people and numbers of issues.
_MARKUP = re.compile(r"([\\`*_{}\[\]()+!|~$]|:(?=//))")
_LINKED = re.compile(r"([@#]|www(?=\.))")


def escape(text: str) -> str:
    """Foreign text without markup, also for cells of tables."""
    harmless = units.plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LINKED.sub(r"\1<!-- -->", _MARKUP.sub(r"\\\1", harmless))


def table_lines(table: Table, shown: Callable[[str], str] = escape) -> Iterator[str]:
    """The table, whose texts are written by `shown`."""
    yield _row(shown(column.heading) for column in table.columns)
    yield _row("---" if column.is_text else "--:" for column in table.columns)
    yield from (_row(shown(cell.text) for cell in row.cells) for row in table.rows)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def fold(heading: str, lines: Sequence[str]) -> Iterator[str]:
    """The lines in a section that a click on its heading opens; nothing without lines."""
    if lines:
        yield ""
        yield f"<details><summary>{heading}</summary>"
        yield ""
        yield from lines
        yield ""
        yield "</details>"
