"""Protocol buffers read field by field, in bounded memory.

A parsed message takes many times its bytes, and a graph of 100 MB can be 50 million empty nodes.
So the upper levels are walked here, and one node at a time becomes a message. As in TensorFlow's
parser, fields have any order, may repeat, and a message may be split.
"""

import contextlib
import mmap
from collections.abc import Iterator
from typing import IO, NamedTuple

_LENGTH_DELIMITED = 2
_FIXED_BYTES = {1: 8, 5: 4}
_MOST_VARINT_BYTES = 10


class MalformedWire(ValueError):
    """Bytes that are not a protocol buffer, or one that no tool writes."""


class TooMuchWire(ValueError):
    """More than any model has, which would take too much memory or time."""


class Field(NamedTuple):
    """A field at `[start, stop)` with its tag; the content of a message begins at `content`."""

    number: int
    is_message: bool
    start: int
    content: int
    stop: int


@contextlib.contextmanager
def mapped(file: IO[bytes]) -> Iterator[memoryview]:
    """The content of an open file that is not empty, read on access."""
    with (
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        memoryview(content) as view,
    ):
        yield view


def fields(data: bytes | memoryview, start: int, stop: int) -> Iterator[Field]:
    """The fields of the message at `[start, stop)`. Raises `MalformedWire`."""
    at = start
    while at < stop:
        begin = at
        tag = data[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = _varint(data, at, stop)
        number, kind = (tag & 0xFFFFFFFF) >> 3, tag & 7
        if kind == _LENGTH_DELIMITED:
            size, content = _varint(data, at, stop)
            at = content + size
        elif kind == 0:
            _, at = _varint(data, at, stop)
            content = at
        elif kind in _FIXED_BYTES:
            content = at
            at += _FIXED_BYTES[kind]
        else:
            # Groups, which TensorFlow does not use, and invalid codes.
            raise MalformedWire(f"a field of wire type {kind} at byte {begin}")
        if not number or at > stop:
            raise MalformedWire(f"the field at byte {begin} goes beyond its message")
        yield Field(number, kind == _LENGTH_DELIMITED, begin, content, at)


def messages(
    data: bytes | memoryview, start: int, stop: int, number: int
) -> Iterator[tuple[int, int]]:
    """Where each message of field `number` lies. Raises `MalformedWire`."""
    for field in fields(data, start, stop):
        if field.number == number and field.is_message:
            yield field.content, field.stop


def delimited(number: int, size_bytes: int) -> bytes:
    """The bytes before the content of a message, text or bytes of this size."""
    begin = bytearray()
    for value in (number << 3 | _LENGTH_DELIMITED, size_bytes):
        while value > 0x7F:
            begin.append(value & 0x7F | 0x80)
            value >>= 7
        begin.append(value)
    return bytes(begin)


def _varint(data: bytes | memoryview, at: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    for _ in range(_MOST_VARINT_BYTES):
        if at >= stop:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise MalformedWire(f"a number without an end at byte {at}")
