"""Code of the user: any exception of it becomes one refusal with its file and line."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from edgeconv.errors import EdgeconvError, InputRefused

if TYPE_CHECKING:
    from types import TracebackType

_LONGEST_CHARACTERS = 500


class Blamed:
    """Turns any exception in the block into an `InputRefused` that says what and where.

    The user's code may raise anything, its own exit too. `directory` has the user's files;
    edgeconv's own errors pass through.
    """

    def __init__(self, what: str, directory: str, *, code: str = "the function") -> None:
        self._what = what
        self._directory = directory
        self._code = code

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, EdgeconvError):
            return
        # The whole of it goes to the log.
        traceback.print_exception(kind, error, trace)
        if isinstance(error, SystemExit):
            raise InputRefused(
                f"{self._what} called exit({error.code!r}){self._where(error, trace)}",
                hint=f"let {self._code} return instead",
            ) from error
        last = _in_a_line(traceback.format_exception_only(kind, error)[-1])
        raise InputRefused(
            f"{self._what} failed: {last}{self._where(error, trace)}",
            hint=f"correct {self._code}, or run it alone to see more",
        ) from error

    def _where(self, error: BaseException, trace: TracebackType | None) -> str:
        """Where: the last line that is the user's own, else the last."""
        if isinstance(error, SyntaxError):
            return f" ({error.filename}:{error.lineno})"
        frames = traceback.extract_tb(trace)
        # The first is the line here that called it.
        own = [frame for frame in frames[1:] if frame.filename.startswith(self._directory)]
        shown = (own or frames[1:])[-1:]
        return "".join(f" ({frame.filename}:{frame.lineno})" for frame in shown)


def _in_a_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_CHARACTERS]
