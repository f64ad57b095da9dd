"""A small trained-like classifier as a float32 .tflite, and labeled samples for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tiny_tflite import Graph, packed

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, Any]
FEATURES, HIDDEN, CLASSES = 48, 96, 6


def two_layers(path: Path) -> Path:
    """scores = W2 tanh(W1 x), in LiteRT's operators: two dense layers with TANH between."""
    rng = np.random.default_rng(5)
    graph = Graph()
    x = graph.tensor("x", (1, FEATURES), "float32", dynamic=True)
    scores = x
    for name, (rows, columns) in (("one", (HIDDEN, FEATURES)), ("two", (CLASSES, HIDDEN))):
        w = rng.normal(0, 1 / np.sqrt(columns), (rows, columns)).astype(np.float32)
        # Channels of very different weights, as training leaves them.
        w *= np.geomspace(0.3, 3.0, rows).astype(np.float32)[:, None]
        weights = graph.tensor(f"{name}/w", (rows, columns), "float32", data=w)
        bias = graph.tensor(f"{name}/b", (rows,), "float32", data=np.zeros(rows, np.float32))
        dense = graph.tensor(f"{name}/dense", (1, rows), "float32", dynamic=True)
        graph.operator("FULLY_CONNECTED", [scores, weights, bias], [dense])
        scores = dense
        if name == "one":
            scores = graph.tensor("one/tanh", (1, rows), "float32", dynamic=True)
            graph.operator("TANH", [dense], [scores])
    signature = ("serving_default", ["x"], ["scores"])
    path.write_bytes(packed(graph.model([x], [scores], signature=signature)))
    return path


def fine_directions(path: Path) -> Path:
    """400 classes by the angle of a point: 4 bits of weights tell fewer than 200 directions apart.

    Whatever rounds the weights, most classes are never the answer.
    """
    angles = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    weights = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    graph = Graph()
    x = graph.tensor("x", (1, 2), "float32", dynamic=True)
    w = graph.tensor("w", weights.shape, "float32", data=weights)
    bias = graph.tensor("b", (400,), "float32", data=np.zeros(400, np.float32))
    scores = graph.tensor("scores", (1, 400), "float32", dynamic=True)
    graph.operator("FULLY_CONNECTED", [x, w, bias], [scores])
    signature = ("serving_default", ["x"], ["scores"])
    path.write_bytes(packed(graph.model([x], [scores], signature=signature)))
    return path


def samples(path: Path, model: Path, count: int, *, labels: bool = True, seed: int = 9) -> str:
    """A SOURCE of random samples; the labels are what the model says, nine times in ten."""
    from ai_edge_litert.interpreter import Interpreter

    rng = np.random.default_rng(seed)
    runner = Interpreter(model_content=model.read_bytes()).get_signature_runner()
    features = runner.get_input_details()["x"]["shape"][-1]
    x = rng.normal(0, 1, (count, features)).astype(np.float32)
    arrays = {"x": x}
    if labels:
        said = runner(x=x)["scores"].argmax(axis=1)
        wrong = rng.random(count) < 0.1
        arrays["labels"] = np.where(wrong, rng.integers(0, CLASSES, count), said)
    np.savez(path, **arrays)
    return str(path)
