"""Calibration samples with the mistakes that people make, and samples without any."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

RIGHT = "right"
# The float model, in tables of what its int8 files are worth.
TRAINED = "the trained model"
# Those that issue 18 names, and two that come next.
NAMED = ("0 to 255", "scaled twice", "constant", "zeros", "inputs exchanged")


def faulty(arrays: Mapping[str, Array], labels: Array) -> dict[str, Arrays]:
    """Sets of float samples by the mistake in them, and right ones with RIGHT before their names.

    Images are of 0 to 1, as a model was trained on. `labels` are class numbers (samples,).
    """
    name, x = next(iter(arrays.items()))
    random = np.random.default_rng(3)
    draws = [random.permutation(len(x))[:count] for count in (20, 20, 20, 32, 64, 200)]
    sets = {
        f"{RIGHT} {len(draw)} #{index}": {n: a[draw] for n, a in arrays.items()}
        for index, draw in enumerate(draws)
    }
    of_class = labels == labels[0]
    sets["one class"] = {n: a[of_class] for n, a in arrays.items()}
    if len(arrays) == 2:
        one, two = arrays
        sets["inputs exchanged"] = {one: arrays[two], two: arrays[one]}
    faults = _OF_IMAGES if x.ndim == 4 else _OF_SIGNALS
    for fault, change in (_OF_ALL | faults).items():
        sets[fault] = {**arrays, name: np.ascontiguousarray(change(x), np.float32)}
    return sets


def _noise(x: Array) -> Array:
    return np.random.default_rng(5).normal(0, 1, x.shape)


def _noise_of_scale(x: Array) -> Array:
    return np.random.default_rng(5).normal(x.mean(), x.std(), x.shape)


def _mostly_missing(x: Array) -> Array:
    """Nine in ten were NaN, which somebody replaced."""
    kept = np.random.default_rng(6).random(len(x)) > 0.9
    return np.where(kept.reshape(-1, *[1] * (x.ndim - 1)), x, 0)


def _shuffled(x: Array) -> Array:
    flat = x.reshape(len(x), -1)
    return flat[:, np.random.default_rng(7).permutation(flat.shape[1])].reshape(x.shape)


_OF_ALL: dict[str, Callable[[Array], Array]] = {
    "0 to 255": lambda x: x * 255,
    "scaled twice": lambda x: x / 255,
    "zeros": np.zeros_like,
    "constant": lambda x: np.full_like(x, x.mean()),
    "every sample the same": lambda x: np.repeat(x[:1], len(x), axis=0),
    "three samples": lambda x: x[np.arange(len(x)) % 3],
    "normal noise": _noise,
    "noise of their scale": _noise_of_scale,
    "missing values as 0": _mostly_missing,
    "values shuffled": _shuffled,
}
_OF_IMAGES: dict[str, Callable[[Array], Array]] = {
    "-1 to 1": lambda x: 2 * x - 1,
    "x/127.5-1 of 0 to 1": lambda x: x / 127.5 - 1,
    "integers": np.trunc,
    "ImageNet's mean and deviation": lambda x: (x - 0.45) / 0.225,
    "an eighth as bright": lambda x: x / 8,
    "negative": lambda x: 1 - x,
    "blue for red": lambda x: x[..., ::-1],
    "turned": lambda x: x.swapaxes(1, 2),
}
_OF_SIGNALS: dict[str, Callable[[Array], Array]] = {
    "counts of 16 bits": lambda x: x * 32768,
    "standardized": lambda x: (x - x.mean(axis=(0, 1))) / x.std(axis=(0, 1)),
    "another unit": lambda x: x / 9.81,
    "negative": lambda x: -x,
    "exponential for logarithm": np.exp,
}
