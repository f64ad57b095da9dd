"""The target `arduino`: a library for the Arduino IDE, and for PlatformIO, with a sketch."""

from collections.abc import Mapping
from pathlib import Path

from edgeconv.embedding.accessors import render
from edgeconv.embedding.c_files import C_OPTIONS, c_files, c_values
from edgeconv.embedding.interface import Embedding, TargetOption
from edgeconv.embedding.micro import (
    MICRO_OPTION,
    micro_files,
    micro_notes,
    micro_values,
    wants_micro,
)

notes = micro_notes
_LIBRARY = r"[A-Za-z0-9][A-Za-z0-9 _.-]*[A-Za-z0-9_.-](?: \([<>=^~0-9A-Za-z.&| -]+\))?"
OPTIONS = {
    **C_OPTIONS,
    **MICRO_OPTION,
    "depends": TargetOption(
        help="the libraries that it needs, in the form of library.properties",
        pattern=f"(?:{_LIBRARY}(?:, ?{_LIBRARY})*)?",
        example="Chirale_TensorFLowLite (>=2.0.0), ArduinoBLE",
    ),
}


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embedding.interface`."""
    sources = {**c_files(embedding), **micro_files(embedding)}
    depends = [library.strip() for library in embedding.options["depends"].split(",") if library]
    values = {**c_values(embedding), "depends": depends}
    written: dict[str, bytes | Path] = {
        **{f"src/{name}": content for name, content in sources.items()},
        "library.properties": render("arduino_properties.j2", **values),
        "library.json": render("platformio.j2", **values),
    }
    if wants_micro(embedding):
        sketch = render("arduino_sketch.j2", **micro_values(embedding))
        written["examples/SelfTest/SelfTest.ino"] = sketch
    return written
