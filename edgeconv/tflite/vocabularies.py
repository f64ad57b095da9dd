"""The words that a graph knows: what it has in constant tensors of strings."""

from __future__ import annotations

import itertools
import struct

from edgeconv.tflite.flatbuffer import parse, type_names

_COUNT = struct.Struct("<i")


def vocabularies(data: bytes, *, where: str) -> tuple[tuple[bytes, ...], ...]:
    """The strings of every constant tensor that holds some, in the order of the file.

    These are the keys of its tables, and the strings that tables give. A tensor that is not
    written as strings are counts as none. Raises `InputRefused`, which names the file as
    `where`, for bytes that are no model.
    """
    model = parse(data, where=where)
    found = (
        _strings(bytes(model.buffers[tensor.buffer].data))
        for graph in model.subgraphs
        for tensor in graph.tensors
        if type_names()[tensor.type] == "string"
        and model.buffers[tensor.buffer].data is not None
        and len(model.buffers[tensor.buffer].data)
    )
    return tuple(words for words in found if words)


def _strings(buffer: bytes) -> tuple[bytes, ...]:
    """A buffer of strings: how many, where each begins and the last ends, and the bytes."""
    if len(buffer) < _COUNT.size:
        return ()
    (count,) = _COUNT.unpack_from(buffer)
    if count < 1 or (count + 2) * _COUNT.size > len(buffer):
        return ()
    places = struct.unpack_from(f"<{count + 1}i", buffer, _COUNT.size)
    return tuple(buffer[start:end] for start, end in itertools.pairwise(places))
