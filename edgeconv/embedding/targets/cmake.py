"""The target `cmake`: the model as C, a class that runs it in LiteRT, and a CMakeLists.txt."""

from collections.abc import Mapping
from pathlib import Path

from edgeconv.embedding.accessors import render
from edgeconv.embedding.c_files import C_OPTIONS, c_files, c_values, is_of_self_test, litert_files
from edgeconv.embedding.interface import Embedding, TargetOption

OPTIONS = {
    **C_OPTIONS,
    "namespace": TargetOption(
        help="the namespace of the targets, NAMESPACE::SYMBOL; default: the symbol",
        pattern="(?:[A-Za-z][A-Za-z0-9_]*)?",
        example="acme",
    ),
}


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embedding.interface`."""
    runner = litert_files(embedding)
    written = c_files(embedding)
    symbol = embedding.symbol
    blobs = {f"{symbol}_model.c": f"{symbol}.tflite", f"{symbol}_golden.c": f"{symbol}_golden.bin"}
    sources = sorted(name for name in written if name.endswith(".c"))
    values = {
        **c_values(embedding),
        "namespace": embedding.options["namespace"] or symbol,
        "sources": [name for name in sources if not is_of_self_test(name, symbol)],
        "test_sources": [name for name in sources if is_of_self_test(name, symbol)],
        "headers": sorted(name for name in written if name.endswith(".h")),
        "blobs": [(source, blob) for source, blob in blobs.items() if blob in written],
    }
    return {**written, **runner, "CMakeLists.txt": render("cmake_lists.j2", **values)}
