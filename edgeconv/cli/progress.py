"""Progress on stderr: a live line on a terminal, plain lines elsewhere, nothing if quiet."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from edgeconv.cli.printing import echo, unescaped
from edgeconv.system.processes.escaping import harmless_line
from edgeconv.system.processes.progress import CountedLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A shorter time does not allow an estimate.
_LEAST_SECONDS = 1.0
# The spinner before the line, and room for the cursor.
_SPINNER = 3


@contextlib.contextmanager
def progress(*, quiet: bool, keep: bool = False) -> Iterator[Callable[[str], None]]:
    """A function to tell what is being done.

    On a terminal the last line is replaced, unless all are to `keep`. It shows how many there
    are and the time that is left, where a line is a `CountedLine`; elsewhere only what is new in
    words.
    """
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty() and not keep:
        from rich.console import Console
        from rich.text import Text

        clock = Clock()
        console = Console(file=unescaped(sys.stderr))

        def tell(line: str) -> None:
            text = Text(harmless_line(clock.shown(line)))
            # In one line, so that none begins within it.
            text.truncate(console.width - _SPINNER, overflow="ellipsis")
            status.update(text)

        with console.status("starting") as status:
            yield tell
    else:
        yield _Once().tell


class _Once:
    """Prints a line, unless it only counts on."""

    def __init__(self) -> None:
        self._last = ""

    def tell(self, line: str) -> None:
        if not (isinstance(line, CountedLine) and line == self._last):
            echo(line, err=True)
        self._last = line


class Clock:
    """Adds the count to a counted line, and the time left at the same pace."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._start_s = 0.0
        self._start_done = 0
        self._done = 0
        self._total = 0

    def shown(self, line: str) -> str:
        """The line as it is to be shown at this moment."""
        if not isinstance(line, CountedLine):
            return line
        # Another total, or a smaller count, begins a new count.
        if line.total != self._total or line.completed < self._done:
            self._total, self._start_s, self._start_done = line.total, self._now(), line.completed
        self._done = line.completed
        took_s, count = self._now() - self._start_s, line.completed - self._start_done
        text = f"{line}: {line.completed:,} of {line.total:,}"
        if took_s < _LEAST_SECONDS or not count or line.completed >= line.total:
            return text
        return f"{text}, about {_duration(took_s / count * (line.total - line.completed))} left"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
