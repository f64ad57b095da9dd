"""The target `python`: a package for a small computer, with numpy and one of two runtimes."""

import keyword
import sys
from collections.abc import Mapping
from pathlib import Path

from edgeconv.embedding.accessors import identifiers, render, tensor_values
from edgeconv.embedding.c_files import common_values, golden_bytes
from edgeconv.embedding.interface import Embedding, TargetOption
from edgeconv.types.errors import UsageError

OPTIONS: Mapping[str, TargetOption] = {}
# A field of a named tuple cannot begin with an underscore, or be one of its methods.
# The generated code calls `enumerate`.
_RESERVED = frozenset({*keyword.kwlist, *keyword.softkwlist, "self", "count", "index", "enumerate"})
# Modules that the package would hide, or imports.
_TAKEN = sys.stdlib_module_names | {*("numpy", "ai_edge_litert", "tflite_runtime", "test", "tests")}


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embedding.interface`."""
    symbol = embedding.symbol
    if keyword.iskeyword(symbol) or symbol in _TAKEN:
        raise UsageError(
            f"symbol {symbol!r} cannot be the name of the package", hint=f"--symbol {symbol}_model"
        )
    inputs, outputs = tensor_values(
        embedding, lambda names, side: identifiers(names, "snake", _RESERVED, side)
    )
    values = {**common_values(embedding, inputs, outputs), "labeled": embedding.labeled}
    return {
        "pyproject.toml": render("python_project.j2", **values),
        f"{symbol}/__init__.py": render("python_init.j2", **values),
        f"{symbol}/__main__.py": render("python_main.j2", **values),
        f"{symbol}/_model.py": render("python_model.j2", **values),
        f"{symbol}/_self_test.py": render("python_self_test.j2", **values),
        f"{symbol}/model.tflite": embedding.model,
        f"{symbol}/golden.bin": golden_bytes(embedding),
    }
