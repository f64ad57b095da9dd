"""The target `arduino`: a library for the Arduino IDE, and for PlatformIO, with a sketch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.embed.c_files import BYTES_OPTION, c_files, c_values
from edgeconv.embed.micro import MICRO_OPTION, micro_files, micro_notes, micro_values, wants_micro
from edgeconv.embed.rendering import render

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edgeconv.embed.interface import Embedding

OPTIONS = {**BYTES_OPTION, **MICRO_OPTION}


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embed.interface`."""
    sources = {**c_files(embedding), **micro_files(embedding)}
    values = c_values(embedding)
    written: dict[str, bytes | Path] = {
        **{f"src/{name}": content for name, content in sources.items()},
        "library.properties": render("arduino_properties.j2", **values),
        "library.json": render("platformio.j2", **values),
    }
    if wants_micro(embedding):
        sketch = render("arduino_sketch.j2", **micro_values(embedding))
        written["examples/SelfTest/SelfTest.ino"] = sketch
    return written


def notes(embedding: Embedding) -> tuple[str, ...]:
    """See `edgeconv.embed.interface`."""
    return micro_notes(embedding)
