"""Tables of flatbuffers, read by the numbers of their fields, without a schema."""

from __future__ import annotations

import struct

from flatbuffers import encode, number_types
from flatbuffers.table import Table


class Read:
    """A table of a flatbuffer, its fields by their number."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.table = data, Table(data, position)

    @classmethod
    def root(cls, data: bytes) -> Read:
        return cls(data, encode.Get(number_types.UOffsetTFlags.packer_type, data, 0))

    def _at(self, field: int) -> int:
        offset = self.table.Offset(4 + 2 * field)
        return self.table.Pos + offset if offset else 0

    def text(self, field: int) -> str:
        return self.table.String(self._at(field)).decode() if self._at(field) else ""

    def byte(self, field: int) -> int:
        return self.data[self._at(field)] if self._at(field) else 0

    def uint(self, field: int) -> int:
        return struct.unpack_from("<I", self.data, self._at(field))[0] if self._at(field) else 0

    def one(self, field: int) -> Read:
        return Read(self.data, self.table.Indirect(self._at(field)))

    def many(self, field: int) -> list[Read]:
        if not self._at(field):
            return []
        offset = self._at(field) - self.table.Pos
        start = self.table.Vector(offset)
        return [
            Read(self.data, self.table.Indirect(start + 4 * i))
            for i in range(self.table.VectorLen(offset))
        ]

    def floats(self, field: int) -> list[float]:
        offset = self._at(field) - self.table.Pos
        count = self.table.VectorLen(offset)
        return list(struct.unpack_from(f"<{count}f", self.data, self.table.Vector(offset)))
