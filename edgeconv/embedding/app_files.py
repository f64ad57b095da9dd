"""The values for the templates of the targets for apps."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from edgeconv.embedding.accessors import check_fixed, identifiers, tensor_values
from edgeconv.embedding.c_files import golden_layout
from edgeconv.embedding.interface import TargetOption
from edgeconv.types.errors import InputRefused, UsageError
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from edgeconv.embedding.interface import Embedding, Port

CLASS_OPTION = TargetOption(
    help="the name of the class; default: made from the symbol",
    pattern="(?:[A-Z][A-Za-z0-9]*)?",
    example="DigitsModel",
)
_LINE_ENDS = frozenset("\n\r")
# How many characters of labels are in one literal; a class file of Java ends at 64 KiB.
_LABELS_PER_LITERAL = 8000


def app_values(
    embedding: Embedding,
    model: bytes,
    types: Mapping[str, str],
    reserved: Collection[str],
    taken: Collection[str],
) -> dict[str, Any]:
    """The values for the templates of an app.

    `model` is the file that ships, `types` the language's array type for each dtype, `reserved` its
    words, and `taken` the types that generated code uses. Raises `InputRefused` for a dtype without
    a type, an open dimension other than the batch, and a label of several lines; `UsageError` for
    the name of a class that is taken.
    """
    check_labels(embedding.labels)
    for port in (*embedding.inputs, *embedding.outputs):
        _check(port, types)
    inputs, outputs = tensor_values(
        embedding, lambda names, side: identifiers(names, "camel", reserved, side)
    )
    for side, tensors in (("input", inputs), ("output", outputs)):
        # Inputs and InputS would be one file where a file system ignores case.
        objects = identifiers([tensor["name"] for tensor in tensors], "pascal", ("S",), side)
        for tensor, object_name in zip(tensors, objects, strict=True):
            tensor["value"] = tensor["id"]
            tensor["object"] = f"{side.capitalize()}{object_name}"
            tensor["type"] = types[tensor["port"].dtype]
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
        "inputs": inputs,
        "outputs": outputs,
        "labels": _label_parts(embedding.labels),
        "labeled": None if embedding.labeled is None else outputs[embedding.labeled],
        "vectors": len(embedding.golden.vectors),
        "golden_source": embedding.golden.text,
        **golden_layout(inputs, outputs, len(embedding.golden.vectors)),
    }


def _class(embedding: Embedding, not_free: Collection[str]) -> str:
    name = embedding.options["class"]
    if name in not_free:
        raise UsageError(
            f"--option class={name}: the generated code has a {name} already",
            hint=f"choose another, as in class={name}Model",
        )
    return name or identifiers([embedding.symbol], "pascal", not_free, "model")[0]


def check_labels(labels: tuple[str, ...]) -> None:
    """Raise `InputRefused` for a label of several lines."""
    for label in labels:
        if _LINE_ENDS & set(label):
            raise InputRefused(
                f"the label {label!r} has several lines; a file of labels has one per line",
                hint="give a file of labels with --labels",
            )


def _check(port: Port, types: Mapping[str, str]) -> None:
    check_fixed(port, "an app")
    if port.dtype not in types:
        raise InputRefused(
            f"{port.name!r} is {port.dtype}, which the interpreter of this target does not have",
            hint=f"it has {listed(types)}",
        )


def _label_parts(labels: tuple[str, ...]) -> list[str]:
    """The labels, one per line, in as few literals as their length allows."""
    parts: list[str] = []
    for label in labels:
        if parts and len(parts[-1]) + len(label) < _LABELS_PER_LITERAL:
            parts[-1] += f"\n{label}"
        else:
            parts.append(label)
    return parts
