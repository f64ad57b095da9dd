"""Lines of progress that know how far the work has come."""

from __future__ import annotations


class Counted(str):
    """What is being done, as any line of progress, of which `done` of `total` are done.

    Whoever shows it may add the numbers, and from when they came how long the rest will take.
    """

    __slots__ = ("done", "total")
    done: int
    total: int

    def __new__(cls, text: str, done: int, total: int) -> Counted:
        """A line."""
        line = super().__new__(cls, text)
        line.done, line.total = done, total
        return line
