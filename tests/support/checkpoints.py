"""A checkpoint of TensorFlow, byte by byte: the objects it is of, and no variables.

A table of LevelDB's format, and a file with the one tensor that is in it, a string.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import google_crc32c
from tiny_saved_model import block, number, varint

_STRING = 7
OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
_MAGIC = 0xDB4775248B80FB57
_BLOCK_TRAILER_BYTES = 5
_FOOTER_BYTES = 40


def write_checkpoint(
    variables: Path, children: Sequence[Mapping[str, int]], *, restores: int = 0
) -> None:
    """Write `variables`/variables.index and its data; `children` are those of each object.

    The object with the number `restores`, if not 0, has a value in the checkpoint.
    """
    value = block(2, block(1, "t") + block(3, OBJECTS))
    nodes = b"".join(
        block(1, _children(each) + (value if n and n == restores else b""))
        for n, each in enumerate(children)
    )
    data, checksum = _string_tensor(nodes)
    variables.mkdir(parents=True)
    (variables / "variables.data-00000-of-00001").write_bytes(data)
    header = number(1, 1) + block(3, number(1, 1))
    fixed32 = varint(6 << 3 | 5) + checksum
    tensor = number(1, _STRING) + block(2, b"") + number(5, len(data)) + fixed32
    content = _table({b"": header, OBJECTS.encode(): tensor})
    (variables / "variables.index").write_bytes(content)


def _children(names: Mapping[str, int]) -> bytes:
    return b"".join(block(1, number(1, node) + block(2, name)) for name, node in names.items())


def _string_tensor(content: bytes) -> tuple[bytes, bytes]:
    """The bytes of a tensor of one string, and its checksum."""
    length = struct.pack("<I", len(content))
    checked = masked_crc(length) + content
    return varint(len(content)) + checked, masked_crc(length + checked)


def masked_crc(data: bytes) -> bytes:
    """The CRC-32C as TensorFlow's files have it."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _table(entries: Mapping[bytes, bytes]) -> bytes:
    content = _block(entries)
    index = _block({max(entries): varint(0) + varint(len(content) - _BLOCK_TRAILER_BYTES)})
    empty = _block({})
    start = len(content)
    handles = varint(start) + varint(len(empty) - _BLOCK_TRAILER_BYTES)
    handles += varint(start + len(empty)) + varint(len(index) - _BLOCK_TRAILER_BYTES)
    footer = handles.ljust(_FOOTER_BYTES, b"\0") + struct.pack("<Q", _MAGIC)
    return content + empty + index + footer


def _block(entries: Mapping[bytes, bytes]) -> bytes:
    """Entries by key, each a restart point, and the trailer: not compressed, and a checksum."""
    content, restarts = b"", [0]
    for count, (key, value) in enumerate(sorted(entries.items())):
        if count:
            restarts.append(len(content))
        content += varint(0) + varint(len(key)) + varint(len(value)) + key + value
    content += struct.pack(f"<{len(restarts)}I", *restarts) + struct.pack("<I", len(restarts))
    return content + b"\0" + masked_crc(content + b"\0")
