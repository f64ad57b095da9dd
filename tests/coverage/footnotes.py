"""Footnotes of a markdown document: each text once, numbered as they come."""

from __future__ import annotations

_LONGEST = 700


class Footnotes:
    """Gives a text its mark; the same text always has the same one."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def marks(self, *texts: str) -> str:
        """The marks to put behind what the texts are about; "" where there are none."""
        numbers = [
            self._numbers.setdefault(shortened(text), len(self._numbers) + 1) for text in texts
        ]
        return f"<sup>{', '.join(map(str, numbers))}</sup>" if numbers else ""

    def lines(self) -> list[str]:
        """All the texts as a numbered list."""
        return [f"{number}. {text}" for text, number in self._numbers.items()]


def shortened(text: str) -> str:
    """The first line, of at most a few hundred characters, as markdown that means only itself."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(line) > _LONGEST:
        line = line[: _LONGEST - 1].rstrip() + "…"
    return line.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
