"""Markdown for GitHub and GitLab, with foreign text escaped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgeconv.reporting import units

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What starts markup in GitHub's Markdown, and what GitHub turns into links: addresses, mentions of
# people and numbers of issues.
_MARKUP = re.compile(r"([\\`*_{}\[\]()+!|~$]|:(?=//))")
_LINKED = re.compile(r"([@#]|www(?=\.))")


def escape(text: str) -> str:
    """Foreign text without markup, also for cells of tables."""
    harmless = units.plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LINKED.sub(r"\1<!-- -->", _MARKUP.sub(r"\\\1", harmless))


def row(cells: Sequence[str]) -> str:
    """A row of a table, from escaped cells."""
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
