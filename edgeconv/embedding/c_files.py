"""The files that the targets in C and C++ have in common.

Each is written once, as C11 that is C++11 as well. The model and the golden vectors are arrays
of text where they are small, and `.incbin` or `#embed` of a file beside the source where they
are large: over 4 MiB as text gcc takes five seconds and half a gigabyte of memory, and over the
file a hundredth of a second.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeconv.data.preprocessing import describe
from edgeconv.embedding.accessors import LIMITS, identifiers, tensor_types
from edgeconv.embedding.interface import TargetOption
from edgeconv.embedding.plan import RESERVED_IN_C
from edgeconv.embedding.rendering import render
from edgeconv.errors import InputRefused
from edgeconv.tflite.flatbuffer import parse, text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edgeconv.embedding.interface import Embedding, Port

# From here on, text takes a compiler longer than a build should.
LARGE_BYTES = 1 << 20
C_OPTIONS = {
    "bytes": TargetOption(
        help="text: the model as an array of numbers; file: .incbin or #embed of a file; auto: "
        "text below 1 MiB",
        default="auto",
        choices=("auto", "text", "file"),
    ),
    "section": TargetOption(
        help="the linker section that the model's bytes go into; without it, that of constants",
        pattern=r"(?:[.A-Za-z_][A-Za-z0-9_.]*)?",
        example=".model_flash",
    ),
}
_ALIGNMENT = 16
_WORD = 0xFFFFFFFF
_TYPES = {
    "float16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class Blob:
    """Bytes that become an array in C: its name, and the file that has them, "" for text.

    `section` is the one that the linker finds them in, "" for that of constants.
    """

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
        """Their hash: the source has to change with its file, or no build compiles it again."""
        return hashlib.sha256(self.content).hexdigest()


def c_files(embedding: Embedding) -> dict[str, bytes | Path]:
    """SYMBOL.h and what it declares, by file name.

    SYMBOL_model.c has the model, SYMBOL.c the tables, SYMBOL_interface.c and .h compare another
    model with it, SYMBOL_self_test.c and .h compare a runtime with the golden vectors, which
    SYMBOL_golden.c has. Raises `InputRefused` for a
    model with a dimension that is open, other than the batch.
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
    """Whether a file of `c_files` is of the self-test: compared with, and no part of the model."""
    return file.startswith((f"{symbol}_self_test", f"{symbol}_golden"))


def _blob_files(
    embedding: Embedding, what: str, content: bytes, file: str
) -> dict[str, bytes | Path]:
    as_file = _is_file(embedding, len(content))
    section = embedding.options["section"] if what == "model" else ""
    blob = Blob(f"{embedding.symbol}_{what}", content, file if as_file else "", section)
    header = embedding.symbol if what == "model" else f"{embedding.symbol}_self_test"
    files: dict[str, bytes | Path] = {
        f"{blob.symbol}.c": render("c_blob.j2", blob=blob, header=header)
    }
    return {**files, file: content} if as_file else files


def _is_file(embedding: Embedding, size: int) -> bool:
    chosen = embedding.options["bytes"]
    return size >= LARGE_BYTES if chosen == "auto" else chosen == "file"


def c_values(embedding: Embedding) -> dict[str, Any]:
    """What the templates in C are made from."""
    for port in (*embedding.inputs, *embedding.outputs):
        _check_fixed(port)
    symbol = embedding.symbol
    inputs = _tensors(embedding.inputs, f"{symbol}_input", "input")
    outputs = _tensors(embedding.outputs, f"{symbol}_output", "output")
    for tensor, tolerance in zip(outputs, embedding.golden.tolerances, strict=True):
        tensor["steps"], tensor["absolute"] = tolerance.steps, tolerance.absolute
    return {
        "symbol": symbol,
        "SYMBOL": symbol.upper(),
        "name": embedding.name,
        "embedding": embedding,
        "sha256": embedding.sha256,
        **_sha256_values(embedding.sha256),
        "signature_key": embedding.signature.key,
        "tensor_types": tensor_types(),
        "operators": _resolved(embedding),
        "is_stateful": embedding.is_stateful,
        "has_half": any(port.dtype == "float16" for port in embedding.outputs),
        "size": embedding.size_bytes,
        "inputs": inputs,
        "outputs": outputs,
        "labels": embedding.labels,
        "labelled": None if embedding.labelled is None else outputs[embedding.labelled],
        "vectors": len(embedding.golden.vectors),
        "golden_source": embedding.golden.source,
        **golden_layout(inputs, outputs, len(embedding.golden.vectors)),
    }


def _resolved(embedding: Embedding) -> list[tuple[int, str]]:
    """The operators that the resolver of SYMBOL_micro.h has: codes, and names of custom ones."""
    if embedding.options.get("micro", "no") == "no":
        return []
    codes = parse(embedding.model.read_bytes(), where=str(embedding.model)).operatorCodes
    used = {(max(c.builtinCode, c.deprecatedBuiltinCode), text(c.customCode)) for c in codes}
    return sorted(used)


def _sha256_values(sha256: str) -> dict[str, Any]:
    """The expected hash and the constants of SHA-256, as words of C.

    The constants are the first 32 bits after the point of roots of the first primes (FIPS 180-4,
    sections 4.2.2 and 5.3.3).
    """
    primes = [n for n in range(2, 312) if all(n % d for d in range(2, math.isqrt(n) + 1))]
    cubes = [f"0x{_cube_root(prime << 96) & _WORD:08x}u" for prime in primes]
    rows = (", ".join(cubes[at : at + 6]) for at in range(0, len(cubes), 6))
    return {
        "sha256_bytes": [f"0x{byte:02x}" for byte in bytes.fromhex(sha256)],
        "sha256_start": [f"0x{math.isqrt(prime << 64) & _WORD:08x}u" for prime in primes[:8]],
        "sha256_constants": ",\n".join("        " + row for row in rows),
    }


def _cube_root(number: int) -> int:
    """The largest integer whose cube is at most `number`, by bisection."""
    low, high = 0, 1 << (number.bit_length() // 3 + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**3 <= number else (low, middle)
    return low


def _check_fixed(port: Port) -> None:
    if -1 in port.shape[1:]:
        raise InputRefused(
            f"{port.name!r} has the shape {list(port.shape)}, and firmware needs a fixed one",
            hint=f"convert with a fixed shape: edgeconv convert --shape {port.name}=1x...",
        )


def _tensors(ports: tuple[Port, ...], prefix: str, otherwise: str) -> list[dict[str, Any]]:
    given = [port.name for port in ports]
    plain = identifiers(given, "snake", RESERVED_IN_C, otherwise)
    # X_GRAPH_INDEX and X_NORMALIZE_SCALE are of X, not of what is called X_GRAPH or X_NORMALIZE.
    macros = {f"{name}_{part}" for name in plain for part in ("graph", "normalize")}
    names = identifiers(given, "snake", RESERVED_IN_C | macros, otherwise)
    return [
        {
            "port": port,
            "name": port.name,
            "id": f"{prefix}_{name}",
            "ID": f"{prefix}_{name}".upper(),
            "type": _TYPES[port.dtype],
            "dimensions": [abs(size) for size in port.shape],
            "limits": LIMITS.get(port.dtype) if port.scale is not None else None,
            "normalisation": normalisation(port),
            "preprocessing": describe({"": port.preprocessing}) if port.preprocessing else "",
        }
        for port, name in zip(ports, names, strict=True)
    ]


def normalisation(port: Port) -> dict[str, Any] | None:
    """The step of a preprocessing that computes with each value, None where there is none."""
    steps = port.preprocessing
    if steps is None or (steps.scale is None and not steps.mean and not steps.std):
        return None
    return {
        "scale": 1.0 if steps.scale is None else steps.scale,
        "mean": steps.mean or (0.0,),
        "std": steps.std or (1.0,),
    }


def golden_bytes(embedding: Embedding) -> bytes:
    """All vectors after one another; in each the inputs, then the outputs, each aligned."""
    return b"".join(
        part + bytes(-len(part) % _ALIGNMENT)
        for vector in embedding.golden.vectors
        for part in (*vector.inputs, *vector.outputs)
    )


def golden_layout(
    inputs: list[dict[str, Any]], outputs: list[dict[str, Any]], vectors: int
) -> Mapping[str, int]:
    """The place of each tensor in a vector, put into `inputs` and `outputs`, and all sizes."""
    place = 0
    for tensor in (*inputs, *outputs):
        tensor["offset"] = place
        place += -(-tensor["port"].bytes // _ALIGNMENT) * _ALIGNMENT
    first = outputs[0]["offset"] if outputs else place
    return {"stride": place, "outputs_at": first, "golden_size": place * vectors}
