"""The errors of edgeconv, each with the exit code of the command line.

An error says what is wrong, where, and what to do next. A failed gate is a `Verdict` and not an
error; to embed what it rejected is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Self


class Cause(NamedTuple):
    """The known causes of a failure, on which the next attempt and the last message depend.

    `operators`: those that the converter refused, custom ones that a runtime lacks, or those that
    compute in float where that is not allowed. `loader`:
    the Keras that loaded the file, where the other Keras may read it too. `graph`: the SavedModel
    that could not be converted. `status`: the exit code of a process, negative for a signal.
    `snr_db`: the signal-to-noise ratio of an output that is too far from its reference. `layers`:
    the paths of those that run in training mode.
    """

    operators: tuple[str, ...] = ()
    loader: str = ""
    graph: str = ""
    status: int = 0
    snr_db: float | None = None
    layers: tuple[str, ...] = ()


class EdgeconvError(Exception):
    """The root. `str(error)` is the whole message; `hint` is the next step.

    `location` is the line of a file that is wrong, as FILE:LINE, if known.
    """

    exit_code = 4

    def __init__(
        self, message: str, *, hint: str = "", location: str = "", cause: Cause = Cause()
    ) -> None:
        super().__init__(message)
        self.location = location
        self.message = message
        self.hint = hint
        self.cause = cause

    def with_message(self, message: str, cause: Cause | None = None) -> Self:
        """The same error with another message, and maybe another cause."""
        return type(self)(
            message, hint=self.hint, location=self.location, cause=cause or self.cause
        )

    @property
    def headline(self) -> str:
        """The first line of the message, without what a tool printed; with the list that it begins.

        Such a line ends with a colon.
        """
        first, *others = self.message.split("\n")
        if not first.endswith(":"):
            return first
        items = takewhile(lambda line: line.startswith(" "), others)
        return f"{first} {'; '.join(map(str.strip, items))}".strip()

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.hint}" if self.hint else self.message


class CheckFailed(EdgeconvError):
    """A published file that its last check rejected, or that was not checked and must be."""

    exit_code = 1


class UsageError(EdgeconvError):
    """A wrong option, name, config key or combination of them."""

    exit_code = 2


class InputRefused(EdgeconvError):
    """A model, data set or file that edgeconv will not or cannot take."""

    exit_code = 3


class ConversionRefused(InputRefused):
    """TensorFlow's converter does not take the model as it is; changed, it may."""


class UnsupportedOperators(InputRefused):
    """The model needs operators that the TFLite runtime does not have."""


class UnsupportedFloats(ConversionRefused):
    """The model computes in floats that the TFLite runtime does not have, as float16."""


class RunsInTraining(InputRefused):
    """Layers act as in training when the model serves: its answers are random, or of the batch."""


class UnknownScale(InputRefused):
    """Samples of integers for an input of floats, of which only the graph may know the scale."""


class SuspectCalibration(InputRefused):
    """Calibration samples that cannot be what the model was trained on."""


class OutputRefused(InputRefused):
    """The output path cannot be written."""


class ToolFailed(EdgeconvError):
    """A tool crashed, failed or gave a result that cannot be published."""

    exit_code = 4


class InternalError(EdgeconvError):
    """A fault of edgeconv. It stays this error, and its traceback is kept."""


class SandboxMissing(EdgeconvError):
    """A sandbox is required, and a child process cannot be confined."""


class WorkerCrashed(ToolFailed):
    """A child process ended by a signal or without an answer."""


class WorkerKilled(WorkerCrashed):
    """A child process was killed by somebody else, or by the system where memory ran out."""


class WorkerTimedOut(ToolFailed):
    """A child process was stopped because its time was up."""


class WorkerOutOfMemory(ToolFailed):
    """A child process was stopped because it went over its memory limit."""


class ClusterLost(ToolFailed):
    """A member of a cluster lost the others, or did not find them."""


class PackageMissing(ToolFailed):
    """A package index has no version of a package that the Python in question can install."""


class RuntimeUnusable(ToolFailed):
    """A runtime that was installed, and does not run a model on this machine."""


class VerificationFailed(ToolFailed):
    """The converted model failed its verification. It is not published."""


class BatchRefused(VerificationFailed):
    """A model whose batch is open, and that takes or gets only one sample at a time right."""


class NotFinite(VerificationFailed):
    """An output has values that are not finite, where the model's own are."""


WORKER_ERRORS: dict[str, type[EdgeconvError]] = {
    name: kind
    for name, kind in tuple(globals().items())
    if isinstance(kind, type) and issubclass(kind, EdgeconvError)
}


def exit_code_of(errors: Iterable[str]) -> int:
    """The exit code if some parts failed: the worst, by the types of the errors."""
    return max((WORKER_ERRORS.get(each, ToolFailed).exit_code for each in errors), default=0)


def closest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `name` most likely means; None where none is similar."""
    from difflib import get_close_matches

    names = sorted(known)
    # "int4" is short for weight-only-int4, and not a misspelled int8x4.
    longer = (each for each in names if name and each.endswith(f"-{name}"))
    return next(longer, None) or next(iter(get_close_matches(name, names, n=1)), None)


# More names than a reader looks through, where one of them is suggested.
_MOST_NAMES = 24


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not in `known`, with the closest as a suggestion."""
    names = sorted(known)
    near = closest(name, names)
    hint = f"did you mean {near!r}? " if near else ""
    if not near or len(names) <= _MOST_NAMES:
        hint += f"known: {', '.join(names)}"
    return UsageError(f"unknown {kind} {name!r}", hint=hint.rstrip())
