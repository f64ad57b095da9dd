"""Renders templates: jinja2 with the filters of every language, without autoescape."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Environment


_PER_LINE = 16


def render(template: str, **values: Any) -> bytes:
    """The template of edgeconv/embedding/templates with these values, in ASCII."""
    return _environment().get_template(template).render(**values).encode("ascii")


@cache
def _environment() -> Environment:
    """It keeps the templates that it has compiled, which takes longer than to render them."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("edgeconv", "embedding/templates"),
        autoescape=False,  # Nothing here is HTML; each value goes through a language's filter.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(FILTERS)
    environment.filters.update(byte_rows=byte_rows, float_literal=float_literal)
    return environment


def byte_rows(data: bytes) -> str:
    """The bytes as rows of C literals, without a comma at the end."""
    rows = (data[at : at + _PER_LINE] for at in range(0, len(data), _PER_LINE))
    return ",\n".join("    " + ",".join(f"0x{byte:02x}" for byte in row) for row in rows)


def float_literal(value: float) -> str:
    """The float32 nearest to `value` in its shortest exact form, with a point or exponent."""
    import numpy as np

    text = str(np.float32(value))
    return text if any(sign in text for sign in ".en") else text + ".0"


# Text of unknown origin as a literal of each language, quotes included.
#
# Every literal is ASCII. So nothing in a name can end it, hide in it (as Unicode's direction marks
# do) or depend on the encoding that a compiler assumes.

_PRINTABLE = range(0x20, 0x7F)
_HARMLESS = re.compile(r"[^A-Za-z0-9_ .,:;()+=-]")


def c_string(text: str) -> str:
    """A literal of C and C++ in UTF-8; bytes other than ASCII are octal, of three digits."""
    return '"' + "".join(_c_byte(byte) for byte in text.encode("utf-8", "replace")) + '"'


def kotlin_string(text: str) -> str:
    """A literal of Kotlin; `$` would begin a template."""
    return '"' + "".join(_by_units(text, '"\\$', "\\u{:04x}")) + '"'


def swift_string(text: str) -> str:
    r"""A literal of Swift; `\(` would begin an interpolation."""
    return '"' + "".join(_by_points(text, '"\\', "\\u{{{:x}}}")) + '"'


def js_string(text: str) -> str:
    """A literal of JavaScript (and of JSON) that cannot end a script element around it."""
    return '"' + "".join(_by_units(text, '"\\<>&', "\\u{:04x}")) + '"'


def js_value(value: object) -> str:
    """A value of JSON as a literal of JavaScript, with strings as by `js_string`."""
    if isinstance(value, str):
        return js_string(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{js_string(k)}: {js_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(js_value, value)) + "]"
    return json.dumps(value)


def python_string(text: str) -> str:
    """A literal of Python."""
    return ascii(text)


def cmake_string(text: str) -> str:
    """A bracket argument of CMake, in which nothing is special; unprintable characters are `?`."""
    plain = "".join(c if ord(c) in _PRINTABLE else "?" for c in text)
    equals = "="
    while f"]{equals}]" in plain + "]":
        equals += "="
    return f"[{equals}[{plain}]{equals}]"


def xml_text(text: str) -> str:
    """Text for an element or an attribute of XML; characters that XML 1.0 lacks are `?`."""
    return "".join(_xml_character(c) for c in text)


def comment(text: str) -> str:
    """Text for a comment of any language: letters, digits and some punctuation, else `?`."""
    return _HARMLESS.sub("?", text)


FILTERS: dict[str, Callable[[Any], str]] = {
    "c_string": c_string,
    "cmake_string": cmake_string,
    "comment": comment,
    "js_string": js_string,
    "js_value": js_value,
    "kotlin_string": kotlin_string,
    "python_string": python_string,
    "swift_string": swift_string,
    "xml_text": xml_text,
}


def _c_byte(byte: int) -> str:
    # A question mark could begin a trigraph.
    if byte not in _PRINTABLE or chr(byte) in '"\\?':
        return f"\\{byte:03o}"
    return chr(byte)


def _by_units(text: str, special: str, escape: str) -> list[str]:
    """Each UTF-16 unit of `text`; a lone surrogate stays one."""
    raw = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]
    return [
        escape.format(unit) if unit not in _PRINTABLE or chr(unit) in special else chr(unit)
        for unit in units
    ]


def _by_points(text: str, special: str, escape: str) -> list[str]:
    """Each character of `text`; a lone surrogate, which no string of Swift has, becomes `?`."""
    return [
        "?"
        if 0xD800 <= ord(c) < 0xE000
        else (escape.format(ord(c)) if ord(c) not in _PRINTABLE or c in special else c)
        for c in text
    ]


def _xml_character(character: str) -> str:
    point = ord(character)
    if point in _PRINTABLE and character not in "<>&\"'":
        return character
    if point in (0x9, 0xA, 0xD) or 0x20 <= point < 0xD800 or 0xE000 <= point < 0xFFFE:
        return f"&#{point};"
    return f"&#{point};" if point >= 0x10000 else "?"
