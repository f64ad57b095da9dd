"""Markdown as GitHub and GitLab show it, with foreign text that shows as it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgeconv.reporting import units

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# All that starts markup in GitHub's Markdown, and what it makes links of by itself: addresses,
# mentions of people and numbers of issues, which it finds in the text that is shown.
_MARKUP = re.compile(r"([\\`*_{}\[\]()+!|~$]|:(?=//))")
_LINKED = re.compile(r"([@#]|www(?=\.))")


def escaped(text: str) -> str:
    """Foreign text that shows as it is, in a table too."""
    harmless = units.plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LINKED.sub(r"\1<!-- -->", _MARKUP.sub(r"\\\1", harmless))


def row(cells: Sequence[str]) -> str:
    """One row of a table, of cells that are escaped."""
    return f"| {' | '.join(cells)} |"


def folded(heading: str, lines: Sequence[str]) -> Iterator[str]:
    """The lines, to be opened by a click on the heading; nothing where there are none."""
    if lines:
        yield ""
        yield f"<details><summary>{heading}</summary>"
        yield ""
        yield from lines
        yield ""
        yield "</details>"
