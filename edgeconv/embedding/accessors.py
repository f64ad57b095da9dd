"""What the generated code of every language says of a model's inputs and outputs, made once.

`ports` are the facts; `identifiers` makes names of code from the model's own names.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import TYPE_CHECKING, Literal

from edgeconv.embedding.interface import Port
from edgeconv.errors import InputRefused
from edgeconv.tflite.flatbuffer import type_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from edgeconv.types import Preprocessing, TensorSpec

Style = Literal["snake", "camel", "pascal"]

_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("int16", "uint16", "float16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64"), 8),
}
# The limits of the integers that activations are quantised to.
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

    `in_graph` are the names in the order of the graph, `shapes` what the golden vectors have by
    name. Raises `InputRefused` for a tensor that no language has a type for.
    """
    return tuple(
        _port(spec, index, in_graph.index(spec.name), shapes[spec.name], preprocessing or {})
        for index, spec in enumerate(specs)
    )


def _port(
    spec: TensorSpec,
    index: int,
    graph_index: int,
    fixed: tuple[int, ...],
    preprocessing: Mapping[str, Preprocessing],
) -> Port:
    check_port(spec)
    return Port(
        name=spec.name,
        index=index,
        graph_index=graph_index,
        shape=spec.shape,
        fixed=fixed,
        dtype=spec.dtype,
        bytes=math.prod(fixed) * _BYTES[spec.dtype],
        scale=spec.scale[0] if spec.scale else None,
        zero_point=spec.zero_point[0] if spec.zero_point else 0,
        preprocessing=preprocessing.get(spec.name, preprocessing.get("")),
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


def tensor_types() -> tuple[str, ...]:
    """The names of the types that tensors have, in the order of their codes in a .tflite."""
    names = type_names()
    return tuple(names[code] for code in range(len(names)))


def identifiers(
    names: Sequence[str], style: Style, reserved: Collection[str], otherwise: str
) -> tuple[str, ...]:
    """An identifier for each name, all different, none in `reserved`, of ASCII letters and digits.

    Words are what is between other signs, and what begins with a capital. A name without any
    gets `otherwise`; what would be equal is numbered from 2 on, in the order of the names; what
    is reserved gets an underscore at its end.
    """
    taken: set[str] = set()
    found = []
    for name in names:
        plain = _identifier(name, style, otherwise)
        plain = f"{plain}_" if plain in reserved else plain
        one, number = plain, 1
        # Types become files, which some file systems do not tell apart by capitals.
        key = str.lower if style == "pascal" else str
        while key(one) in taken:
            number += 1
            one = f"{plain}_{number}" if style == "snake" else f"{plain}{number}"
        taken.add(key(one))
        found.append(one)
    return tuple(found)


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
