"""Per-sample results as short lines of text, exactly as they were.

A line is base64 of the numbers, little-endian and compressed by zlib, which is in the standard
library. It is the same on every machine.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# The bytes of a whole number, the fewest first, by the letter that begins the line.
_WHOLE = {"b": 1, "h": 2, "i": 4, "q": 8}
_DOUBLE_BYTES = 8


def pack_right(correct: str) -> str:
    """A line for a "1" or "0" per sample."""
    count = len(correct)
    return _deflated(int(f"0{correct}", 2).to_bytes((count + 7) // 8, "little"))


def unpack_right(line: str, samples: int) -> str:
    """The argument of `pack_right`, of this length. Raises `ValueError` for any other line."""
    number = int.from_bytes(_inflated(line, (samples + 7) // 8), "little")
    correct = f"{number:0{samples}b}" if samples else ""
    if len(correct) != samples:
        raise ValueError(f"holds more than {samples} samples")
    return correct


def pack_classes(classes: Sequence[int], reference: Sequence[int] = ()) -> str:
    """A line for a class per sample; shorter where `reference` has similar classes.

    `reference` is as long as `classes`, or empty. Numbers and differences are within 64 bits.
    """
    numbers = (
        [a - b for a, b in zip(classes, reference, strict=True)] if reference else list(classes)
    )
    low, high = min(numbers, default=0), max(numbers, default=0)
    letter = next(
        letter
        for letter, size in _WHOLE.items()
        if -(1 << (8 * size - 1)) <= low and high < 1 << (8 * size - 1)
    )
    return f"{letter}:{_deflated(struct.pack(f'<{len(numbers)}{letter}', *numbers))}"


def unpack_classes(line: str, samples: int, reference: Sequence[int] = ()) -> tuple[int, ...]:
    """The argument of `pack_classes`. Raises `ValueError` for any other line."""
    letter, _, packed = line.partition(":")
    if letter not in _WHOLE:
        raise ValueError(f"begins with {letter[:1]!r}")
    content = _inflated(packed, samples * _WHOLE[letter])
    numbers: tuple[int, ...] = struct.unpack(f"<{samples}{letter}", content)
    return tuple(a + b for a, b in zip(numbers, reference, strict=True)) if reference else numbers


def pack_numbers(numbers: Sequence[float]) -> str:
    """A line for a number per sample, exact."""
    content = struct.pack(f"<{len(numbers)}d", *numbers)
    # The first bytes of all, then the second ones: similar exponents compress well.
    return _deflated(b"".join(content[at::_DOUBLE_BYTES] for at in range(_DOUBLE_BYTES)))


def unpack_numbers(line: str, samples: int) -> tuple[float, ...]:
    """The argument of `pack_numbers`. Raises `ValueError` for any other line."""
    content = _inflated(line, samples * _DOUBLE_BYTES)
    whole = bytearray(len(content))
    for at in range(_DOUBLE_BYTES):
        whole[at::_DOUBLE_BYTES] = content[at * samples : (at + 1) * samples]
    return struct.unpack(f"<{samples}d", whole)


def _deflated(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode()


def _inflated(line: str, size: int) -> bytes:
    """The content of a line, of `size` bytes, and never more. Raises `ValueError`."""
    try:
        inflating = zlib.decompressobj()
        content = inflating.decompress(base64.b64decode(line, validate=True), size + 1)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"is damaged: {error}") from error
    if len(content) != size or not inflating.eof or inflating.unused_data:
        raise ValueError(f"does not hold the {size} bytes that it should")
    return content
