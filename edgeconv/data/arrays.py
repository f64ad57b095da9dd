"""Stored arrays, read from files that may be damaged or hostile, and how much memory they may take.

A string is bytes, in TensorFlow as in TFLite. Inside edgeconv an array of them has numpy's dtype
S, and each ends with one byte more, END: numpy drops zeros at the end of an S, and these may be
part of the string. So arrays of strings are saved, mapped, sent and joined like arrays of numbers
are, and nothing is ever pickled. `runtimes/runner.py` knows the same form.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from edgeconv.system.store.files import absent, refuse_pointer
from edgeconv.system.store.notes import sha256_once
from edgeconv.types.decoding import ready
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Content = TypeVar("Content")

_MOST_JSON_BYTES = 16 << 20
_NUMBERS = "biufc"
_STRINGS = "US"
# What a string takes in addition while it is put into edgeconv's form.
PYTHON_BYTES = 150

# What numpy's header reader raises on damaged headers; one may claim 4 GiB.
_BAD_HEADER = (ValueError, TypeError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError)


class Items(Protocol):
    """Samples that are read one by one, when needed, and may differ in shape."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        """One sample as stored. Raises `InputRefused` if it cannot be read."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """What a kind of data gives: arrays by name, as stored, and the labels if it has any.

    A column is an array (n, *sample_shape), or `Items` where all of it at once would be too much.
    An array without a name in the data is called "". `is_text`: the numbers are written as text or
    in a table, without a dtype; they are cast to the dtype of the model's input if it keeps their
    values. Columns of text are also in `as_strings`; `not_numbers` has why one is not in
    `by_name`. `class_names` are the names of the labels 0, 1, …. `no_classes` names a label that
    is not a class number, if there is one. `rate_hz` is the sample rate of audio, where known.
    """

    by_name: Mapping[str, np.ndarray[Any, Any] | Items]
    labels: np.ndarray[Any, Any] | None = None
    is_text: bool = False
    class_names: tuple[str, ...] = ()
    rate_hz: int | None = None
    no_classes: str = ""
    as_strings: Mapping[str, Callable[[], np.ndarray[Any, Any]]] = field(default_factory=dict)
    not_numbers: Mapping[str, InputRefused] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all arrays, of numbers or of strings."""
        return (*self.by_name, *self.not_numbers)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """An open regular file and its size in bytes, which is not 0.

    Raises `InputRefused` if there is none, or if reading it fails in the block.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "directory" if stat.S_ISDIR(status.st_mode) else "device or pipe"
            raise InputRefused(f"{path} is a {what}, not a data file")
        with path.open("rb") as file:
            if status.st_size == 0:
                raise InputRefused(f"{path} is empty (0 bytes)")
            refuse_pointer(path)
            yield file, status.st_size
    except FileNotFoundError:
        raise absent(path) from None
    except OSError as error:
        raise InputRefused(f"{path} cannot be read: {error.strerror or error}") from error


def sha256_of(path: Path) -> str:
    """The hash of a data file's bytes. Raises `InputRefused` as `opened` does."""
    with opened(path):
        return sha256_once(path)


def read_json(path: Path, kind: type[Content]) -> Content:
    """A JSON file of TensorFlow Datasets; numbers may be strings in it. Raises `InputRefused`."""
    with opened(path) as (file, size_bytes):
        if size_bytes > _MOST_JSON_BYTES:
            raise InputRefused(f"{path} has {size_bytes:,} bytes; the most is {_MOST_JSON_BYTES:,}")
        data = file.read()
    try:
        return msgspec.json.decode(data, type=ready(kind), strict=False)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InputRefused(
            f"{path} is damaged, or of another version of TensorFlow Datasets: {error}",
            hint="prepare or copy the data set again",
        ) from error


def read_array(
    stream: IO[bytes], size_bytes: int, what: str, *, are_ended: bool = False
) -> np.ndarray[Any, Any]:
    """The array, of any shape, of numbers or strings in a .npy stream of `size_bytes`.

    Strings have edgeconv's form; with `are_ended` they are stored so. Never
    unpickles, and allocates no more than the stream really holds. Raises `InputRefused`, naming
    `what`.
    """
    from numpy.lib import format as npy

    shape, dtype, _ = read_header(stream, what, size_bytes)
    if not are_ended:
        _refuse_fields(dtype, what)
    refuse_larger(
        what,
        math.prod(shape) * (dtype.itemsize + PYTHON_BYTES * (dtype.kind in _STRINGS)),
        "a .npy file of numbers is read in parts",
    )
    stream.seek(0)
    try:
        with _old_headers():
            array = npy.read_array(stream, allow_pickle=False)
    except MemoryError as error:
        raise InputRefused(f"{what} does not fit into memory ({size_bytes:,} bytes)") from error
    except _BAD_HEADER as error:
        raise InputRefused(f"{what} is damaged: {error}") from error
    return array if are_ended else _stored(array, what)


def _stored(array: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    return ended(array, what) if array.dtype.kind in _STRINGS else array


class StoredRows:
    """The rows of an array in a .npy file, which is never read as a whole; `Items`.

    Raises `InputRefused` as `read_array` does.
    """

    def __init__(self, path: Path) -> None:
        with opened(path) as (file, size_bytes):
            shape, self._dtype, in_order = read_header(file, str(path), size_bytes)
            self._begin = file.tell()
        _refuse_fields(self._dtype, str(path))
        if not shape or not in_order:
            raise InputRefused(
                f"{path} is large, and not stored row after row",
                hint="save it again with np.save(path, np.ascontiguousarray(x))",
            )
        self._path, self._count, self._row = path, shape[0], shape[1:]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        """One row. Raises `InputRefused` if it cannot be read."""
        import numpy as np

        size = math.prod(self._row) * self._dtype.itemsize
        refuse_larger(f"a row of {self._path}", size, "give smaller samples")
        with opened(self._path) as (file, _):
            file.seek(self._begin + index * size)
            data = file.read(size)
        if len(data) < size:
            raise InputRefused(f"{self._path} is shorter than it was")
        row = np.frombuffer(data, self._dtype).reshape(self._row)
        return _stored(row, str(self._path))


def _refuse_fields(dtype: np.dtype[Any], what: str) -> None:
    """Only labels that edgeconv has stored itself have fields."""
    if dtype.fields:
        raise InputRefused(f"{what} holds {dtype}, not numbers or strings")


def _check_dtype(dtype: np.dtype[Any], what: str) -> None:
    for column, *_ in (dtype.fields or {}).values():
        # Labels of several outputs, a field each.
        _check_dtype(column.base, what)
    if dtype.fields:
        return
    if dtype.hasobject:
        raise InputRefused(
            f"{what} holds pickled Python objects, which edgeconv never loads",
            hint="save it again as an array of numbers, for example np.stack(list(x)), or of "
            "strings: x.astype(str)",
        )
    if dtype.kind not in _NUMBERS + _STRINGS:
        raise InputRefused(f"{what} holds {dtype}, not numbers or strings")


@contextlib.contextmanager
def _old_headers() -> Iterator[None]:
    """Read headers of Python 2 and of old numpy, of which numpy warns, as any other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def read_header(
    stream: IO[bytes], what: str, size_bytes: int
) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """The shape and dtype in a .npy stream, and whether its rows are in C order.

    The stream is then at the first value. Raises `InputRefused` if they do not fit `size_bytes`.
    """
    from numpy.lib import format as npy

    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    try:
        version = npy.read_magic(stream)
        if version not in readers:
            raise InputRefused(f"{what} is in version {version} of the .npy format, not 1 or 2")
        with _old_headers():
            shape, is_fortran, dtype = readers[version](stream)
    except _BAD_HEADER as error:
        raise InputRefused(
            f"{what} is not a numpy array: {error}", hint="write it with np.save or np.savez"
        ) from error
    _check_dtype(dtype, what)
    whole = stream.tell() + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) >= 0:
        _check_size(whole, size_bytes, what)
    # There can be any number of samples without values, and of values of no bytes.
    if min(shape, default=0) < 0 or max(shape, default=0) > size_bytes:
        raise InputRefused(f"{what} is damaged: it has the shape {shape} of {dtype}")
    return shape, dtype, not is_fortran


def _check_size(declared_bytes: int, size_bytes: int, what: str) -> None:
    if declared_bytes > size_bytes:
        raise InputRefused(
            f"{what} is cut short: it should have {declared_bytes:,} bytes and has {size_bytes:,}",
            hint="copy or write the file again",
        )
    if declared_bytes < size_bytes:
        raise InputRefused(
            f"{what} has {size_bytes - declared_bytes:,} bytes after the end of its array",
            hint="save one array per file with np.save, or several with np.savez",
        )


# The most that is ever decoded at once, on any machine.
LARGEST_BYTES = 16 << 30
# Zeros are packed 1000 to 1; real samples stay far below this.
_MOST_RATIO = 100
_RATIO_MATTERS_BYTES = 1 << 30

_limit_bytes = 0


def limit_to(memory_bytes: int) -> None:
    """Tell what this process may use, 0 for no limit; see `workers.Allowance`."""
    global _limit_bytes
    _limit_bytes = memory_bytes


def room_bytes() -> int:
    """How much decoded samples may take: as much as the process may use, or the machine has."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(_limit_bytes or machine, LARGEST_BYTES)


def refuse_larger(what: str, needed_bytes: int, hint: str) -> None:
    """Raise `InputRefused` where decoding `what` needs more than there is room for.

    `hint` is how to need less.
    """
    room = room_bytes()
    if needed_bytes <= room:
        return
    raise InputRefused(
        f"{what} would take {needed_bytes:,} bytes of memory, and {room:,} is the most",
        hint=f"{hint}, or raise --memory-limit-mib" if room == _limit_bytes else hint,
    )


def refuse_bomb(what: str, packed_bytes: int, unpacked_bytes: int) -> None:
    """Raise `InputRefused` for data that is packed more densely than samples are.

    From a GiB on: less does no harm.
    """
    if unpacked_bytes > max(_RATIO_MATTERS_BYTES, _MOST_RATIO * packed_bytes):
        raise InputRefused(
            f"{what} has {packed_bytes:,} bytes and would unpack to {unpacked_bytes:,}, more than "
            f"{_MOST_RATIO} times as much",
            hint="no real samples are packed so densely; store them uncompressed if these are",
        )


END = b"\x01"
STRING = "string"
LONGEST_BYTES = 1 << 20
# Every string takes as much room as the longest.
_LARGEST_BYTES = 4 << 30


def holds_strings(array: NDArray[Any]) -> bool:
    """Whether an array, of any shape, holds strings in edgeconv's own form."""
    return array.dtype.kind == "S"


def ended(values: NDArray[Any], where: str) -> NDArray[np.bytes_]:
    """Strings of an array of any shape (dtype U, S, or objects of str or bytes) in edgeconv's form.

    Text becomes UTF-8. Raises `InputRefused`, naming `where`, for objects that are something
    else, for text that is not Unicode, and for strings that are too long.
    """
    encoded = ended_list(values.ravel().tolist(), where)
    return encoded.reshape(values.shape)


def ended_list(values: Iterable[object], where: str) -> NDArray[np.bytes_]:
    """A list of strings as an array (n,); see `ended`."""
    import numpy as np

    encoded = [_encoded(value, index, where) for index, value in enumerate(values)]
    longest = max(map(len, encoded), default=1)
    if longest * len(encoded) > min(_LARGEST_BYTES, room_bytes()):
        raise InputRefused(
            f"{where}: {len(encoded):,} strings, each stored in the {longest:,} bytes of the "
            f"longest, are more than {min(_LARGEST_BYTES, room_bytes()):,} bytes",
            hint="use fewer samples, or shorten the longest",
        )
    return np.array(encoded, dtype=f"S{longest}")


def plain(array: NDArray[Any]) -> NDArray[np.object_]:
    """Strings in edgeconv's form as bytes objects of the same shape, as TensorFlow takes them."""
    import numpy as np

    flat = np.empty(array.size, object)
    flat[:] = [value[: -len(END)] for value in array.ravel().tolist()]
    return flat.reshape(array.shape)


def as_tensorflow_takes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays of any shape by name, strings as TensorFlow and the interpreters take them."""
    return {name: plain(a) if holds_strings(a) else a for name, a in arrays.items()}


def as_tensorflow_gives(value: Any) -> NDArray[Any]:
    """A tensor of TensorFlow as an array of its shape, strings in edgeconv's form."""
    import numpy as np

    if isinstance(value, bytes) or value.dtype.kind == "O":
        return ended(np.asarray(value, object), "an output of the trained model")
    array: NDArray[Any] = value
    return array


def _encoded(value: object, index: int, where: str) -> bytes:
    try:
        data = value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError as error:
        raise InputRefused(f"{where}: string {index + 1} is not Unicode text: {error}") from error
    if not isinstance(data, bytes):
        raise InputRefused(
            f"{where}: value {index + 1} is {type(value).__name__}, not a string",
            hint="give strings only: .astype(str)",
        )
    if len(data) > LONGEST_BYTES:
        raise InputRefused(
            f"{where}: string {index + 1} has {len(data):,} bytes; the most is {LONGEST_BYTES:,}",
            hint="remove the sample, or cut it",
        )
    return data + END
