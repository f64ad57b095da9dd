"""Pickles as Python 2 wrote them, which is how CIFAR-10 is distributed."""

import io
import pickle
import struct
from typing import Any, ClassVar


class _Python2Pickler(pickle._Pickler):
    """Writes strings, and bytes, as the strings of Python 2."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def save_string(self, value: str | bytes) -> None:
        content = value.encode() if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)
        self.memoize(value)

    dispatch[str] = save_string
    dispatch[bytes] = save_string


def as_python_2(stored: Any) -> bytes:
    """`stored` as Python 2 and the numpy of its time would have pickled it."""
    buffer = io.BytesIO()
    _Python2Pickler(buffer, protocol=2).dump(stored)
    return buffer.getvalue().replace(b"numpy._core.", b"numpy.core.")
