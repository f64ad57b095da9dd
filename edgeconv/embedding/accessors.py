"""The facts of a model's inputs and outputs that generated code of every language has.

`ports` are the facts, `tensor_values` what templates get of each; `identifiers` makes names of code
from the model's names.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from edgeconv.data.preprocessing import describe
from edgeconv.embedding.interface import Embedding, Port
from edgeconv.types import Preprocessing, TensorSpec
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
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


Style = Literal["snake", "camel", "pascal"]

_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("int16", "uint16", "float16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64"), 8),
}
# The limits of the integers that activations are quantized to.
LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
_WORDS = re.compile(r"[A-Za-z0-9]+")
_CASES = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+")


def ports(
    specs: Sequence[TensorSpec],
    in_graph: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]],
    preprocessing: Mapping[str, Preprocessing] | None = None,
) -> tuple[Port, ...]:
    """The ports of one side of a signature, in its order.

    `in_graph` are the names in the order of the graph, `shapes` those of the golden vectors by
    name. Raises as `check_port` does.
    """
    for spec in specs:
        check_port(spec)
    steps = preprocessing or {}
    return tuple(
        Port(
            name=spec.name,
            index=index,
            graph_index=in_graph.index(spec.name),
            shape=spec.shape,
            fixed=shapes[spec.name],
            dtype=spec.dtype,
            bytes=math.prod(shapes[spec.name]) * _BYTES[spec.dtype],
            scale=spec.scale[0] if spec.scale else None,
            zero_point=spec.zero_point[0] if spec.zero_point else 0,
            preprocessing=steps.get(spec.name, steps.get("")),
        )
        for index, spec in enumerate(specs)
    )


def check_port(spec: TensorSpec) -> None:
    """Raise `InputRefused` for a tensor that no language has a type for."""
    if spec.dtype not in _BYTES:
        raise InputRefused(
            f"{spec.name!r} is {spec.dtype}, for which there is no accessor",
            hint="call the runtime's own interpreter in the app, which takes strings in Python, "
            "Java and C++; or convert a signature with numeric inputs and outputs, and look "
            "strings up in the app"
            if spec.dtype == "string"
            else "convert a signature with numeric inputs and outputs",
        )


def check_fixed(port: Port, who: str) -> None:
    """Raise `InputRefused` for an open dimension other than the batch."""
    if -1 in port.shape[1:]:
        raise InputRefused(
            f"{port.name!r} has the shape {list(port.shape)}, and {who} needs a fixed one",
            hint=f"convert with a fixed shape: edgeconv convert --shape {port.name}=1x...",
        )


def tensor_values(
    embedding: Embedding, identify: Callable[[Sequence[str], str], Sequence[str]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What templates get of each input and output.

    `identify` makes the identifiers of the names of one side, "input" or "output".
    """

    def values(ports: Sequence[Port], side: str) -> list[dict[str, Any]]:
        ids = identify([port.name for port in ports], side)
        return [
            {
                "port": port,
                "id": name,
                "name": port.name,
                "dimensions": [abs(size) for size in port.shape],
                "limits": LIMITS.get(port.dtype) if port.scale is not None else None,
                "normalization": normalization(port),
                "preprocessing": describe({"": port.preprocessing}) if port.preprocessing else "",
            }
            for port, name in zip(ports, ids, strict=True)
        ]

    inputs, outputs = values(embedding.inputs, "input"), values(embedding.outputs, "output")
    for tensor, tolerance in zip(outputs, embedding.golden.tolerances, strict=True):
        is_float = tensor["port"].dtype.startswith("float")
        tensor["tolerance"] = tolerance.absolute if is_float else tolerance.steps
    return inputs, outputs


def normalization(port: Port) -> dict[str, Any] | None:
    """The step of a preprocessing that computes with each value, None if there is none."""
    steps = port.preprocessing
    if steps is None or (steps.scale is None and not steps.mean and not steps.std):
        return None
    return {
        "scale": 1.0 if steps.scale is None else steps.scale,
        "mean": steps.mean or (0.0,),
        "std": steps.std or (1.0,),
    }


def identifiers(
    names: Sequence[str], style: Style, reserved: Collection[str], otherwise: str
) -> tuple[str, ...]:
    """An identifier for each name, all different, none in `reserved`, of ASCII letters and digits.

    Other characters and capitals separate words. A name without words gets `otherwise`. Duplicates
    are numbered from 2 on, and a reserved word gets an underscore appended.
    """
    taken: set[str] = set()
    unique = []
    for name in names:
        plain = _identifier(name, style, otherwise)
        plain = f"{plain}_" if plain in reserved else plain
        candidate, number = plain, 1
        # Types become files, and some file systems ignore case.
        key = str.lower if style == "pascal" else str
        while key(candidate) in taken:
            number += 1
            candidate = f"{plain}_{number}" if style == "snake" else f"{plain}{number}"
        taken.add(key(candidate))
        unique.append(candidate)
    return tuple(unique)


def _identifier(name: str, style: Style, otherwise: str) -> str:
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    words = [word for part in _WORDS.findall(ascii_name) for word in _CASES.findall(part)]
    if not words:
        words = [otherwise]
    if style == "snake":
        text = "_".join(word.lower() for word in words)
    else:
        text = "".join(word[0].upper() + word[1:].lower() for word in words)
        text = text[0].lower() + text[1:] if style == "camel" else text
    prefix = otherwise if style != "pascal" else otherwise.capitalize()
    return f"{prefix}{text}" if text[0].isdigit() else text
