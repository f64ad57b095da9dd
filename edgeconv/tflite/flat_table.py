"""Tables of a flatbuffer read where they lie; nothing outside of the file is ever read."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_OFFSET_BYTES = 4
_MOST_NAME_BYTES = 1000


class BrokenFlatbuffer(ValueError):
    """An offset or length that leads out of the file."""


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
        """How many items a vector has, which are all in the file."""
        return self._vector(field, item_bytes)[1]

    def text(self, field: int) -> str:
        """A string, cut where it is absurdly long."""
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
        place = self._place(field)
        return self._at(place) if place else None

    def tables(self, field: int) -> Iterator[FlatTable]:
        """The tables of a vector."""
        start, count = self._vector(field, _OFFSET_BYTES)
        return (self._at(start + _OFFSET_BYTES * index) for index in range(count))

    def lengths(self, *fields: int) -> int:
        """The items of several vectors, together."""
        return sum(self._vector(field, 1)[1] for field in fields)

    def _at(self, place: int) -> FlatTable:
        return FlatTable(self.data, place + read(self.data, "<I", place))

    def _vector(self, field: int, item_bytes: int) -> tuple[int, int]:
        place = self._place(field)
        if not place:
            return 0, 0
        start = place + read(self.data, "<I", place)
        count = read(self.data, "<I", start)
        start += _OFFSET_BYTES
        if start + count * item_bytes > len(self.data):
            raise BrokenFlatbuffer(f"a list of {count} items at byte {start} goes beyond the file")
        return start, count

    def _number(self, kind: str, field: int) -> int:
        place = self._place(field)
        return read(self.data, kind, place) if place else 0

    def _place(self, field: int) -> int:
        """Where a field lies, 0 where it is absent."""
        table = self.at - read(self.data, "<i", self.at)
        entry = 4 + 2 * field
        if entry >= read(self.data, "<H", table):
            return 0
        offset = read(self.data, "<H", table + entry)
        return self.at + offset if offset else 0


def root(data: memoryview) -> FlatTable:
    """The table that a flatbuffer begins with. Raises `BrokenFlatbuffer`."""
    return FlatTable(data, read(data, "<I", 0))


def read(data: memoryview, kind: str, place: int) -> int:
    """A number at a place in the file. Raises `BrokenFlatbuffer`."""
    if place < 0:
        raise BrokenFlatbuffer(f"an offset leads to byte {place}")
    try:
        number: int = struct.unpack_from(kind, data, place)[0]
    except struct.error:
        raise BrokenFlatbuffer(
            f"an offset leads to byte {place}, and the file has {len(data)}"
        ) from None
    return number
