"""Words that every room uses: lists of names, shortened texts, the default signature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.types.hiding import without_values

if TYPE_CHECKING:
    from collections.abc import Iterable

# The signature that TensorFlow gives a model whose author named none.
SERVING_DEFAULT = "serving_default"


def listed(names: Iterable[object], most: int | None = None) -> str:
    """Names for a message: "a, b, c"; of more than `most`, "a, b and 3 more"."""
    texts = [str(name) for name in names]
    if most is None or len(texts) <= most:
        return ", ".join(texts)
    return f"{', '.join(texts[:most])} and {len(texts) - most:,} more"


def quoted(names: Iterable[object], most: int | None = None) -> str:
    """Names in quotes, as `listed`: "'a', 'b'". What cannot be printed is escaped."""
    return listed(map(repr, names), most)


def shortened(text: str, most: int = 200) -> str:
    """The first `most` characters of a text, with an ellipsis where there were more."""
    return text if len(text) <= most else f"{text[:most]}…"


def first_line(text: object, most: int = 300) -> str:
    """The first line of a text or of an error's message that is not blank, stripped and shortened.

    An error without a message gives the name of its type. Values of arrays are left out.
    """
    lines = (line.strip() for line in without_values(str(text)).splitlines())
    blank = type(text).__name__ if isinstance(text, BaseException) else ""
    return shortened(next(filter(None, lines), blank), most)
