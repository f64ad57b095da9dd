"""Messages to and from a supervised child over its pipes: a line of JSON for a line of JSON.

Such a child prints a greeting first, answers each line with one, and ends when its stdin closes.
Nothing else may be printed to its stdout.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
from typing import TYPE_CHECKING

from edgeconv.types.errors import ToolFailed, WorkerCrashed

if TYPE_CHECKING:
    from typing import Self

    from edgeconv.system.processes.workers import Child

# How often a silent process is checked.
_LOOK_MS = 50
_PIECE_BYTES = 1 << 16
# An answer has texts and numbers; arrays follow it.
_LONGEST_LINE_BYTES = 1 << 28
# The most that Linux allows without privileges; the default is a sixteenth.
_PIPE_BYTES = 1 << 20
# A process that has closed its output ends soon.
_LOOKS_UNTIL_GONE = 100


class Talk:
    """A running child that answers one message after another. The context manager ends it.

    Its time counts within `waited_for`, from zero each time; its memory counts always.
    """

    def __init__(self, child: Child, *, greeting: bytes) -> None:
        """`child` was started with `talks`; `greeting` is its first line."""
        self.label = child.label
        self._greeting = greeting
        self._child = child
        self._child.rest()
        self.waited_for = self._child.waited_for
        self._to, self._from = self._child.pipes
        self._read = bytearray()
        self._is_greeted = False
        for pipe in (self._to, self._from):
            os.set_blocking(pipe.fileno(), False)
            _widen(pipe.fileno())
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._from, select.POLLIN)
        self._writable.register(self._to, select.POLLOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rename(self, label: str) -> None:
        """Change what errors call it."""
        self.label = self._child.label = label

    def close(self) -> None:
        """End the process."""
        self._child.kill()
        self._from.close()

    def write(self, data: memoryview | bytes) -> None:
        """Send bytes. Raises `ToolFailed` if the process has ended."""
        rest = memoryview(data)
        while rest:
            if not self._writable.poll(_LOOK_MS):
                self._child.check()
                continue
            try:
                rest = rest[os.write(self._to.fileno(), rest[: _PIECE_BYTES * 16]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                self._raise_gone()

    def line(self) -> bytes:
        """The next line with its line end. Raises as `write` does."""
        while not self._is_greeted:
            # A login shell may print something before the process does.
            self._is_greeted = self._line() == self._greeting
        return self._line()

    def fill(self, into: memoryview) -> None:
        """Fill `into` with the next bytes. Raises as `write` does."""
        taken = min(len(into), len(self._read))
        into[:taken] = self._read[:taken]
        del self._read[:taken]
        while taken < len(into):
            self._await()
            count = os.readv(self._from.fileno(), [into[taken:]])
            if not count:
                self._raise_gone()
            taken += count

    def _line(self) -> bytes:
        looked = 0
        while (end := self._read.find(b"\n", looked)) < 0:
            looked = len(self._read)
            self._await()
            piece = os.read(self._from.fileno(), _PIECE_BYTES)
            if not piece:
                self._raise_gone()
            self._read += piece
            if len(self._read) > _LONGEST_LINE_BYTES:
                raise ToolFailed(f"{self.label} answered more than {_LONGEST_LINE_BYTES:,} bytes")
        line = bytes(self._read[: end + 1])
        del self._read[: end + 1]
        return line

    def _await(self) -> None:
        """Block until there is something to read."""
        while not self._readable.poll(_LOOK_MS):
            self._child.check()

    def _raise_gone(self) -> None:
        for _ in range(_LOOKS_UNTIL_GONE):
            if self._child.has_ended():
                break
            select.select([], [], [], _LOOK_MS / 1e3)
        self._child.kill()
        self._child.raise_unless_well()
        raise WorkerCrashed(f"{self.label} ended without an answer\n{self._child.tail()}")


def _widen(pipe: int) -> None:
    """Let a pipe hold more, so that its ends wait for each other less often."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
