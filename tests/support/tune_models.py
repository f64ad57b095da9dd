"""A small trained-like classifier as a float32 .tflite, and labeled samples for it."""

from pathlib import Path
from typing import Any

import numpy as np
from tiny_tflite import Graph, packed

Array = np.ndarray[Any, Any]
FEATURES, HIDDEN, CLASSES = 48, 96, 6


def two_layers(path: Path) -> Path:
    """scores = W2 tanh(W1 x), in LiteRT's operators: two dense layers with TANH between."""
    rng = np.random.default_rng(5)
    layers = {}
    for name, (rows, columns) in (("one", (HIDDEN, FEATURES)), ("two", (CLASSES, HIDDEN))):
        w = rng.normal(0, 1 / np.sqrt(columns), (rows, columns)).astype(np.float32)
        # Channels of very different weights, as training leaves them.
        layers[name] = w * np.geomspace(0.3, 3.0, rows).astype(np.float32)[:, None]
    return _dense_layers(path, layers)


def sensitive_first(path: Path) -> Path:
    """Three dense layers; with weights of 4 bits in the first one nothing is right any more.

    Half of its weights are 30 times larger than the others, for inputs that are 50 times smaller
    (`SENSITIVE_INPUTS`): 4 bits tell the others from zero no more, and 8 bits do.
    """
    rng = np.random.default_rng(7)
    first = rng.choice([-1.0, 1.0], (40, 16)) * np.repeat([10.0, 0.3], 8)
    layers = {"one": first.astype(np.float32)}
    for name, (rows, columns) in (("two", (96, 40)), ("three", (CLASSES, 96))):
        layers[name] = rng.normal(0, 1 / np.sqrt(columns), (rows, columns)).astype(np.float32)
    return _dense_layers(path, layers)


SENSITIVE_INPUTS = np.repeat([0.02, 1.0], 8).astype(np.float32)


def _dense_layers(path: Path, layers: dict[str, Array]) -> Path:
    """Dense layers with these weights, [outputs, inputs] each, and TANH between them."""
    graph = Graph()
    features = next(iter(layers.values())).shape[1]
    x = graph.tensor("x", (1, features), "float32", dynamic=True)
    scores = x
    for name, w in layers.items():
        rows = len(w)
        if name != next(iter(layers)):
            dense, scores = (
                scores,
                graph.tensor(f"{name}/tanh", (1, w.shape[1]), "float32", dynamic=True),
            )
            graph.operator("TANH", [dense], [scores])
        weights = graph.tensor(f"{name}/w", w.shape, "float32", data=w)
        bias = graph.tensor(f"{name}/b", (rows,), "float32", data=np.zeros(rows, np.float32))
        dense = graph.tensor(f"{name}/dense", (1, rows), "float32", dynamic=True)
        graph.operator("FULLY_CONNECTED", [scores, weights, bias], [dense])
        scores = dense
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
    scores = graph.computed("scores", (1, 400), "FULLY_CONNECTED", [x, w, bias], dynamic=True)
    signature = ("serving_default", ["x"], ["scores"])
    path.write_bytes(packed(graph.model([x], [scores], signature=signature)))
    return path


def samples(
    path: Path,
    model: Path,
    count: int,
    *,
    labels: bool = True,
    seed: int = 9,
    scale: Array | float = 1.0,
) -> str:
    """A SOURCE of random samples; the labels are what the model says, nine times in ten.

    `scale` is the standard deviation of each input.
    """
    from ai_edge_litert.interpreter import Interpreter

    rng = np.random.default_rng(seed)
    runner = Interpreter(model_content=model.read_bytes()).get_signature_runner()
    features = runner.get_input_details()["x"]["shape"][-1]
    x = rng.normal(0, scale, (count, features)).astype(np.float32)
    arrays = {"x": x}
    if labels:
        said = runner(x=x)["scores"].argmax(axis=1)
        wrong = rng.random(count) < 0.1
        arrays["labels"] = np.where(wrong, rng.integers(0, CLASSES, count), said)
    np.savez(path, **arrays)
    return str(path)
