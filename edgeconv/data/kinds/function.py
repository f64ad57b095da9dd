"""The kind `function`: the data that a user's function returns, `package.module:function`.

It is imported, with the current directory first on the path, and called without arguments
in a child process, in that directory. It returns a dictionary of arrays by name, or one
array, or a tuple of either and the labels, an array or a dictionary of them by output. The hash
of the returned data tells whether anything changed, so each `convert` runs the function once,
even with nothing to do.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.data.arrays import LARGEST_BYTES, Arrays, ended, opened, read_array
from edgeconv.data.code import Blamed, users_code, users_function
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.system.store import scratch_directory
from edgeconv.system.store.files import sha256_file
from edgeconv.system.store.hashes import hash_of
from edgeconv.types import Allowance
from edgeconv.types.errors import InputRefused, UsageError, WorkerCrashed, unknown_name

if TYPE_CHECKING:
    import numpy as np

OPTIONS: frozenset[str] = frozenset()
RUNS_CODE = True


class FunctionJob(msgspec.Struct, frozen=True, kw_only=True):
    """A function to call: where it is, and the directories to call it in and to write to."""

    module: str
    function: str
    directory: str
    output: str


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """What a function returned: `names[i]` is in i.npy of `directory`, the labels in labels.npy."""

    names: tuple[str, ...]
    has_labels: bool
    directory: str


@dataclass(frozen=True, eq=False)
class _KeptResult:
    """What a function returned, and what has its files go."""

    returned: Returned
    until: contextlib.ExitStack


# What `identity` had to run for, until it is taken; by location and directory.
_kept: dict[tuple[str, str], _KeptResult] = {}


def identity(
    location: str,
    options: Mapping[str, str],  # noqa: ARG001
    allowance: Allowance = Allowance(),
) -> str:
    """The hash of what the function returns. Runs it; raises as `read` does."""
    result = _run(location, allowance)
    _drop()
    _kept[_key(location)] = result
    files = sorted(Path(result.returned.directory).iterdir())
    names = (result.returned.names, result.returned.has_labels)
    return hash_of(names, [(path.name, sha256_file(path)) for path in files])


@contextlib.contextmanager
def returned(location: str, allowance: Allowance = Allowance()) -> Iterator[Returned]:
    """What the function returns, in files that go after the block.

    It runs, unless `identity` was asked just before. Raises `UsageError` for a function that
    does not exist, `InputRefused` for one that fails or returns no arrays.
    """
    result = _kept.pop(_key(location), None) or _run(location, allowance)
    with result.until:
        yield result.returned


def read(
    location: str,
    options: Mapping[str, str],  # noqa: ARG001
    array_names: frozenset[str] | None,
    answer: Returned | None = None,
) -> Arrays:
    """The arrays (n, ...) `array_names` that the function returns (None: all), and the labels.

    `answer` is what it has returned. Raises as `returned` does, and `UsageError` for an array
    that does not exist.
    """
    if answer is None:
        with returned(location) as answer:
            return read(location, {}, array_names, answer)
    if answer.names == ("",) and array_names is not None:
        raise UsageError(
            f"{location} returns a single array without a name, so none can be chosen by name",
            hint="remove the renaming, or return a dictionary",
        )
    for name in array_names or ():
        if name not in answer.names:
            raise unknown_name(f"array of {location}", name, answer.names)
    chosen = answer.names if array_names is None else sorted(array_names)
    arrays = {name: _read(answer, str(answer.names.index(name))) for name in chosen}
    return Arrays(arrays, _read(answer, "labels") if answer.has_labels else None)


def _key(location: str) -> tuple[str, str]:
    return location, str(Path.cwd())


def _drop() -> None:
    while _kept:
        _kept.popitem()[1].until.close()


def _run(location: str, allowance: Allowance) -> _KeptResult:
    module, colon, function = location.partition(":")
    if not (module and colon and function):
        raise UsageError(f"{location} does not name a function", hint="package.module:function")
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory())
        output = scratch / "returned"
        output.mkdir()
        job = FunctionJob(
            module=module, function=function, directory=str(Path.cwd()), output=str(output)
        )
        access = Access(profile="code", writes=(output, Path.cwd()))
        try:
            with start_task(
                call, job, label=location, scratch=scratch, access=access, allowance=allowance
            ) as task:
                answer = task.result()
        except WorkerCrashed as error:
            raise InputRefused(
                error.message, hint="the function must return; run it alone to see why"
            ) from error
        result = _KeptResult(answer, stack.pop_all())
    # At the latest when the process ends.
    weakref.finalize(result, result.until.close)
    return result


def _read(answer: Returned, name: str) -> np.ndarray[Any, Any]:
    path = Path(answer.directory, f"{name}.npy")
    with opened(path) as (file, size_bytes):
        return read_array(file, size_bytes, str(path), are_ended=True)


def call(job: FunctionJob) -> Returned:
    """In a child: import and call the function, and write what it returns.

    Raises `UsageError` for one that does not exist, `InputRefused` for all else.
    """
    with users_code(job.directory):
        location = f"{job.module}:{job.function}"
        function = users_function(job.module, job.function, job.directory)
        with Blamed(location, job.directory):
            result = function()
        with Blamed(f"{location}, what it returned,", job.directory):
            arrays = _arrays(location, result)
    return _written(arrays, job.output)


def _written(arrays: Arrays, directory: str) -> Returned:
    import numpy as np

    for position, array in enumerate(arrays.by_name.values()):
        np.save(Path(directory, f"{position}.npy"), np.asarray(array), allow_pickle=False)
    if arrays.labels is not None:
        np.save(Path(directory, "labels.npy"), arrays.labels, allow_pickle=False)
    return Returned(names=arrays.names, has_labels=arrays.labels is not None, directory=directory)


def _arrays(location: str, result: Any) -> Arrays:
    """The arrays by name ("" for a single one) and the labels, as numpy arrays."""
    labels: Any = None
    if isinstance(result, tuple):
        if len(result) != 2:
            raise InputRefused(
                f"{location} returned a tuple of {len(result)}",
                hint="return arrays by name in a dictionary, or (those, labels)",
            )
        result, labels = result
    named = dict(result) if hasattr(result, "keys") else {"": result}
    if hasattr(labels, "keys"):
        if named.keys() & labels.keys():
            raise InputRefused(
                f"{location} returned labels by output, and inputs not named apart from them",
                hint="return two dictionaries without a common key",
            )
        named, labels = {**named, **labels}, None
    if not named or not all(isinstance(name, str) for name in named):
        raise InputRefused(
            f"{location} returned a dictionary with the keys {list(named)[:5]}",
            hint="the keys are the names of arrays",
        )
    arrays = {name: _array(location, name, value) for name, value in named.items()}
    total = sum(array.nbytes for array in arrays.values())
    if total > LARGEST_BYTES:
        raise InputRefused(f"{location} returned {total:,} bytes; the most is {LARGEST_BYTES:,}")
    return Arrays(arrays, None if labels is None else _array(location, "labels", labels))


def _array(location: str, name: str, value: Any) -> Any:
    import numpy as np

    what = f"{location} returned, as {name!r}," if name else f"{location} returned"
    if value is None or callable(getattr(value, "__next__", None)):
        kind = "nothing" if value is None else f"a {type(value).__name__}"
        raise InputRefused(
            f"{what} {kind}, not an array", hint="return np.stack([...]) of the samples"
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
            f"{what} {array.dtype} ({type(value).__name__}), which is neither numbers nor strings",
            hint="return arrays of numbers or of strings, and labels as class numbers",
        )
    return array


def _are_strings(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind == "O" and all(isinstance(each, str | bytes) for each in array.flat)
