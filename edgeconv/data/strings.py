"""Strings in arrays.

A string is bytes, in TensorFlow as in TFLite. Inside edgeconv an array of them has numpy's dtype
S, and each ends with one byte more, END: numpy drops zeros at the end of an S, and these may be
part of the string. So arrays of strings are saved, mapped, sent and joined like arrays of numbers
are, and nothing is ever pickled. `runtimes/runner.py` knows the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeconv.data.memory import room_bytes
from edgeconv.types.errors import InputRefused

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
    flat = np.empty(array.size, object)
    flat[:] = [value[: -len(END)] for value in array.ravel().tolist()]
    return flat.reshape(array.shape)


def as_tensorflow_takes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays of any shape by name, strings as TensorFlow and the interpreters take them."""
    return {name: plain(a) if holds_strings(a) else a for name, a in arrays.items()}


def as_tensorflow_gives(value: Any) -> NDArray[Any]:
    """A tensor of TensorFlow as an array of its shape, strings in edgeconv's form."""
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
