"""The target `cmake`: the model as C, a class that runs it in LiteRT, and a CMakeLists.txt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.embed.c_files import BYTES_OPTION, c_files, c_values
from edgeconv.embed.litert_files import litert_files
from edgeconv.embed.rendering import render

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edgeconv.embed.interface import Embedding

OPTIONS = BYTES_OPTION


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embed.interface`."""
    runner = litert_files(embedding)
    written = c_files(embedding)
    symbol = embedding.symbol
    blobs = {
        f"{symbol}_model.c": f"{symbol}.tflite",
        f"{symbol}_golden.c": f"{symbol}_golden.bin",
    }
    values = {
        **c_values(embedding),
        "sources": sorted(name for name in written if name.endswith(".c")),
        "blobs": [(source, blob) for source, blob in blobs.items() if blob in written],
    }
    return {**written, **runner, "CMakeLists.txt": render("cmake_lists.j2", **values)}
