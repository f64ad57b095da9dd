"""Every strategy, both loops and every baseline model train in the sandbox, and a user's do."""

import itertools
import math
from contextlib import nullcontext
from pathlib import Path

import msgspec
import numpy as np
import pytest
from edgeconv.models import bert_mlm, cifar_mobilenet, mnist_cnn, spoken_digits
from forking import forked_children
from training_modules import normalized

import edgeconv
from edgeconv.plugins import BASELINE_MODELS
from edgeconv.system.processes import sandbox
from edgeconv.types import Distribution, Training, TrainingRecord
from edgeconv.types.errors import UsageError

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


STRATEGIES = {
    "none": {},
    "mirrored": {},
    "central-storage": {},
    "multiworker": {"workers": 2},
    "parameter-server": {"workers": 2},
}
# Modules of a user's, by the Keras that they are built with.
USERS = ("keras", "tf_keras")
OF_KERAS_3 = ("keras", "bert_mlm")
# Under these, Keras 3 trains with the custom loop only.
OF_SEVERAL_PROCESSES = ("multiworker", "parameter-server")
NAMES = (*USERS, *BASELINE_MODELS)
LOOPS = ("fit", "custom")
# What each run trains: Keras 3 on two workers.
QUICK = [("multiworker", "fit", "keras")]
# Each two of a strategy, a loop and a model are together in some cell.
CELLS = [
    (strategy, loop, name)
    for (row, strategy), (column, loop), (number, name) in itertools.product(
        *map(enumerate, (STRATEGIES, LOOPS, NAMES))
    )
    if (row + column + number) % 2 == 0 or (strategy, loop, name) in QUICK
]


def started(cell: tuple[str, str, str]) -> object:
    """Children as those of users, but in the quick cells, which are confined as well."""
    return nullcontext() if cell in QUICK else forked_children(False)


def train(strategy: str, loop: str, name: str, directory: Path) -> tuple[TrainingRecord, list[str]]:
    """One epoch of two steps; the record, and what was reported."""
    data = write_small_data(name, directory)
    training = Training(
        module=normalized(directory, name) if name in USERS else name,
        data=str(data) if data else None,
        loop=loop,
        epochs=1,
        steps_per_epoch=2,
        global_batch=16,
        distribution=Distribution(strategy=strategy, **STRATEGIES[strategy]),
    )
    lines: list[str] = []
    record = edgeconv.train(training=training, out=str(directory / "out"), on_progress=lines.append)
    assert record is not None
    return record, lines


@pytest.mark.parametrize(
    ("strategy", "loop", "name"),
    [
        pytest.param(*cell, marks=() if cell in QUICK else pytest.mark.slow, id="-".join(cell))
        for cell in CELLS
    ],
)
def test_it_trains_in_the_sandbox(strategy, loop, name, tmp_path):
    if not sandbox.available().is_whole:
        pytest.skip(f"no sandbox: {sandbox.available()}")
    if name == "bert_mlm":
        pytest.importorskip("keras_hub", reason="edgeconv[bert] is not installed")
    with started((strategy, loop, name)), sandbox.using("required"):
        if name in OF_KERAS_3 and strategy == "central-storage":
            with pytest.raises(UsageError, match="Keras 3 does not train under"):
                train(strategy, loop, name, tmp_path)
            assert not (tmp_path / "out").exists()
            return
        record, lines = train(strategy, loop, name, tmp_path)
    replaced = name in OF_KERAS_3 and strategy in OF_SEVERAL_PROCESSES and loop == "fit"
    assert record.loop == ("custom" if replaced else loop)
    told = [line for line in lines if "training with the custom loop" in line]
    assert len(told) == replaced
    assert [epoch.samples for epoch in record.epochs] == [32]
    assert all(map(math.isfinite, record.epochs[0].metrics.values()))
    assert all(map(math.isfinite, record.test_metrics.values()))
    assert len(record.test_metrics) == 2
    if name != "digits_cnn":
        assert record.train_samples >= TRAIN
    kept = Path(record.saved_model).with_suffix(".training.json")
    assert msgspec.json.decode(kept.read_bytes(), type=TrainingRecord) == record
    assert Path(record.keras_file).stat().st_size > 1000
