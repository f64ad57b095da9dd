"""TFRecord files and tf.train.Example messages, written by hand for the tests."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
from checkpoints import masked_crc
from PIL import Image
from tiny_saved_model import block, entry, varint


def feature(value: Any) -> bytes:
    """A Feature: of bytes, or of the numbers of an array."""
    if isinstance(value, (bytes, list)):
        parts = [value] if isinstance(value, bytes) else value
        return block(1, b"".join(block(1, part) for part in parts))
    flat = np.ravel(value)
    if flat.dtype.kind == "f":
        return block(2, block(1, flat.astype("<f4").tobytes()))
    return block(3, block(1, b"".join(varint(int(number)) for number in flat)))


def example(**values: Any) -> bytes:
    entries = (entry(1, name, feature(value)) for name, value in values.items())
    return block(1, b"".join(entries))


def framed(record: bytes, length: int | None = None) -> bytes:
    size = struct.pack("<Q", len(record) if length is None else length)
    return size + masked_crc(size) + record + masked_crc(record)


def write_records(path: Path, *records: bytes) -> str:
    path.write_bytes(b"".join(map(framed, records)))
    return str(path)


def encoded(pixels: Any, kind: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    array = np.asarray(pixels)
    Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array).save(stream, kind, **options)
    return stream.getvalue()
