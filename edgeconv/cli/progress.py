"""Progress on stderr: a live line on a terminal, plain lines elsewhere, nothing if quiet."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from edgeconv.cli.printing import echo, unescaped
from edgeconv.processes.escaping import harmless_line
from edgeconv.processes.progress import CountedLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Of less than that nothing can be told.
_LEAST_SECONDS = 1.0
# What stands before the line, and room for the cursor.
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
    """Prints a line, unless it only counts on from the one before."""

    def __init__(self) -> None:
        self._last = ""

    def tell(self, line: str) -> None:
        if not (isinstance(line, CountedLine) and line == self._last):
            echo(line, err=True)
        self._last = line


class Clock:
    """Adds to a counted line how many are done, and how long the rest takes at the same pace."""

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
        # Words may change from one to the next; another count begins anew.
        if line.total != self._total or line.completed < self._done:
            self._total, self._start_s, self._start_done = line.total, self._now(), line.completed
        self._done = line.completed
        took_s, done = self._now() - self._start_s, line.completed - self._start_done
        text = f"{line}: {line.completed:,} of {line.total:,}"
        if took_s < _LEAST_SECONDS or not done or line.completed >= line.total:
            return text
        return f"{text}, about {_duration(took_s / done * (line.total - line.completed))} left"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
