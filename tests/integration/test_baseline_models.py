"""The baseline models on their real data: they learn, and what they become as .tflite."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from edge_models import Lite, only
from forking import output_of
from places import SHARED, SUPPORT

from edgeconv import convert
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import Conversion

WHOLE = 10**9


class Short(NamedTuple):
    """A training, and the metric it has to reach on the test samples."""

    name: str
    place: str
    samples: int
    epochs: int
    least: float
    # Operators without an integer version.
    float_operators: tuple[str, ...] = ()


# Each starts at chance, which is .1 (for the words: 1 in 4,096), and is tested on 500 samples at
# most, a standard error of .01 and less.
QUICK = (Short("mnist_cnn", "mnist/mnist.npz", 2560, 1, 0.7),)
SLOW = (
    Short("mnist_cnn", "mnist/mnist.npz", WHOLE, 3, 0.965),
    Short("spoken_digits", "audio_fsdd/fsdd.npz", WHOLE, 20, 0.97),
)
LONG = (
    Short("cifar_mobilenet", "cifar10_jpeg_dev", WHOLE, 3, 0.5),
    Short("bert_mlm", "wikitext2_valid_test", WHOLE, 3, 0.16, ("NEG",)),
)
# How much of the metric the recipes may lose.
ALLOWED_LOSS = {"dynamic": 0.01, "int8": 0.01}


class Trained(NamedTuple):
    """What short_training.py made."""

    directory: Path
    inputs: dict[str, list[int | None]]
    metric: list[float]


def trained(short: Short, target: Path) -> Trained:
    place = SHARED / short.place
    if not place.exists():
        pytest.skip("the data sets are not beside the checkout")
    if short.name == "bert_mlm":
        pytest.importorskip("keras_hub", reason="edgeconv[bert] is not installed")
    script = SUPPORT / "short_training.py"
    arguments = [short.name, place, target, str(short.samples), str(short.epochs)]
    output_of(script, *arguments)
    record = json.loads((target / "record.json").read_text())
    return Trained(target, record["inputs"], record["metric"])


def converted(made: Trained, short: Short) -> Conversion:
    recipes = make_recipes(["float32", *ALLOWED_LOSS])
    return convert(
        made.directory / "saved_model",
        out=made.directory / "out",
        to=recipes,
        calibration=str(made.directory / "calibration.npz"),
        samples=100,
    )


def check_training_and_conversion(short: Short, target: Path) -> Trained:
    made = trained(short, target)
    samples = dict(np.load(target / "test.npz"))
    assert made.inputs == {name: [None, *array.shape[1:]] for name, array in samples.items()}
    assert made.metric[-1] > made.metric[0]
    assert made.metric[-1] >= short.least
    conversion = converted(made, short)
    assert not conversion.failures
    labels, answers = np.load(target / "labels.npy"), np.load(target / "answers.npy")
    by_keras = (answers.argmax(-1) == labels).mean()
    for artifact in conversion.artifacts:
        outputs = only(Lite(target / "out" / artifact.file).run(**samples))
        assert outputs.shape == answers.shape
        share = (outputs.argmax(-1) == labels).mean()
        assert share >= by_keras - ALLOWED_LOSS.get(artifact.recipe.name, 0.001), artifact.file
    return made


@pytest.mark.parametrize("short", QUICK, ids=lambda short: short.name)
def test_a_short_training_improves_the_metric_and_the_model_converts(short, tmp_path):
    check_training_and_conversion(short, tmp_path / "made")


@pytest.mark.parametrize(
    "short",
    [
        *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW),
        # Up to ten minutes each, for a number that their cards have.
        *(pytest.param(each, marks=pytest.mark.long) for each in LONG),
    ],
    ids=lambda short: short.name,
)
def test_a_longer_training_reaches_what_its_card_says_and_so_does_every_format(short, tmp_path):
    made = check_training_and_conversion(short, tmp_path / "made")
    if short.name == "bert_mlm":
        # Every epoch is better than the one before it, and than always the commonest word.
        assert made.metric == sorted(made.metric)
        labels = np.load(made.directory / "labels.npy")
        assert made.metric[1] > np.bincount(labels.ravel()).max() / labels.size
