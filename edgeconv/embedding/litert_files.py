"""Files of the targets that run a model in LiteRT's CompiledModel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.embedding.c_files import c_values
from edgeconv.embedding.rendering import render
from edgeconv.errors import InputRefused
from edgeconv.tflite.flatbuffer import parse

if TYPE_CHECKING:
    from edgeconv.embedding.interface import Embedding


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
