"""The target `bazel`: the model as C in a module for Bazel, with a rule that checks its files."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from edgeconv.embedding.accessors import render
from edgeconv.embedding.c_files import C_OPTIONS, c_files, litert_files
from edgeconv.embedding.interface import Embedding, yes_or_no
from edgeconv.embedding.micro import MICRO_OPTION, micro_files

OPTIONS = {
    **C_OPTIONS,
    "micro": yes_or_no(
        "yes: also the resolver and arena for TensorFlow Lite for Microcontrollers", "no"
    ),
    "golden": MICRO_OPTION["golden"],
    "module": yes_or_no("no: a package for a project's own tree, without MODULE.bazel"),
}


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embedding.interface`."""
    symbol = embedding.symbol
    model = f"{symbol}.tflite"
    sources: dict[str, bytes | Path] = {
        **c_files(embedding),
        **litert_files(embedding),
        **micro_files(embedding),
    }
    hashes = {name: _sha256(content) for name, content in sources.items() if name != model}
    hashes[model] = embedding.sha256
    module = symbol.lower().strip("_")
    rule = {
        "symbol": symbol,
        "module": module,
        "flag": f"--@{module}//:litert" if _is_module(embedding) else "--//PACKAGE:litert",
        "name": embedding.name,
        "hashes": sorted(hashes.items()),
    }
    return {
        **sources,
        model: embedding.model,
        "edgeconv.bzl": render("bazel_rules.j2"),
        "BUILD.bazel": render("bazel_build.j2", **rule),
        **({"MODULE.bazel": render("bazel_module.j2", **rule)} if _is_module(embedding) else {}),
    }


def _is_module(embedding: Embedding) -> bool:
    return embedding.options["module"] == "yes"


def _sha256(content: bytes | Path) -> str:
    data = content if isinstance(content, bytes) else content.read_bytes()
    return hashlib.sha256(data).hexdigest()
