"""What the templates of the targets for apps are made from, in any of their languages."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from edgeconv.data.preprocessing import describe
from edgeconv.embedding.accessors import LIMITS, identifiers, tensor_types
from edgeconv.embedding.c_files import golden_layout, normalisation
from edgeconv.embedding.interface import TargetOption
from edgeconv.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from edgeconv.embedding.interface import Embedding, Port

CLASS_OPTION = TargetOption(
    help="the name of the class; without it, one made of the symbol",
    pattern="(?:[A-Z][A-Za-z0-9]*)?",
    example="DigitsModel",
)
_LINE_ENDS = frozenset("\n\r")
# How many characters of labels stand in one literal; a class file of Java ends at 64 KiB.
_LABELS_PER_LITERAL = 8000


def app_values(
    embedding: Embedding,
    model: bytes,
    types: Mapping[str, str],
    reserved: Collection[str],
    taken: Collection[str],
) -> dict[str, Any]:
    """What the templates of an app are made from.

    `model` is the file that ships, `types` the language's array type for each dtype,
    `reserved` its words, and `taken` the types that generated code refers to. Raises
    `InputRefused` for a dtype without a type, for an open dimension other than the batch, and
    for a label that is more than one line; `UsageError` for a class of a name that is taken.
    """
    check_labels(embedding.labels)
    for port in (*embedding.inputs, *embedding.outputs):
        _check(port, types)
    inputs = _tensors(embedding.inputs, types, reserved, "input")
    outputs = _tensors(embedding.outputs, types, reserved, "output")
    for tensor, tolerance in zip(outputs, embedding.golden.tolerances, strict=True):
        is_float = tensor["port"].dtype.startswith("float")
        tensor["tolerance"] = tolerance.absolute if is_float else tolerance.steps
    inner = {"Inputs", "Outputs", *(tensor["object"] for tensor in (*inputs, *outputs))}
    not_free = {*reserved, *taken, *types.values(), *inner}
    return {
        "symbol": embedding.symbol,
        "name": embedding.name,
        "embedding": embedding,
        "class": _class(embedding, not_free),
        "sha256": hashlib.sha256(model).hexdigest(),
        "size": len(model),
        "signature": embedding.signature.key,
        "tensor_types": tensor_types(),
        "inputs": inputs,
        "outputs": outputs,
        "labels": _label_parts(embedding.labels),
        "labelled": None if embedding.labelled is None else outputs[embedding.labelled],
        "vectors": len(embedding.golden.vectors),
        "golden_source": embedding.golden.source,
        **golden_layout(inputs, outputs, len(embedding.golden.vectors)),
    }


def _class(embedding: Embedding, not_free: Collection[str]) -> str:
    given = embedding.options["class"]
    if given in not_free:
        raise UsageError(
            f"--option class={given}: the generated code has a {given} already",
            hint=f"as in class={given}Model",
        )
    return given or identifiers([embedding.symbol], "pascal", not_free, "model")[0]


def check_labels(labels: tuple[str, ...]) -> None:
    """Raise `InputRefused` for a label that is more than one line."""
    for label in labels:
        if _LINE_ENDS & set(label):
            raise InputRefused(
                f"the label {label!r} is more than one line, and labels are kept one a line",
                hint="give the labels in a file of your own, with --labels",
            )


def _check(port: Port, types: Mapping[str, str]) -> None:
    if -1 in port.shape[1:]:
        raise InputRefused(
            f"{port.name!r} has the shape {list(port.shape)}, and an app needs a fixed one",
            hint=f"convert with a fixed shape: edgeconv convert --shape {port.name}=1x...",
        )
    if port.dtype not in types:
        raise InputRefused(
            f"{port.name!r} is {port.dtype}, which the interpreter of this target does not have",
            hint=f"it has {', '.join(types)}",
        )


def _tensors(
    ports: tuple[Port, ...], types: Mapping[str, str], reserved: Collection[str], otherwise: str
) -> list[dict[str, Any]]:
    names = [port.name for port in ports]
    values = identifiers(names, "camel", reserved, otherwise)
    # Inputs and InputS would be one file where a file system takes them for the same.
    objects = identifiers(names, "pascal", ("S",), otherwise)
    return [
        {
            "port": port,
            "name": port.name,
            "value": value,
            "object": f"{otherwise.capitalize()}{object_name}",
            "type": types[port.dtype],
            "dimensions": [abs(size) for size in port.shape],
            "limits": LIMITS.get(port.dtype) if port.scale is not None else None,
            "normalisation": normalisation(port),
            "preprocessing": describe({"": port.preprocessing}) if port.preprocessing else "",
        }
        for port, value, object_name in zip(ports, values, objects, strict=True)
    ]


def _label_parts(labels: tuple[str, ...]) -> list[str]:
    """The labels, a line each, in as few texts as literals may be long."""
    parts: list[str] = []
    for label in labels:
        if parts and len(parts[-1]) + len(label) < _LABELS_PER_LITERAL:
            parts[-1] += f"\n{label}"
        else:
            parts.append(label)
    return parts
