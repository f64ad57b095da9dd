"""Lines of progress that count."""

from __future__ import annotations


class CountedLine(str):
    """A line of progress: what is being done, of which `completed` of `total` steps are over.

    A display may add the numbers and estimate how long the rest takes.
    """

    __slots__ = ("completed", "total")
    completed: int
    total: int

    def __new__(cls, text: str, completed: int, total: int) -> CountedLine:
        """A line."""
        line = super().__new__(cls, text)
        line.completed, line.total = completed, total
        return line
