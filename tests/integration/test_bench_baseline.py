"""bench beside a trained model in TensorFlow: its outputs, its batches, and other metrics."""

from pathlib import Path

import numpy as np
import pytest

from edgeconv import bench, convert
from edgeconv.types import Measuring, Timing
from edgeconv.types.errors import InputRefused

RNG = np.random.default_rng(9)
X = RNG.normal(size=(300, 6)).astype(np.float32)
QUICK = {"rounds": 1, "timing": Timing(warmup=2, repeats=10, seconds=0.2)}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A trained model, and what was converted from it.

    It gives a probability for whether the sum is above 0, and scores (n, 3, 5) of tokens.
    """
    import tensorflow as tf
    from saved_functions import save

    root = tmp_path_factory.mktemp("bench")
    rng = np.random.default_rng(1)
    w = tf.constant(rng.normal(1.0, 0.1, (6, 1)), tf.float32)
    v = tf.constant(rng.normal(0.0, 1.0, (6, 15)), tf.float32)
    save(
        root / "model",
        lambda x: {"above": tf.sigmoid(x @ w), "tokens": tf.reshape(x @ v, (-1, 3, 5))},
        x=[None, 6],
    )
    np.savez(root / "calibration.npz", x=X[:100])
    convert(
        root / "model",
        out=root / "out",
        to=["float32", "int8"],
        calibration=str(root / "calibration.npz"),
    )
    return root


def data(place: Path, name: str, labels: np.ndarray) -> str:
    np.savez(place / f"{name}.npz", x=X, labels=labels)
    return str(place / f"{name}.npz")


def test_a_sigmoid_has_an_accuracy_beside_that_of_the_trained_model(place):
    above = (X.sum(axis=1) > 0).astype(np.int64)
    report = bench(
        [place / "out"],
        data=data(place, "above", above),
        measuring=Measuring(**QUICK, output="above", metrics=("top1", "auc", "f1")),
    )
    assert report.baseline.batched_size == 64
    assert len(report.baseline.batched_us) == 10
    floating, integer = report.measurements
    for row in (report.baseline, floating, integer):
        assert row.error == ""
        assert row.accuracy.value > 0.9
        assert [one.metric for one in row.metrics] == ["auc", "f1"]
        assert row.metrics[0].value > 0.97
    assert floating.accuracy_drop == 0.0
    assert floating.accuracy_drop_interval is not None
    assert {one.output: one.reference for one in integer.agreement} == {
        "above": "baseline",
        "tokens": "baseline",
    }
    assert all(one.snr_db > 80 for one in floating.agreement)
    assert all(15 < one.snr_db < 60 for one in integer.agreement)


def test_tokens_are_measured_where_they_have_labels(place):
    tokens = RNG.integers(0, 5, (300, 3))
    tokens[RNG.random((300, 3)) < 0.5] = -1
    report = bench(
        [place / "out"],
        data=data(place, "tokens", tokens),
        measuring=Measuring(**QUICK, output="tokens", metrics=("perplexity", "masked_accuracy")),
    )
    assert report.labels == ()
    for row in report.measurements:
        assert row.accuracy.value == pytest.approx(report.baseline.accuracy.value, rel=0.1)
        assert row.accuracy_drop_interval is not None
        low, high = row.accuracy_drop_interval
        assert low <= row.accuracy_drop <= high


def test_profile_and_layers_are_measured_where_they_are_asked_for(place):
    report = bench([place / "out"], measuring=Measuring(**QUICK, profile=True, layers=True))
    floating, integer = report.measurements
    for row in (floating, integer):
        assert row.profile is not None, report.notes
        assert row.profile.operators
    assert floating.layer_errors == ()
    assert integer.layer_errors, report.notes


def test_labels_that_do_not_fit_the_trained_model_are_refused_before_anything_is_timed(place):
    said: list[str] = []
    with pytest.raises(InputRefused, match="a label is 2, and the model has 2 classes"):
        bench(
            [place / "out"],
            data=data(place, "wrong", np.arange(300) % 3),
            measuring=Measuring(**QUICK, output="above"),
            on_progress=said.append,
        )
    assert not [line for line in said if line.startswith("timing")]
