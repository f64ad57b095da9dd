"""TFRecord files: framed byte strings, located first and read when needed.

A record is its length (uint64, little-endian), the masked CRC-32C of these eight bytes, the
bytes, and the masked CRC-32C of them. Files that are compressed with GZIP are unpacked into
a temporary file that has no name.
"""

from __future__ import annotations

import gzip
import os
import struct
import tempfile
import weakref
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import IO

from edgeconv.data.arrays import LARGEST_BYTES, opened, refuse_bomb, refuse_larger
from edgeconv.types.errors import InputRefused

_LENGTH = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_GZIP = b"\x1f\x8b"
_BLOCK_BYTES = 1 << 20
# Beyond this, the size of a message of protocol buffers in memory cannot be foreseen.
_LARGEST_RECORD_BYTES = 1 << 30


class Spool:
    """A temporary file without a name that compressed files are unpacked into, one after another.

    It is closed, and with that gone, when this is.
    """

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self.file.close)


@dataclass(frozen=True)
class Indexed:
    """A file, where the bytes of each of its records begin and how many they are."""

    path: Path
    spool: Spool | None
    starts: array[int]
    lengths: array[int]


class Records:
    """The records of some files, one after the other. `records[index]` reads and checks one.

    `first` and `count` choose a part of them.
    """

    def __init__(self, files: Iterable[Indexed], first: int = 0, count: int | None = None) -> None:
        self._files = tuple(files)
        self._ends = list(accumulate(len(file.starts) for file in self._files))
        total = self._ends[-1] if self._ends else 0
        self._first = first
        self._count = total - first if count is None else count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> bytes:
        file, number = self._position_of(index)
        start, length = file.starts[number], file.lengths[number]
        if length > _LARGEST_RECORD_BYTES:
            raise InputRefused(
                f"{self.where(index)} has {length:,} bytes; the most is {_LARGEST_RECORD_BYTES:,}",
                hint="write smaller samples",
            )
        refuse_larger(self.where(index).rstrip(","), length, "write smaller samples")
        if file.spool is not None:
            data = os.pread(file.spool.file.fileno(), length + _CRC.size, start)
        else:
            with opened(file.path) as (stream, _size):
                stream.seek(start)
                data = stream.read(length + _CRC.size)
        record, crc = data[:length], data[length:]
        if len(crc) != _CRC.size or _CRC.unpack(crc)[0] != masked_crc(record):
            raise InputRefused(
                f"{self.where(index)} is damaged: its checksum is wrong",
                hint="copy or write the file again",
            )
        return record

    def where(self, index: int) -> str:
        """The record for a message; in its file it is counted from 1."""
        file, number = self._position_of(index)
        return f"{file.path}, record {number + 1},"

    def part(self, first: int, count: int) -> Records:
        """`count` of the records, from `first` on."""
        return Records(self._files, self._first + first, count)

    def _position_of(self, index: int) -> tuple[Indexed, int]:
        if not 0 <= index < self._count:
            raise IndexError(index)
        position = self._first + index
        file = bisect_right(self._ends, position)
        return self._files[file], position - (self._ends[file - 1] if file else 0)


def open_records(paths: Iterable[Path]) -> Records:
    """The records of files, by the order of the files. Raises `InputRefused`.

    Each file is gone through once, from length to length; the records are not read.
    """
    spool = Spool()
    return Records([indexed(path, spool) for path in paths])


def indexed(path: Path, spool: Spool) -> Indexed:
    """Where the records of one file are; it is unpacked into `spool` where it is compressed.

    Raises `InputRefused` for other files.
    """
    with opened(path) as (stream, size_bytes):
        start = stream.read(_LENGTH.size)
        stream.seek(0)
        # A length may begin with the same two bytes as GZIP; its checksum tells.
        if start[:2] != _GZIP or _length(start) is not None:
            return Indexed(path, None, *_positions(path, stream, 0, size_bytes))
        first = spool.file.seek(0, os.SEEK_END)
        end = first + _unpack(path, stream, size_bytes, spool)
    spool.file.seek(first)
    return Indexed(path, spool, *_positions(path, spool.file, first, end))


def framed(record: bytes) -> bytes:
    """A record as it is in a file."""
    length = struct.pack("<Q", len(record))
    crcs = (_CRC.pack(masked_crc(part)) for part in (length, record))
    return length + next(crcs) + record + next(crcs)


def masked_crc(data: bytes) -> int:
    """The CRC-32C of `data`, rotated and offset as TFRecord files have it."""
    import google_crc32c

    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _length(header: bytes) -> int | None:
    """The length that a header tells; None if its checksum is wrong."""
    if len(header) < _LENGTH.size:
        return None
    length, crc = _LENGTH.unpack(header)
    return int(length) if crc == masked_crc(header[:8]) else None


def _positions(
    path: Path, stream: IO[bytes], position: int, end: int
) -> tuple[array[int], array[int]]:
    if position == end:
        raise InputRefused(f"{path} holds no records")
    starts, lengths = array("q"), array("q")
    while position < end:
        header = stream.read(_LENGTH.size)
        length = _length(header)
        if length is None:
            raise _no_record(path, len(starts) + 1, header)
        start = position + _LENGTH.size
        position = start + length + _CRC.size
        if position > end:
            raise InputRefused(
                f"{path}, record {len(starts) + 1}, is cut short: "
                f"it should have {length:,} bytes and has {max(0, end - start - 4):,}",
                hint="copy or write the file again",
            )
        starts.append(start)
        lengths.append(length)
        stream.seek(position)
    return starts, lengths


def _no_record(path: Path, number: int, header: bytes) -> InputRefused:
    if number > 1 and len(header) < _LENGTH.size:
        return InputRefused(
            f"{path}, record {number}, is cut short within its length",
            hint="copy or write the file again",
        )
    if number > 1:
        return InputRefused(
            f"{path}, record {number}, is damaged: the checksum of its length is wrong",
            hint="copy or write the file again",
        )
    return InputRefused(
        f"{path} is not a TFRecord file: it does not begin with a record",
        hint="write it with tf.io.TFRecordWriter, uncompressed or with GZIP (not ZLIB)",
    )


def _unpack(path: Path, packed: IO[bytes], size_bytes: int, spool: Spool) -> int:
    """Unpack a file to the end of `spool`, and return how many bytes that were."""
    written = 0
    try:
        with gzip.GzipFile(fileobj=packed) as stream:
            while block := stream.read(_BLOCK_BYTES):
                written += spool.file.write(block)
                refuse_bomb(str(path), size_bytes, written)
                if written > LARGEST_BYTES:
                    raise InputRefused(
                        f"{path} unpacks to more than {LARGEST_BYTES:,} bytes",
                        hint="unpack it, or write it as several files",
                    )
        spool.file.flush()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputRefused(
            f"{path} is compressed with GZIP, and damaged: {error}",
            hint="copy or write the file again",
        ) from error
    return written
