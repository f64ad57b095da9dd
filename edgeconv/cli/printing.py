"""All that is printed goes through here, and is escaped here.

`escaped_output` replaces stdout and stderr by a stream that lets no control character and no
command of a CI system through, whether a command, click, a warning or a traceback prints it. The
colors and GitHub annotations of edgeconv are exempt, by a pattern where they are printed.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO, TypedDict

from edgeconv.system.processes.escaping import encodable, harmless_line, plain
from edgeconv.system.processes.progress import CountedLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from edgeconv.types import Failure
    from edgeconv.types.errors import EdgeconvError


class Terminal(TypedDict):
    """The width in cells (None: no limit) and whether ANSI colors are understood."""

    width: int | None
    color: bool


COLORS = re.compile(r"\x1b\[[0-9;]*m")
ANNOTATIONS = re.compile(r"^::(?:error|warning|notice) (?:file=[^:\n]*,)?title=[^:\n]*::", re.M)
_MOST_ON_STDERR = 4000
_MOST_LINES = 100
_QUOTED = "  | "
# Enough to recognize the beginning of a command.
_REMEMBERED = 40


def echo(line: str, *, err: bool = False) -> None:
    """Print one line. A newline in it is shown, and does not end it."""
    echo_text(f"{plain(line)}\n", err=err)


def echo_text(text: str, *, err: bool = False, own: re.Pattern[str] | None = None) -> None:
    """Print text, escaped except for what `own` matches.

    `text` must be made by edgeconv: its newlines are printed.
    """
    stream: Any = sys.stderr if err else sys.stdout
    start = 0
    for match in own.finditer(text) if own and isinstance(stream, _Escaped) else ():
        stream.write(text[start : match.start()])
        stream.write_own(match[0])
        start = match.end()
    stream.write(text[start:])
    stream.flush()


def echo_page(text: str) -> None:
    """Print lines that `reporting.pages.to_text` has escaped and colored."""
    echo_text(f"{text}\n", own=COLORS)


def echo_json(noun: Any) -> None:
    """Print a noun as one JSON document."""
    import msgspec

    try:
        encoded = msgspec.json.encode(noun)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(encodable(msgspec.to_builtins(noun)))
    echo_text(f"{msgspec.json.format(encoded, indent=2).decode()}\n")


def terminal() -> Terminal:
    """How wide and colorful text on stdout may be; a file or a pipe has no limits."""
    import shutil

    if not sys.stdout.isatty():
        return {"width": None, "color": False}
    return {"width": shutil.get_terminal_size().columns, "color": True}


def echo_error(error: EdgeconvError) -> None:
    """Print what is wrong, and what to do."""
    _echo_message(error.message, error.hint)


def echo_failures(failures: Iterable[Failure]) -> None:
    """Print why recipes failed, and what to do, once where it is the same."""
    alike: dict[tuple[str, str], list[str]] = {}
    for failure in failures:
        reason = failure.message.removeprefix(f"{failure.recipe}: ")
        prefix = failure.recipe if reason != failure.message else ""
        alike.setdefault((reason, failure.hint), []).append(prefix)
    for (reason, hint), recipes in alike.items():
        prefixes = ", ".join(filter(None, recipes))
        _echo_message(f"{prefixes}: {reason}" if prefixes else reason, hint)


def _echo_message(message: str, hint: str) -> None:
    """Print a message; its lines after the first are quoted.

    The output of a tool, or a name with newlines, cannot pass for a message of edgeconv.
    """
    first, *others = message.split("\n")
    echo(f"error: {first}", err=True)
    for line in others[:_MOST_LINES]:
        echo(line if line.startswith(_QUOTED) else f"{_QUOTED}{line.strip()}", err=True)
    if len(others) > _MOST_LINES:
        echo(f"{_QUOTED}… ({len(others) - _MOST_LINES:,} more lines)", err=True)
    if hint:
        echo(f"  next: {hint}", err=True)


def unescaped(stream: TextIO) -> TextIO:
    """The stream itself, for what moves the cursor. Only escaped text may be written to it."""
    return stream.stream if isinstance(stream, _Escaped) else stream


@contextlib.contextmanager
def escaped_output() -> Iterator[None]:
    """Escape everything that is printed to stdout and stderr in the block."""
    before = sys.stdout, sys.stderr
    out: Any = _Escaped(sys.stdout)
    err: Any = _Escaped(sys.stderr, most=_MOST_ON_STDERR)
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        # Where the reader has gone, click has replaced the stream.
        if sys.stdout is out:
            sys.stdout = before[0]
        if sys.stderr is err:
            sys.stderr = before[1]


class _Escaped:
    """A text stream that writes to another one, escaped; of each line `most` characters."""

    def __init__(self, stream: TextIO, most: int | None = None) -> None:
        self.stream = stream
        self._most = most
        # The part of the current line that can begin a command.
        self._line = ""

    def write(self, text: str | bytes) -> int:
        """Write the text, and return its length."""
        if isinstance(text, bytes):
            # click writes the completions of a shell as bytes.
            text = text.decode("utf-8", "surrogateescape")
        encoding = self.stream.encoding or "utf-8"
        harmless = "\n".join(self._lines(text))
        self.stream.write(harmless.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def write_own(self, text: str) -> None:
        """Write markup or a command of edgeconv."""
        self.stream.write(text)
        self._remember(text)

    def _lines(self, text: str) -> Iterator[str]:
        for number, line in enumerate(text.split("\n")):
            if number:
                self._line = ""
            if self._most is not None and len(line) > self._most:
                line = f"{line[: self._most]}… ({len(line) - self._most:,} more characters)"
            shown = harmless_line(line, self._line)
            self._remember(shown)
            yield shown

    def _remember(self, text: str) -> None:
        line = (self._line + text).lstrip()
        self._line = line if len(line) <= _REMEMBERED else f"x{line[-_REMEMBERED:]}"

    def __getattr__(self, name: str) -> Any:
        # Bytes would go around it.
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.stream, name)


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
