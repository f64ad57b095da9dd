"""Tables of a flatbuffer, read in place and never outside of the file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_OFFSET_BYTES = 4
_MOST_NAME_BYTES = 1000


class BrokenFlatbuffer(ValueError):
    """An offset or length that points outside of the file."""


class FlatTable(NamedTuple):
    """A table at `at`; absent fields are 0 or empty."""

    data: memoryview
    at: int

    def int8(self, field: int) -> int:
        """A byte."""
        return self._number("<b", field)

    def uint8(self, field: int) -> int:
        """A byte, such as the type of a union."""
        return self._number("<B", field)

    def int32(self, field: int) -> int:
        """A number of 32 bits."""
        return self._number("<i", field)

    def uint64(self, field: int) -> int:
        """A number of 64 bits."""
        return self._number("<Q", field)

    def length(self, field: int, item_bytes: int = 1) -> int:
        """How many items a vector has, all of them in the file."""
        return self._vector(field, item_bytes)[1]

    def text(self, field: int) -> str:
        """A string, truncated if it is too long for a name."""
        return self.bytes(field)[:_MOST_NAME_BYTES].decode("utf-8", "replace")

    def bytes(self, field: int) -> bytes:
        """A vector of bytes."""
        start, count = self._vector(field, 1)
        return bytes(self.data[start : start + count])

    def int32s(self, field: int) -> tuple[int, ...]:
        """A vector of numbers."""
        start, count = self._vector(field, 4)
        return struct.unpack_from(f"<{count}i", self.data, start) if count else ()

    def table(self, field: int) -> FlatTable | None:
        """A table within this one."""
        offset = self._offset(field)
        return self._at(offset) if offset else None

    def tables(self, field: int) -> Iterator[FlatTable]:
        """The tables of a vector."""
        start, count = self._vector(field, _OFFSET_BYTES)
        return (self._at(start + _OFFSET_BYTES * index) for index in range(count))

    def lengths(self, *fields: int) -> int:
        """How many items several vectors have together."""
        return sum(self._vector(field, 1)[1] for field in fields)

    def _at(self, offset: int) -> FlatTable:
        return FlatTable(self.data, offset + read(self.data, "<I", offset))

    def _vector(self, field: int, item_bytes: int) -> tuple[int, int]:
        offset = self._offset(field)
        if not offset:
            return 0, 0
        start = offset + read(self.data, "<I", offset)
        count = read(self.data, "<I", start)
        start += _OFFSET_BYTES
        if start + count * item_bytes > len(self.data):
            raise BrokenFlatbuffer(f"a list of {count} items at byte {start} goes beyond the file")
        return start, count

    def _number(self, kind: str, field: int) -> int:
        offset = self._offset(field)
        return read(self.data, kind, offset) if offset else 0

    def _offset(self, field: int) -> int:
        """The offset of a field in the file, 0 if it is absent."""
        table = self.at - read(self.data, "<i", self.at)
        entry = 4 + 2 * field
        if entry >= read(self.data, "<H", table):
            return 0
        offset = read(self.data, "<H", table + entry)
        return self.at + offset if offset else 0


def root(data: memoryview) -> FlatTable:
    """The root table of a flatbuffer. Raises `BrokenFlatbuffer`."""
    return FlatTable(data, read(data, "<I", 0))


def read(data: memoryview, kind: str, offset: int) -> int:
    """A number at an offset in the file. Raises `BrokenFlatbuffer`."""
    if offset < 0:
        raise BrokenFlatbuffer(f"an offset points to byte {offset}")
    try:
        number: int = struct.unpack_from(kind, data, offset)[0]
    except struct.error:
        raise BrokenFlatbuffer(
            f"an offset points to byte {offset}, and the file has {len(data)}"
        ) from None
    return number
