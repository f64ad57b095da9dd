"""The files that the targets in C and C++ have in common.

They are C11 and C++11. Small models and golden vectors are arrays in text; large ones are files
next to the source, for `.incbin` or `#embed`. gcc compiles 4 MiB of text in five seconds with half
a gigabyte of memory, and the file in a hundredth of a second.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeconv.embedding.accessors import check_fixed, identifiers, render, tensor_values
from edgeconv.embedding.interface import Embedding, Port, TargetOption
from edgeconv.embedding.plan import RESERVED_IN_C
from edgeconv.model.tflite.flatbuffer import parse
from edgeconv.types.errors import InputRefused, UsageError
from edgeconv.types.words import listed

# From this size on, text slows the compiler down.
LARGE_BYTES = 1 << 20
C_OPTIONS = {
    "bytes": TargetOption(
        help="text: the model as an array of numbers; file: .incbin or #embed of a file; auto: "
        "text below 1 MiB",
        default="auto",
        choices=("auto", "text", "file"),
    ),
    "section": TargetOption(
        help="the linker section of the model's bytes; default: that of constants",
        pattern=r"(?:[.A-Za-z_][A-Za-z0-9_.]*)?",
        example=".model_flash",
    ),
}
_ALIGNMENT = 16
_TYPES = {
    "float16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class Blob:
    """Bytes that become an array in C: its name, its file, "" for text, and its linker section."""

    symbol: str
    content: bytes
    file: str
    section: str

    @property
    def size(self) -> int:
        """How many bytes."""
        return len(self.content)

    @property
    def macro(self) -> str:
        """The name of their number in C."""
        return f"{self.symbol}_size".upper()

    @property
    def sha256(self) -> str:
        """Their hash: builds compile the source again only when it changes with its file."""
        return hashlib.sha256(self.content).hexdigest()


def c_files(embedding: Embedding) -> dict[str, bytes | Path]:
    """SYMBOL.h and what it declares, by file name.

    SYMBOL_model.c has the model, SYMBOL.c the tables, SYMBOL_golden.c the golden vectors.
    SYMBOL_interface.c and .h say whether another model is accepted, SYMBOL_self_test.c and .h a
    runtime with the golden vectors. Raises `InputRefused` for an open dimension after the batch.
    """
    symbol = embedding.symbol
    values = c_values(embedding)
    golden = golden_bytes(embedding)
    files: dict[str, bytes | Path] = {
        f"{symbol}.h": render("c_header.j2", **values),
        f"{symbol}.c": render("c_tables.j2", **values),
        f"{symbol}_interface.h": render("c_interface_header.j2", **values),
        f"{symbol}_interface.c": render("c_interface.j2", **values),
        f"{symbol}_self_test.h": render("c_self_test_header.j2", **values),
        f"{symbol}_self_test.c": render("c_self_test.j2", **values),
    }
    model = embedding.model.read_bytes()
    files |= _blob_files(embedding, "model", model, f"{symbol}.tflite")
    files |= _blob_files(embedding, "golden", golden, f"{symbol}_golden.bin")
    return files


def is_of_self_test(file: str, symbol: str) -> bool:
    """Whether a file of `c_files` belongs to the self-test."""
    return file.startswith((f"{symbol}_self_test", f"{symbol}_golden"))


def _blob_files(
    embedding: Embedding, what: str, content: bytes, file: str
) -> dict[str, bytes | Path]:
    chosen = embedding.options["bytes"]
    as_file = len(content) >= LARGE_BYTES if chosen == "auto" else chosen == "file"
    section = embedding.options["section"] if what == "model" else ""
    blob = Blob(f"{embedding.symbol}_{what}", content, file if as_file else "", section)
    header = embedding.symbol if what == "model" else f"{embedding.symbol}_self_test"
    files: dict[str, bytes | Path] = {
        f"{blob.symbol}.c": render("c_blob.j2", blob=blob, header=header)
    }
    return {**files, file: content} if as_file else files


def c_values(embedding: Embedding) -> dict[str, Any]:
    """The values for the templates in C."""
    for port in (*embedding.inputs, *embedding.outputs):
        check_fixed(port, "firmware")
    symbol = embedding.symbol
    inputs, outputs = tensor_values(
        embedding, lambda names, side: _identifiers(names, f"{symbol}_{side}", side)
    )
    for tensor in (*inputs, *outputs):
        tensor["ID"], tensor["type"] = tensor["id"].upper(), _TYPES[tensor["port"].dtype]
    for tensor, tolerance in zip(outputs, embedding.golden.tolerances, strict=True):
        tensor["steps"], tensor["absolute"] = tolerance.steps, tolerance.absolute
    return {
        **common_values(embedding, inputs, outputs),
        "SYMBOL": symbol.upper(),
        "sha256": embedding.sha256,
        "signature_key": embedding.signature.key,
        "is_stateful": embedding.is_stateful,
        "has_half": any(port.dtype == "float16" for port in embedding.outputs),
        "size": embedding.size_bytes,
        "golden_runtime": embedding.golden.runtime,
    }


def _identifiers(model_names: Sequence[str], prefix: str, otherwise: str) -> list[str]:
    plain = identifiers(model_names, "snake", RESERVED_IN_C, otherwise)
    # X_GRAPH_INDEX and X_NORMALIZE_SCALE belong to X, not to a tensor X_GRAPH or X_NORMALIZE.
    macros = {f"{name}_{part}" for name in plain for part in ("graph", "normalize")}
    names = identifiers(model_names, "snake", RESERVED_IN_C | macros, otherwise)
    return [f"{prefix}_{name}" for name in names]


def golden_bytes(embedding: Embedding) -> bytes:
    """All vectors; in each the inputs, then the outputs, each aligned."""
    return b"".join(
        part + bytes(-len(part) % _ALIGNMENT)
        for vector in embedding.golden.vectors
        for part in (*vector.inputs, *vector.outputs)
    )


def common_values(
    embedding: Embedding, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]
) -> dict[str, Any]:
    """The values for the templates of every language; sets each tensor's `offset` in a vector."""
    offset = 0
    for tensor in (*inputs, *outputs):
        tensor["offset"] = offset
        offset += -(-tensor["port"].bytes // _ALIGNMENT) * _ALIGNMENT
    vectors = len(embedding.golden.vectors)
    return {
        "symbol": embedding.symbol,
        "name": embedding.name,
        "embedding": embedding,
        "inputs": inputs,
        "outputs": outputs,
        "labels": embedding.labels,
        "labeled": None if embedding.labeled is None else outputs[embedding.labeled],
        "vectors": vectors,
        "golden_source": embedding.golden.text,
        "stride": offset,
        "outputs_at": outputs[0]["offset"] if outputs else offset,
        "golden_size": offset * vectors,
    }


# Files of the targets that run a model in LiteRT's CompiledModel.


def litert_files(embedding: Embedding) -> dict[str, bytes]:
    """By file name: SYMBOL_litert.hpp and .cpp, which run the model from C++, and a self-test.

    Raises as `refuse_variables` does, and `InputRefused` for an empty name.
    """
    refuse_variables(embedding, "LiteRT's C interface")
    if not all(port.name for port in (*embedding.inputs, *embedding.outputs)):
        raise InputRefused(
            f"{embedding.name} has an input or output without a name, which LiteRT's C interface "
            "needs",
            hint="embed with --target c, for a runtime that uses indices; or export it with names",
        )
    symbol = embedding.symbol
    values = c_values(embedding)
    return {
        f"{symbol}_litert.hpp": render("litert_header.j2", **values),
        f"{symbol}_litert.cpp": render("litert_source.j2", **values),
        f"{symbol}_self_test_main.cpp": render("litert_main.j2", **values),
    }


def refuse_variables(embedding: Embedding, runtime: str) -> None:
    """Raise `InputRefused` for variable tensors.

    LiteRT 2.3 does not load them from C or JavaScript; its interpreter in Python does.
    """
    model = parse(embedding.model.read_bytes(), where=str(embedding.model))
    if any(tensor.isVariable for graph in model.subgraphs for tensor in graph.tensors):
        raise InputRefused(
            f"{embedding.name} has variable tensors, as fused recurrent operators do, and "
            f"{runtime} does not load it",
            hint="embed with --target c or python, for another runtime; or convert it unrolled",
        )


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
        **common_values(embedding, inputs, outputs),
        "class": _class(embedding, not_free),
        "sha256": hashlib.sha256(model).hexdigest(),
        "size": len(model),
        "signature": embedding.signature.key,
        "labels": _label_parts(embedding.labels),
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
