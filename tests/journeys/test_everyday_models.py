"""Models as people make them after a tutorial: converted by default, and right in LiteRT.

Each file is held against `model.predict`, which everyday_models.py asked in an environment of its
own, and is run as an app runs it: one interpreter, one batch after another.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from installed import Machine, locked_key
from places import SUPPORT
from zoo import kept, key_of

Arrays = dict[str, np.ndarray]


@dataclass
class Expected:
    """The least signal-to-noise ratio of each recipe, in dB, and at which batches it is reached.

    Where `classes`, a quantized file names the model's class for so many of the samples.
    """

    int8_db: float
    float_db: float = 60.0
    batches: tuple[int, ...] = (1, 7)
    classes: float = 0.0
    recipe: str = "int8"
    options: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)


EXPECTED = {
    "augmented": Expected(15, classes=0.95),
    "generator": Expected(10),
    "text": Expected(15, classes=0.95),
    "transformer": Expected(10, classes=0.93),
    "lstm": Expected(12, classes=0.95, batches=(1,)),
    "regression": Expected(25),
    # It learns its labels, not the model's answers: 13 dB on one machine, 15 on others.
    "landmarks": Expected(10, recipe="qat", options=("--training", "{place}/training.npz")),
    "wrapped": Expected(15),
    "detector": Expected(20),
    "reshaped": Expected(20, batches=(1,)),
    "ratio": Expected(20),
    "state": Expected(15, batches=(1,), state=("before", "after")),
    "graph": Expected(20, batches=(0,)),
}


@pytest.fixture(scope="module")
def models(machine) -> Path:
    """The models of everyday_models.py, which a Python of the user made, in this run or before."""
    script = SUPPORT / "everyday_models.py"
    key = key_of(locked_key(), script.read_bytes())
    return kept("everyday", key, lambda place: machine.python(place, script, place))


# Of these another form is in each run: tokens of the transformer, modules in
# test_modules_around_keras.py, one row at a time in test_open_batch.py, loops in
# test_fused_lstm.py, training for quantization in test_qat_convert.py, quotients in
# test_float_magnified.py, no batch in test_unbatched.py, and
# tables in test_input_scaling.py.
SLOW = (
    "text",
    "wrapped",
    "reshaped",
    "lstm",
    "landmarks",
    "generator",
    "ratio",
    "graph",
    "regression",
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in EXPECTED],
)
def test_an_everyday_model_is_right_by_default(name, models, machine, tmp_path):
    expected, place = EXPECTED[name], models / name
    options = [option.format(place=place) for option in expected.options]
    recipes = ("--to", f"float32,{expected.recipe}")
    samples = ("--calibration", place / "calibration.npz", "-o", "files")
    machine.edgeconv(tmp_path, "convert", model_in(place), *recipes, *samples, *options)
    with np.load(place / "answers.npz") as archive:
        right = dict(archive)
    answer_all(machine, tmp_path / "files", place, expected)
    for recipe, least_db in (("float32", expected.float_db), (expected.recipe, expected.int8_db)):
        (file,) = (tmp_path / "files").glob(f"*.{recipe}.tflite")
        for batch in expected.batches:
            with np.load(file.with_suffix(f".{batch}.npz")) as archive:
                given = dict(archive)
            if right.keys() == {"only"}:
                right = dict(zip(given, right.values(), strict=True))
            assert given.keys() == right.keys()
            ratios = {output: snr_db(right[output], given[output]) for output in right}
            assert min(ratios.values()) > least_db, (recipe, batch, ratios)
            if expected.classes:
                (scores,) = (classes_of(given[output]) for output in right)
                agreement = np.mean(scores == classes_of(next(iter(right.values()))))
                assert agreement >= expected.classes, (recipe, batch)


def model_in(place: Path) -> Path:
    return next(place / name for name in ("model.keras", "model") if (place / name).exists())


def answer_all(machine: Machine, files: Path, place: Path, expected: Expected) -> None:
    """Put what each file answers next to it."""
    batches = ",".join(map(str, expected.batches))
    script = (SUPPORT / "litert_answers.py", files, place / "test.npz", batches)
    machine.python(files, *script, *expected.state)


def snr_db(right: np.ndarray, given: np.ndarray) -> float:
    """Of what varies; what is the same for all rows may come once for each batch."""
    given = np.broadcast_to(given[0], right.shape) if given.size < right.size else given
    noise = np.square(given.reshape(right.shape).astype(float) - right).sum()
    signal = np.square(right - right.astype(float).mean(0)).sum() or np.square(right).sum()
    return float(10 * np.log10(max(signal, 1e-30) / max(noise, 1e-30)))


def classes_of(scores: np.ndarray) -> np.ndarray:
    return scores.reshape(-1, scores.shape[-1]).argmax(1)


@pytest.mark.slow
def test_a_file_for_one_row_does_not_claim_more(models, machine, tmp_path):
    samples = ("--calibration", models / "reshaped" / "calibration.npz", "-o", "files")
    machine.edgeconv(
        tmp_path, "convert", models / "reshaped" / "model", "--to", "float32", *samples
    )
    (manifest,) = (tmp_path / "files").glob("*.float32.json")
    (signature,) = json.loads(manifest.read_text(encoding="utf-8"))["signatures"]
    assert [port["shape"][0] for port in signature["inputs"]] == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("normalized", ("bnorm", "training mode")),
        ("beyond", ("ids", "50")),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(name, said, models, machine, tmp_path):
    place = models / name
    samples = ("--calibration", place / "calibration.npz", "-o", "files")
    printed = machine.edgeconv(
        tmp_path, "convert", model_in(place), "--to", "int8", *samples, code=3
    )
    assert all(word in printed for word in said)
    assert not list(tmp_path.glob("files/*.tflite"))
