"""What child processes print: read while it grows, and cleaned for a terminal."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from edgeconv.processes.escaping import plain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_TAIL_LINES = 12
_TAIL_BYTES = 2**16
_LONGEST_CHARACTERS = 240
_BYTES_PER_LINE = 2**10
# What TensorFlow and Python print in every run.
_CHATTER = re.compile(
    r"[IWE]\d+ [\d:.]+ |WARNING: All log|To enable the following|.*UserWarning: |  warnings\.warn"
    # The members that one still waits for.
    r"|/job:[\w/:]+$"
)
# With these a progress bar overwrites what it wrote before.
_BACK = re.compile("[\r\b]+")


def tail(log: Path) -> str:
    """The last lines of a log, each indented, for an error message."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    return "\n".join(f"  | {line}" for line in [*worth_showing(text.splitlines())][-_TAIL_LINES:])


def worth_showing(lines: Iterable[str]) -> Iterable[str]:
    """The lines that are neither empty nor TensorFlow's chatter, cleaned by `shown`."""
    return (shown(line) for line in lines if line.strip() and not _CHATTER.match(line))


def shown(line: str) -> str:
    """A line cut to a readable length, without control characters."""
    overwritten = [part for part in _BACK.split(line) if part.strip()]
    last = overwritten[-1].rstrip() if overwritten else ""
    return plain(last[:_LONGEST_CHARACTERS].expandtabs())


class NewLines:
    """The lines that a file got since the last call; an unfinished line waits.

    With `most`, at most that many of the last lines at a time, and only the end of an endless line.
    """

    def __init__(self, file: Path, *, most: int | None = None) -> None:
        self._file = file
        self._most = most
        self._read_bytes = 0
        self._begun = b""

    def read(self) -> list[str]:
        """The new lines without line ends; none while the file does not exist."""
        new = self._new_bytes()
        *lines, self._begun = (self._begun + new).split(b"\n")
        if self._most is not None:
            self._begun = self._begun[-_BYTES_PER_LINE:]
            lines = lines[-self._most :]
        # Only whole lines: an unfinished one may end within a character.
        return [line.decode("utf-8", "replace") for line in lines]

    def _new_bytes(self) -> bytes:
        try:
            size_bytes = self._file.stat().st_size
        except FileNotFoundError:
            return b""
        start = self._read_bytes
        if self._most is not None and size_bytes - start > self._most * _BYTES_PER_LINE:
            start = size_bytes - self._most * _BYTES_PER_LINE
            self._begun = b""
        if size_bytes <= start:
            return b""
        with self._file.open("rb") as file:
            file.seek(start)
            new = file.read(size_bytes - start)
        self._read_bytes = start + len(new)
        return new
