"""Samples drawn so that they differ from each other as real ones do; numpy alone.

White noise would not do: a network with random weights averages it away, and gives every
sample the same answer.
"""

from pathlib import Path

import numpy as np

COUNT = 24
TINY_COUNT = 48


def images(count: int, height: int, width: int, channels: int = 3, *, seed: int = 1) -> np.ndarray:
    """Soft blobs that differ in colour, contrast and texture: float32 (n, h, w, c) in 0..1."""
    rng = np.random.default_rng(seed)
    coarse = _stretched(rng.standard_normal((count, 4, 4, channels)), height, width)
    fine = _stretched(rng.standard_normal((count, 12, 12, channels)), height, width)
    contrast = rng.uniform(0.08, 0.3, (count, 1, 1, 1))
    colour = rng.uniform(0.25, 0.75, (count, 1, 1, channels))
    texture = rng.uniform(0.2, 1.2, (count, 1, 1, 1))
    return np.clip(colour + contrast * (coarse + texture * fine), 0, 1).astype(np.float32)


def videos(count: int, frames: int, height: int, width: int, channels: int = 1) -> np.ndarray:
    """Blobs that drift to the side: float32 (n, frames, h, w, c) in 0..1."""
    still = images(count, height, width, channels, seed=2)
    speed = np.random.default_rng(3).integers(-2, 3, count)
    moved = [
        np.stack([np.roll(image, step * frame, axis=1) for frame in range(frames)])
        for image, step in zip(still, speed, strict=True)
    ]
    return np.stack(moved)


def series(count: int, steps: int, features: int, *, seed: int = 4) -> np.ndarray:
    """Waves of different pitch, height and level: float32 (n, steps, features) in about ±2."""
    rng = np.random.default_rng(seed)
    pitch, phase = (rng.uniform(low, high, (count, 1, features)) for low, high in ((1, 6), (0, 6)))
    height, level = rng.uniform(0.2, 1.2, (count, 1, 1)), rng.normal(0, 0.4, (count, 1, features))
    time = np.linspace(0, 3, steps)[None, :, None]
    noise = 0.05 * rng.standard_normal((count, steps, features))
    return (level + height * np.sin(pitch * time + phase) + noise).astype(np.float32)


def rows(count: int, features: int, *, seed: int = 5) -> np.ndarray:
    """Correlated columns of different scale: float32 (n, features) in about ±3."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((count, 4)) @ rng.standard_normal((4, features))
    return (0.4 * factors + 0.3 * rng.standard_normal((count, features))).astype(np.float32)


def tokens(count: int, length: int, vocabulary: int, *, seed: int = 6) -> np.ndarray:
    """Sentences that each keep to a part of the vocabulary: int32 (n, length), 0 for padding."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(1, vocabulary - vocabulary // 4, (count, 1))
    words = topic + rng.integers(0, vocabulary // 4, (count, length))
    used = rng.integers(length // 2, length + 1, (count, 1))
    return np.where(np.arange(length) < used, words, 0).astype(np.int32)


def keep(directory: Path, name: str = "calibration", /, **arrays: np.ndarray) -> None:
    """Write the samples, each array under its input's name, where the table looks for them."""
    np.savez(directory / f"{name}.npz", **arrays)


def _stretched(values: np.ndarray, height: int, width: int) -> np.ndarray:
    """(n, a, b, c) to (n, height, width, c), linear between the points."""
    down, across = _between(values.shape[1], height), _between(values.shape[2], width)
    return np.asarray(np.einsum("ya,nabc,xb->nyxc", down, values, across, optimize=True))


def _between(points: int, length: int) -> np.ndarray:
    where = np.linspace(0, points - 1, length)
    return np.stack([np.interp(where, np.arange(points), row) for row in np.eye(points)], axis=1)
