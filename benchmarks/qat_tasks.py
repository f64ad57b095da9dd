"""What `benchmarks.qat` trains: float models, their training and their test samples."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import edgeconv
from edgeconv.plugins import baseline_model
from edgeconv.types import Distribution, Training

Array = np.ndarray[Any, Any]

_PEERS = Path(__file__).parent / "peers"
# Of MNIST, to be done in minutes.
_MOST_SAMPLES = 20_000


@dataclass(frozen=True)
class Task:
    """A float model in a file, samples as .npz, and what is asked of QAT.

    `largest_drop`: how much less than the float model's the accuracy may be. `least`: the
    least accuracy, where that is what is asked.
    """

    name: str
    model: Path
    train: Path
    test: Path
    largest_drop: float = 1.0
    least: float = 0.0


def tasks(data: Path) -> dict[str, Callable[[Path], Task]]:
    """How each task is made: called with a directory for its files."""
    mnist, digits = data / "mnist" / "mnist.npz", data / "audio_fsdd" / "fsdd.npz"
    gesture_data = data / "hand_gesture"
    return {
        "point_history": lambda place: gestures(gesture_data, "point_history", place, least=0.966),
        "keypoint": lambda place: gestures(gesture_data, "keypoint", place),
        "mnist_cnn": lambda place: baseline("mnist_cnn", mnist, place),
        "spoken_digits": lambda place: baseline("spoken_digits", digits, place),
        "bad_ranges": lambda place: bad_ranges(mnist, place),
    }


def gestures(data: Path, name: str, place: Path, *, least: float = 0.0) -> Task:
    """A trained model of the hand gesture repository, with its authors' split of the rows."""
    rows = np.loadtxt(data / f"{name}.csv", delimiter=",")
    labels, values = rows[:, 0].astype(np.int64), rows[:, 1:].astype(np.float32)
    order = np.random.RandomState(42).permutation(len(rows))
    parts = dict(zip(("test", "train"), np.split(order, [-(-len(rows) // 4)]), strict=True))
    files = {
        part: stored(place / f"{part}.npz", "input_1", values[chosen], labels[chosen])
        for part, chosen in parts.items()
    }
    return Task(name, data / f"{name}_classifier.hdf5", files["train"], files["test"], least=least)


def baseline(name: str, file: Path, place: Path) -> Task:
    """A baseline model of edgeconv, trained by it in a single process."""
    train, test = samples_of(name, file, place)
    training = Training(
        module=name, data=str(file), seed=0, distribution=Distribution(strategy="none")
    )
    record = edgeconv.train(training=training, out=str(place / "trained"))
    assert record is not None, "its only process is started here"
    return Task(name, Path(record.keras_file), train, test, largest_drop=0.002)


def bad_ranges(file: Path, place: Path) -> Task:
    """The CNN of `peers/make_bad_ranges.py`."""
    train, test = samples_of("mnist_cnn", file, place)
    model = place / "bad_ranges.keras"
    script = _PEERS / "make_bad_ranges.py"
    subprocess.run([sys.executable, script, train, model], check=True, capture_output=True)
    return Task("bad_ranges", model, train, test, largest_drop=0.01)


def samples_of(name: str, file: Path, place: Path) -> tuple[Path, Path]:
    """Files of the training samples of a baseline model, or some of them, and its test samples."""
    data = baseline_model(name).data(str(file))
    chosen = np.random.default_rng(1).permutation(len(data.y_train))[:_MOST_SAMPLES]
    ((key, x_train),) = data.x_train.items()
    train = stored(place / "train.npz", key, x_train[chosen], data.y_train[chosen])
    return train, stored(place / "test.npz", key, data.x_test[key], data.y_test)


def stored(path: Path, name: str, inputs: Array, labels: Array) -> Path:
    """The path, now with the inputs, called `name`, and the labels."""
    arrays: dict[str, Array] = {name: inputs, "labels": labels.astype(np.int64)}
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path
