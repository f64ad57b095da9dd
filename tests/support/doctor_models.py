"""Classifiers that are right with one preprocessing only, as .tflite, and images for them."""

from pathlib import Path
from typing import Any

import numpy as np
from tiny_tflite import Graph, packed

from edgeconv.data.preprocess import preprocess
from edgeconv.data.preprocessing import parse_preprocessing

Array = np.ndarray[Any, Any]
CLASSES, SIDE, EACH = 12, 3, 20
NAME = "image"


def images(*, channels: int = 3, each: int = EACH) -> tuple[Array, Array]:
    """Noisy copies of one image a class, uint8 (n, 3, 3, channels), and the labels."""
    rng = np.random.default_rng(11)
    labels = np.tile(np.arange(CLASSES), each)
    noise = rng.normal(0, 10, (len(labels), SIDE, SIDE, channels))
    pixels = _prototypes(channels)[labels] + noise
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8), labels


def classifier(path: Path, steps: str, *, channels: int = 3, background: int = 0) -> Path:
    """The nearest prototype by squared distance, in values that `steps` make of pixels.

    `background` classes that are never right come first.
    """
    prototypes = _prototypes(channels).astype(np.float32)
    for each in parse_preprocessing(steps).values():
        prototypes = preprocess(prototypes, each, "prototypes").astype(np.float32)
    flat = prototypes.reshape(CLASSES, -1).astype(np.float64)
    weights = np.concatenate([np.zeros((background, flat.shape[1])), 2 * flat])
    biases = np.concatenate([np.full(background, -1e9), -np.square(flat).sum(axis=1)])
    return linear(path, prototypes.shape[1:], weights, biases)


def linear(path: Path, sample: tuple[int, ...], weights: Array, biases: Array) -> Path:
    """scores = weights @ sample + biases, written to `path`."""
    graph = Graph()
    x = graph.tensor(NAME, (1, *sample), "float32", dynamic=True)
    w = graph.tensor("w", weights.shape, "float32", data=weights.astype(np.float32))
    b = graph.tensor("b", biases.shape, "float32", data=biases.astype(np.float32))
    y = graph.computed("scores", (1, len(biases)), "FULLY_CONNECTED", [x, w, b])
    signature = ("serving_default", [NAME], ["scores"])
    path.write_bytes(packed(graph.model([x], [y], signature=signature)))
    return path


def stored(path: Path, pixels: Array, labels: Array | None) -> str:
    """A SOURCE with the pixels for the classifiers' input."""
    arrays = {NAME: pixels} if labels is None else {NAME: pixels, "y": labels}
    np.savez(path, **arrays)
    return f"{path}?labels=y" if labels is not None else str(path)


def _prototypes(channels: int) -> Array:
    """A plain colour a class, (CLASSES, 3, 3, channels): some are inside of the others' hull,

    and so are the nearest in the right scale only. Reddish, and blue in low contrast, so that
    mean and deviation differ by channel.
    """
    middle, spread = ((170, 110, 70), (80, 90, 50)) if channels == 3 else ((128,), (110,))
    rng = np.random.default_rng(3)
    unit = rng.uniform(-1, 1, (CLASSES, 1, 1, channels))
    colours = np.asarray(middle) + unit * np.asarray(spread)
    return np.broadcast_to(colours, (CLASSES, SIDE, SIDE, channels))
