"""Text whose parts have a style, as lines of a terminal are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from operator import itemgetter

# The codes of ANSI.
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
# Latin letters, punctuation, arrows, signs of mathematics and lines.
_NARROW = re.compile(
    "[ -~\xa1-\xac\xae-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u22ff\u2500-\u25fc]*"
)


class Text:
    """A line, in parts. A style is words, such as "bold red", or "" for none.

    What is added to a text has its `style` too.
    """

    __slots__ = ("parts", "style")

    def __init__(self, text: str = "", style: str = "") -> None:
        self.style = style
        self.parts: tuple[tuple[str, str], ...] = ((text, style),) if text else ()

    def join(self, texts: Iterable[str | Text]) -> Text:
        """The texts with this one between them."""
        joined = Text()
        for number, text in enumerate(texts):
            own = text.parts if isinstance(text, Text) else Text(text).parts
            joined.parts += (*(self.parts if number else ()), *own)
        return joined

    @property
    def plain(self) -> str:
        """The text alone."""
        return "".join(text for text, _ in self.parts)

    @property
    def ansi(self) -> str:
        """The text with the codes of its styles."""
        shown = ""
        for style, parts in groupby(self.parts, itemgetter(1)):
            codes = ";".join(sorted({_CODES[word] for word in style.split()}))
            text = "".join(text for text, _ in parts)
            shown += f"\x1b[{codes}m{text}\x1b[0m" if codes else text
        return shown

    def divide(self, offsets: Sequence[int]) -> list[Text]:
        """The text in pieces, of which all but the first begin at the offsets."""
        return [self[start:stop] for start, stop in pairwise((0, *offsets, len(self)))]

    def __getitem__(self, which: slice) -> Text:
        start, stop, _ = which.indices(len(self))
        piece, at = Text(style=self.style), 0
        for text, style in self.parts:
            piece.parts += Text(text[max(start - at, 0) : max(stop - at, 0)], style).parts
            at += len(text)
        return piece

    def __add__(self, other: str | Text) -> Text:
        added = other.parts if isinstance(other, Text) else Text(other).parts
        styled = ((text, f"{self.style} {style}".strip()) for text, style in added)
        whole = Text(style=self.style)
        whole.parts = (*self.parts, *styled)
        return whole

    def __len__(self) -> int:
        return len(self.plain)

    def __str__(self) -> str:
        return self.plain


def cell_len(text: str) -> int:
    """How many cells of a terminal a text takes."""
    if _NARROW.fullmatch(text):
        return len(text)
    from rich.cells import cell_len as any_cell_len

    return any_cell_len(text)
