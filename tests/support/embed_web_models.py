"""Tiny models that LiteRT.js takes: no open dimension; float32, int32 and uint8."""

from pathlib import Path
from typing import Any

import tiny_tflite
from embed_models import published
from tiny_tflite import Graph, float_model, packed

from edgeconv import embed
from edgeconv.types import Embedded


def uint8_model(
    image: str = "image", scores: str = "scores", key: str = "serving_default"
) -> bytes:
    """y = x + x on [1, 2, 2, 1] of uint8."""
    graph = Graph()
    x = graph.tensor("x", (1, 2, 2, 1), "uint8", scale=0.5, zero_point=128)
    y = graph.tensor("y", (1, 2, 2, 1), "uint8", scale=1.0, zero_point=100)
    graph.operator("ADD", [x, x], [y], version=2)
    return packed(graph.model([x], [y], signature=(key, [image], [scores])))


def fixed_float_model(**options: Any) -> bytes:
    """y = W x + b on [1, 4] of float32, without an open dimension."""
    model = float_model(**options)
    for tensor in model.subgraphs[0].tensors:
        tensor.shapeSignature = None
    return packed(model)


def three_inputs_model() -> bytes:
    return packed(tiny_tflite.three_inputs_model(counts=(2,)))


def variable_model() -> bytes:
    """A model with a variable tensor, which LiteRT's compiled models do not load."""
    graph = Graph()
    x, y = graph.tensor("x", (1, 2), "float32"), graph.tensor("y", (1, 2), "float32")
    graph.tensors[graph.tensor("state", (1, 2), "float32")].isVariable = True
    graph.operator("RELU", [x], [y])
    return packed(graph.model([x], [y], signature=("serve", ["x"], ["y"])))


def web(
    tmp_path: Path, content: bytes, *, symbol: str = "gesture", changes: Any = None, **options: Any
) -> tuple[Path, Embedded]:
    """The directory that the target `web` was written to, and what was."""
    model = published(tmp_path / "published", content, **(changes or {}))
    embedded = embed(model, "web", tmp_path / "web", symbol=symbol, **options)
    return tmp_path / "web", embedded
