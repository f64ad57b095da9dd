"""Data sets of a few samples, in the files that the baseline models read."""

from pathlib import Path

import numpy as np
from edgeconv.models import bert_mlm, cifar_mobilenet, mnist_cnn, spoken_digits

TRAIN, TEST = 80, 20
_CLASSES = 10


def write_small_data(name: str, directory: Path) -> Path | None:
    """The path for `--data` of a baseline model; None where it brings its samples.

    Random, with at least `TRAIN` samples to train on and `TEST` to test with.
    """
    random = np.random.default_rng(0)
    if name == "mnist_cnn":
        side = mnist_cnn.SIDE
        return _images(directory / "mnist.npz", (side, side), random)
    if name == "cifar_mobilenet":
        return _images(directory / "cifar.npz", cifar_mobilenet.SHAPE, random)
    if name == "spoken_digits":
        return _recordings(directory / "digits.npz", random)
    if name == "bert_mlm":
        words = [f"word{number}" for number in range(200)]
        for file, count in ((bert_mlm.TRAIN_FILE, TRAIN), (bert_mlm.TEST_FILE, TEST)):
            text = " ".join(random.choice(words, count * bert_mlm.LENGTH))
            (directory / file).write_text(text, encoding="utf-8")
        return directory
    return None


def _images(path: Path, shape: tuple[int, ...], random: np.random.Generator) -> Path:
    arrays = {}
    for part, count in (("train", TRAIN), ("test", TEST)):
        arrays[f"x_{part}"] = random.integers(0, 256, (count, *shape), np.uint8)
        arrays[f"y_{part}"] = np.arange(count) % _CLASSES
    np.savez(path, **arrays)
    return path


def _recordings(path: Path, random: np.random.Generator) -> Path:
    """Of a tenth of a second; the first ones of each digit are for testing."""
    count, length = TRAIN + TEST, spoken_digits.SAMPLE_RATE_HZ // 10
    labels, index = np.arange(count) % _CLASSES, np.arange(count) // _CLASSES
    # Two of ten are of the upstream's part for testing.
    index = np.where(index < TEST // _CLASSES, index, index + spoken_digits.TEST_RECORDINGS)
    np.savez(
        path,
        samples=random.integers(-(2**15), 2**15, count * length).astype(np.int16),
        offsets=np.arange(count + 1) * length,
        labels=labels,
        speakers=np.array(["one"] * count),
        index=index,
    )
    return path
