"""What auto stands for is decided by held-back calibration samples, and recorded."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from places import SHARED
from two_dense import two_dense

from edgeconv.errors import UsageError
from edgeconv.quantize import calibrate
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.choose import MIN_SAMPLES_TO_CHOOSE, MethodSearch
from edgeconv.quantize.recipes import make_recipes
from edgeconv.quantize.trials import lowest_snr_db, outputs_of
from edgeconv.tflite import ensure_signature, summarize

# The quantiser asks for this mode itself.
pytestmark = pytest.mark.filterwarnings("ignore:Warning. Enabling `experimental_preserve")

KEY = "serving_default"


def feed(samples: int, *, batch: int = 1, seed: int = 1) -> Feed:
    rng = np.random.default_rng(seed)
    return Feed({"x": rng.gamma(1.0, size=(samples, 8)).astype(np.float32)}, batch)


def chooser(samples: int = 200) -> MethodSearch:
    return MethodSearch(CalibratedGraph(two_dense(), {KEY: feed(samples)}, threads=1))


def recipe(name: str, **options):
    (found,) = make_recipes([name], **options)
    return found


def test_a_recipe_that_leaves_nothing_open_tries_nothing():
    plain = chooser().file(recipe("int8"))
    assert plain.record is None
    named = chooser().file(recipe("int8", methods=["bias-correction"]))
    assert named.record is not None
    assert named.record.methods == ("bias-correction",)
    assert (named.record.trials, named.record.held_back) == ((), 0)


def test_what_auto_takes_is_the_best_of_what_it_tried():
    record = chooser().file(recipe("int8x4", methods=["auto"])).record
    assert record is not None
    taken = (record.calibration_range, record.methods)
    by = {(trial.calibration_range, trial.methods): trial for trial in record.trials}
    first, best = record.trials[0], by[taken]
    assert first.methods == ()
    assert best.snr_db > first.snr_db + 1, "weights of 4 bits have much to gain"
    assert not [trial for trial in record.trials if trial.snr_db > best.snr_db + 3]
    assert record.held_back == 40


def test_auto_ranges_are_chosen_from_all_there_are():
    record = chooser().file(recipe("int8", calibration_range="auto")).record
    assert record is not None
    assert [trial.calibration_range for trial in record.trials] == [
        "minmax",
        "percentile",
        "mse",
        "kl",
    ]
    assert all(trial.methods == () for trial in record.trials)


def test_what_auto_takes_is_as_good_on_samples_that_nothing_has_seen():
    fresh = {KEY: feed(300, seed=9)}
    expected = outputs_of(two_dense(), fresh, threads=1)

    def snr_db(methods: list[str]) -> float:
        made = chooser().file(recipe("int8x4", methods=methods)).file
        return lowest_snr_db(expected, outputs_of(made.model, fresh, threads=1))

    assert snr_db(["auto"]) > snr_db(["none"]) + 1


def test_the_same_samples_give_the_same_bytes():
    asked = recipe("int8x4", methods=["auto"], calibration_range="auto")
    assert chooser().file(asked).file.model == chooser().file(asked).file.model


def test_too_few_samples_to_choose_by_say_how_many_are_needed():
    with pytest.raises(UsageError, match=f"at least {MIN_SAMPLES_TO_CHOOSE} in all; there are 39"):
        chooser(39).file(recipe("int8", methods=["auto"]))


def test_too_few_samples_for_a_method_say_how_many_it_needs():
    with pytest.raises(UsageError, match=r"rounding needs at least \d+ calibration samples"):
        chooser(3).file(recipe("int8", methods=["rounding"]))


def test_ranges_of_16_bits_are_not_clipped():
    record = chooser().file(recipe("int16x8", calibration_range="auto")).record
    assert record is None


@pytest.mark.parametrize(("samples", "batch", "held_back"), [(10, 1, 3), (10, 4, 4), (2, 1, 9)])
def test_samples_are_parted_in_whole_batches(samples, batch, held_back):
    fitting, judging = feed(samples, batch=batch).split(held_back)
    assert fitting.samples + judging.samples == samples // batch * batch
    assert min(fitting.samples, judging.samples) >= batch
    parts = [value["x"] for one in (fitting, judging) for value in one]
    whole = [value["x"] for value in feed(samples, batch=batch)]
    assert np.array_equal(np.concatenate(parts), np.concatenate(whole))


def test_answers_of_integer_inputs_and_outputs_are_real_numbers():
    whole = {KEY: feed(50)}
    made = chooser().file(recipe("int8", input_type="int8", output_type="uint8")).file
    found = outputs_of(made.model, whole, threads=1)
    assert lowest_snr_db(outputs_of(two_dense(), whole, threads=1), found) > 20


def test_the_worker_settles_linear_algebra_before_numpy_is_loaded():
    """One thread gives the same sums on every number of cores, and is read at import only."""
    program = (
        "import sys, os, edgeconv.quantize.worker as worker; before = 'numpy' in sys.modules; "
        "worker.settle_process(); print(before, os.environ['OPENBLAS_NUM_THREADS'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "1"]


LSTM = SHARED / "tflm_models/mnist_lstm__trained_lstm.tflite"


@pytest.mark.skipif(not LSTM.is_file(), reason="no ../shared/data/tflm_models beside the project")
def test_each_sample_of_a_model_with_state_begins_afresh():
    data = LSTM.read_bytes()
    (signature,) = summarize(signed := ensure_signature(data), where="it").signatures
    (spec,) = signature.inputs
    image = np.random.default_rng(0).uniform(size=(1, *spec.shape[1:])).astype(np.float32)
    found = outputs_of(
        signed, {signature.key: Feed({spec.name: np.repeat(image, 3, axis=0)}, 1)}, threads=1
    )
    (values,) = found.values()
    assert np.array_equal(values[0], values[1])
    assert np.array_equal(values[0], values[2])


def test_minima_and_maxima_of_two_parts_are_those_of_all_samples():
    x = np.random.default_rng(1).gamma(1.0, size=(50, 8)).astype(np.float32)
    x[-10:] *= 2
    whole = CalibratedGraph(two_dense(), {KEY: Feed({"x": x}, 1)}, threads=1).fitted(
        "minmax", bits=8
    )
    parted = CalibratedGraph(two_dense(), {KEY: Feed({"x": x}, 1)}, threads=1)
    first, _ = parted.split({KEY: 10})
    merged = parted.fitted("minmax", bits=8)
    assert merged.ranges.keys() == whole.ranges.keys()
    for name, limits in whole.ranges.items():
        np.testing.assert_array_equal(merged.ranges[name]["min"], limits["min"])
        np.testing.assert_array_equal(merged.ranges[name]["max"], limits["max"])
    narrower = first.fitted("minmax", bits=8).ranges
    assert any((narrower[n]["max"] < limits["max"]).any() for n, limits in whole.ranges.items())


def test_samples_that_auto_has_calibrated_with_are_not_calibrated_with_again(monkeypatch):
    samples: list[int] = []
    run = calibrate.activation_ranges

    def counting(model, feeds, **options):
        samples.append(feeds[KEY].samples)
        return run(model, feeds, **options)

    monkeypatch.setattr(calibrate, "activation_ranges", counting)
    search = chooser(200)
    search.file(recipe("int8", methods=["auto"]))
    assert (
        search.file(recipe("int16x8")).file.model == chooser(200).file(recipe("int16x8")).file.model
    )
    # Those that are left when some are held back, perhaps twice since one graph is equalized;
    # the others; and all, where nothing had calibrated before.
    assert samples in ([160, 40, 200], [160, 160, 40, 200])
