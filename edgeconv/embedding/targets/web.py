"""The target `web`: an ES module for LiteRT.js, its types, and a page to test it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from edgeconv.embedding.accessors import identifiers, render, tensor_values
from edgeconv.embedding.c_files import common_values, golden_bytes, refuse_variables
from edgeconv.embedding.interface import Embedding, TargetOption
from edgeconv.plugins import runtime_module
from edgeconv.runtimes.interface import Model

OPTIONS = {
    "packages": TargetOption(
        help="where the test page finds @litertjs/core, a path or URL that ends in a slash",
        default="./node_modules/",
        # What a browser takes as the address of an import map, and cannot mistake for a package.
        pattern=r"(?:\.{0,2}/|https?://)[!-~]*/|\.{0,2}/",
        example="../node_modules/",
    )
}
_ARRAYS = {"float32": "Float32Array", "int32": "Int32Array", "uint8": "Uint8Array"}


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embedding.interface`.

    Raises `InputRefused` for an open dimension, a type that LiteRT.js lacks, and variable tensors.
    """
    runtime_module("web").check_signature(Model(file=embedding.model), embedding.signature)
    refuse_variables(embedding, "LiteRT.js")
    symbol = embedding.symbol
    values = _values(embedding)
    return {
        f"{symbol}.tflite": embedding.model,
        f"{symbol}.js": render("web_module.j2", **values),
        f"{symbol}.d.ts": render("web_types.j2", **values),
        f"{symbol}_golden.bin": golden_bytes(embedding),
        f"{symbol}_self_test.js": render("web_self_test.j2", **values),
        f"{symbol}_self_test.d.ts": render("web_self_test_types.j2", **values),
        f"{symbol}_self_test.html": render("web_page.j2", **values),
        "package.json": render("web_package.j2", **values),
    }


def notes(embedding: Embedding) -> tuple[str, ...]:
    """See `edgeconv.embedding.interface`."""
    version = runtime_module("web").VERSION
    page = f"{embedding.symbol}_self_test.html"
    return (
        f"to test it: npm install in the directory (LiteRT.js {version}), serve it, and "
        f"open {page} from localhost or by https",
    )


def _values(embedding: Embedding) -> dict[str, Any]:
    """The values for the templates."""
    inputs, outputs = tensor_values(
        embedding, lambda names, side: identifiers(names, "camel", (), side)
    )
    for tensor in (*inputs, *outputs):
        steps = tensor["port"].preprocessing
        tensor["array"] = _ARRAYS[tensor["port"].dtype]
        tensor["steps"] = msgspec.to_builtins(steps) if steps else None
    return {
        **common_values(embedding, inputs, outputs),
        "litertjs": runtime_module("web").VERSION,
        "packages": embedding.options["packages"],
    }
