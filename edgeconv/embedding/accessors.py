"""The facts of a model's inputs and outputs that generated code of every language has.

`ports` are the facts, `tensor_values` what templates get of each; `identifiers` makes names of code
from the model's names.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Literal

from edgeconv.data.preprocessing import describe
from edgeconv.embedding.interface import Port
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from edgeconv.embedding.interface import Embedding
    from edgeconv.types import Preprocessing, TensorSpec

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
