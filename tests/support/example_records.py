"""TFRecord files and tf.train.Example messages, written by hand for the tests."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from pathlib import Path


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(value: Any) -> bytes:
    """A Feature: of bytes, or of the numbers of an array."""
    if isinstance(value, (bytes, list)):
        parts = [value] if isinstance(value, bytes) else value
        return field(1, b"".join(field(1, part) for part in parts))
    flat = np.ravel(value)
    if flat.dtype.kind == "f":
        return field(2, field(1, flat.astype("<f4").tobytes()))
    return field(3, field(1, b"".join(varint(int(number)) for number in flat)))


def example(**values: Any) -> bytes:
    entries = (
        field(1, field(1, name.encode()) + field(2, feature(value)))
        for name, value in values.items()
    )
    return field(1, b"".join(entries))


def masked(data: bytes) -> bytes:
    crc = int.from_bytes(google_crc32c.Checksum(data).digest(), "big")
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(record: bytes, length: int | None = None) -> bytes:
    size = struct.pack("<Q", len(record) if length is None else length)
    return size + masked(size) + record + masked(record)


def write_records(path: Path, *records: bytes) -> str:
    path.write_bytes(b"".join(map(framed, records)))
    return str(path)


def encoded(pixels: Any, kind: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    array = np.asarray(pixels)
    Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array).save(stream, kind, **options)
    return stream.getvalue()
