"""The kind `function`: what a function of the user's returns, `package.module:function`.

It is imported, with the current directory first on the path, and called without arguments
in a child process, in that directory. It returns a dictionary of arrays by name, or one
array, or a tuple of either and the labels. The hash that tells whether anything changed is
of what it returns, so it runs for that as well: once in each `convert`, even one with
nothing to do.
"""

from __future__ import annotations

import contextlib
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.data.arrays import LARGEST_BYTES, Arrays
from edgeconv.data.blame import Blamed
from edgeconv.data.code import users_code, users_function
from edgeconv.data.handover import Handover, hand_over, take_over
from edgeconv.errors import InputRefused, ToolFailed, UsageError, unknown_name
from edgeconv.sandbox import Access
from edgeconv.store import scratch_directory
from edgeconv.store.hashes import hash_of, sha256_file
from edgeconv.tasks import start_task
from edgeconv.workers import Allowance

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

OPTIONS: frozenset[str] = frozenset()
RUNS_CODE = True

ALLOWANCE = Allowance()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A function to call: where it is, and the directories to call it in and to write to."""

    module: str
    function: str
    directory: str
    output: str


class _Result:
    """What a function returned, in files that go when this does."""

    def __init__(self, place: str) -> None:
        module, colon, function = place.partition(":")
        if not (module and colon and function):
            raise UsageError(f"{place} names no function", hint="package.module:function")
        until = contextlib.ExitStack()
        self._scratch = until.enter_context(scratch_directory())
        # At the latest when the process ends.
        weakref.finalize(self, until.close)
        self.directory = self._scratch / "returned"
        self.directory.mkdir()
        self.returned = self._run(place, module, function)

    def _run(self, place: str, module: str, function: str) -> Handover:
        job = Job(
            module=module,
            function=function,
            directory=str(Path.cwd()),
            output=str(self.directory),
        )
        try:
            with start_task(
                call,
                job,
                label=place,
                scratch=self._scratch,
                access=Access(profile="code", writes=(self.directory, Path(job.directory))),
                allowance=ALLOWANCE,
            ) as task:
                return task.result()
        except ToolFailed as error:
            raise InputRefused(
                error.message, hint="the function must return; run it by itself to see why"
            ) from error

    def identity(self) -> str:
        files = sorted(self.directory.iterdir())
        return hash_of(self.returned, [(path.name, sha256_file(path)) for path in files])


# What `identity` had to run for, until `read` takes it; by place and directory.
_kept: dict[tuple[str, str], _Result] = {}


def identity(place: str, options: Mapping[str, str]) -> str:  # noqa: ARG001
    """The hash of what the function returns. Runs it; raises as `read` does."""
    result = _Result(place)
    _kept.clear()
    _kept[place, str(Path.cwd())] = result
    return result.identity()


def read(place: str, options: Mapping[str, str], wanted: frozenset[str] | None) -> Arrays:  # noqa: ARG001
    """The arrays that the function returns and that are `wanted` (None: all), and the labels.

    It runs, unless `identity` was asked just before. Raises `UsageError` for a function
    or an array that does not exist, `InputRefused` for one that fails or returns no arrays.
    """
    result = _kept.pop((place, str(Path.cwd())), None) or _Result(place)
    names = result.returned.names
    if names == ("",) and wanted is not None:
        raise UsageError(
            f"{place} returns a single array without a name, so none can be chosen by name",
            hint="leave the renaming out, or return a dictionary",
        )
    for name in wanted or ():
        if name not in names:
            raise unknown_name(f"array of {place}", name, names)
    chosen = names if wanted is None else sorted(wanted)
    return take_over(result.returned, result.directory, chosen)


def call(job: Job) -> Handover:
    """In a child: import and call the function, and write what it returns.

    Raises `UsageError` for one that does not exist, `InputRefused` for all else.
    """
    with users_code(job.directory):
        place = f"{job.module}:{job.function}"
        function = users_function(job.module, job.function, job.directory)
        with Blamed(place, job.directory):
            result = function()
        with Blamed(f"{place}, what it returned,", job.directory):
            arrays = _arrays(place, result)
    return hand_over(arrays, Path(job.output))


def _arrays(place: str, result: Any) -> Arrays:
    """The arrays by name ("" for a single one) and the labels, as numpy arrays."""
    labels = None
    if isinstance(result, tuple):
        if len(result) != 2:
            raise InputRefused(
                f"{place} returned a tuple of {len(result)}",
                hint="return arrays by name in a dictionary, or (those, labels)",
            )
        result, labels = result
    named = dict(result) if hasattr(result, "keys") else {"": result}
    if not named or not all(isinstance(name, str) for name in named):
        raise InputRefused(
            f"{place} returned a dictionary with the keys {list(named)[:5]}",
            hint="the keys are the names of arrays",
        )
    arrays = {name: _array(place, name, value) for name, value in named.items()}
    total = sum(array.nbytes for array in arrays.values())
    if total > LARGEST_BYTES:
        raise InputRefused(f"{place} returned {total:,} bytes; the most is {LARGEST_BYTES:,}")
    return Arrays(arrays, None if labels is None else _array(place, "labels", labels))


def _array(place: str, name: str, value: Any) -> Any:
    import numpy as np

    from edgeconv.data.strings import ended

    what = f"{place} returned, as {name!r}," if name else f"{place} returned"
    if value is None or callable(getattr(value, "__next__", None)):
        kind = "nothing" if value is None else f"a {type(value).__name__}"
        raise InputRefused(
            f"{what} {kind}, and no array", hint="return np.stack([...]) of the samples"
        )
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputRefused(
            f"{what} no array: {error}", hint="all samples need the same shape"
        ) from error
    if array.dtype.kind in "US" and not isinstance(value, np.ndarray):
        # Numpy drops zeros at the end of bytes.
        array = np.array(value, object)
    if array.dtype.kind in "US" or _are_strings(array):
        return ended(array, what)
    if array.dtype.kind not in "biuf":
        raise InputRefused(
            f"{what} {array.dtype} ({type(value).__name__}), and neither numbers nor strings",
            hint="return arrays of numbers or of strings, and labels as class numbers",
        )
    return array


def _are_strings(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind == "O" and all(isinstance(each, str | bytes) for each in array.flat)
