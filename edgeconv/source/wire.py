"""The fields of a protocol buffer in a file, walked without knowing its messages."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class Field(NamedTuple):
    """A field: its number, and its value if it is a number, else where its bytes are."""

    number: int
    value: int | None
    start: int
    size_bytes: int


def fields(stream: IO[bytes], start: int, end: int, *, most: int) -> Iterator[Field]:
    """The first `most` fields between two positions of a stream; what they hold is not read.

    Ends with a `ValueError` at what cannot be a field, so that a text or another format is
    seldom taken for a protocol buffer.
    """
    position = start
    for _ in range(most):
        if position >= end:
            return
        stream.seek(position)
        key, position = _varint(stream)
        number, wire = key >> 3, key & 7
        if not number:
            raise ValueError("a field has the number 0")
        value, size_bytes = None, {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
        if wire == _VARINT:
            value, position = _varint(stream)
        elif wire == _BYTES:
            size_bytes, position = _varint(stream)
        elif not size_bytes:
            raise ValueError(f"a field has the wire type {wire}")
        if position + size_bytes > end:
            raise ValueError("a field ends after its message")
        yield Field(number, value, position, size_bytes)
        position += size_bytes


def _varint(stream: IO[bytes]) -> tuple[int, int]:
    """A number, and the position after it."""
    value = 0
    for index in range(_LONGEST_VARINT):
        byte = stream.read(1)
        if not byte:
            break
        value |= (byte[0] & 127) << (7 * index)
        if byte[0] < 128:
            return value, stream.tell()
    raise ValueError("a number has no end")
