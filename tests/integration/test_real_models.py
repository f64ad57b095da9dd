"""convert, bench and check on real trained models and their labeled data."""

from pathlib import Path

import numpy as np
import pytest
from places import SHARED

from edgeconv import bench, convert
from edgeconv.gate.budget import check
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import RECIPE_NAMES, Budget, Limits, Measuring, Report, Timing

GESTURES = SHARED / "hand_gesture"
QUICK = Measuring(rounds=1, timing=Timing(repeats=20, seconds=0.1))

pytestmark = pytest.mark.skipif(
    not GESTURES.is_dir(), reason="the data sets are not beside the checkout"
)


def split_gestures(name: str, width: int, directory: Path) -> tuple[str, str]:
    """The authors' split: a quarter for testing, by RandomState(42).

    Of the other rows the first 500 calibrate; 8 more are there to be held back.
    """
    rows = np.loadtxt(GESTURES / f"{name}.csv", delimiter=",")
    labels, values = rows[:, 0].astype(np.int64), rows[:, 1 : 1 + width].astype(np.float32)
    order = np.random.RandomState(42).permutation(len(rows))
    count = int(np.ceil(len(rows) / 4))
    test, train = order[:count], order[count : count + 508]
    np.savez(directory / "test.npz", input_1=values[test], labels=labels[test])
    np.savez(directory / "train.npz", input_1=values[train], labels=labels[train])
    return str(directory / "train.npz"), str(directory / "test.npz")


def measure(model: Path, train: str, test: str, directory: Path) -> Report:
    conversion = convert(
        model, out=directory / "out", to=RECIPE_NAMES, calibration=train, samples=500
    )
    assert not conversion.failures
    return bench([directory / "out"], data=test, measuring=QUICK)


def accuracies(report: Report) -> dict[str, float]:
    assert report.baseline is not None
    rows = (report.baseline, *report.measurements)
    return {row.name: row.accuracy.value for row in rows if row.accuracy is not None}


def test_every_format_of_the_keypoint_classifier_keeps_its_accuracy(tmp_path):
    train, test = split_gestures("keypoint", 42, tmp_path)
    report = measure(GESTURES / "keypoint_classifier.hdf5", train, test, tmp_path)
    measured = accuracies(report)
    assert measured.keys() == {"baseline", *RECIPE_NAMES}
    assert min(measured.values()) >= 0.963 - 0.002


def test_point_history_in_int8_keeps_its_accuracy_where_plain_ranges_lose_it(tmp_path):
    """TFLiteConverter's int8 has .942: one sample's logits stretch the range to -392."""
    train, test = split_gestures("point_history", 32, tmp_path)
    report = measure(GESTURES / "point_history_classifier.hdf5", train, test, tmp_path)
    measured = accuracies(report)
    for name, least in (
        ("baseline", 0.968),
        ("float32", 0.968),
        ("float16", 0.968),
        ("int8", 0.962),
        ("int16x8", 0.9665),
    ):
        assert measured[name] >= least - 0.0005, name
    assert check(report, Budget(every=Limits(max_accuracy_drop=0.03))).ok


@pytest.mark.slow
def test_a_real_loss_of_accuracy_is_seen_and_stopped(tmp_path):
    train, test = split_gestures("point_history", 32, tmp_path)
    source = GESTURES / "point_history_classifier.hdf5"
    recipes = make_recipes(["int8"], engine="tflite")
    convert(source, out=tmp_path / "out", to=recipes, calibration=str(train), samples=500)
    report = bench([tmp_path / "out"], data=str(test), measuring=Measuring(rounds=1))
    (int8,) = report.measurements
    assert int8.broken is not None
    assert int8.fixed is not None
    assert int8.accuracy_drop == pytest.approx((int8.broken - int8.fixed) / report.data.samples)
    assert int8.accuracy_drop == pytest.approx(0.0264, abs=0.004)
    verdict = check(report, Budget(every=Limits(max_accuracy_drop=0.01)))
    assert [finding.model for finding in verdict.findings if not finding.ok] == ["int8"]
