"""Which preprocessing fits: with real models that are right with one only, run by LiteRT."""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from doctor_models import CLASSES, NAME, SIDE, classifier, images, linear, stored
from hypothesis import given, settings
from hypothesis import strategies as st
from report_example import artifact
from tiny_tflite import Graph, int8_model, packed
from wording import fails

from edgeconv import bench, doctor
from edgeconv.data.preprocess import preprocess
from edgeconv.data.preprocessing import parse_preprocessing
from edgeconv.measure.doctor import likeliest_first
from edgeconv.measure.doctor_trials import kind_of_scores, score_candidates
from edgeconv.measure.metrics.scoring import top1
from edgeconv.statistics.comparison import is_better
from edgeconv.statistics.estimate import chance_of, share_interval
from edgeconv.system.store import sha256_file
from edgeconv.types import Accuracy, Measuring, Preprocessing, Signature, TensorSpec, Timing, Trial
from edgeconv.types.errors import InputRefused, UsageError

IMAGENET = "scale=1/255&mean=0.485,0.456,0.406&std=0.229,0.224,0.225"
CAFFE = "channels=bgr&mean=103.939,116.779,123.68"
QUICK = Measuring(rounds=1, timing=Timing(warmup=1, repeats=2, seconds=1.0))


def accuracy_of(correct: str) -> Accuracy:
    return Accuracy(value=correct.count("1") / len(correct), samples=len(correct), correct=correct)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("as stored", "dtype=float32"),
        ("0 to 1", "scale=1/255"),
        ("−1 to 1", "scale=1/127.5&mean=1"),
        ("ImageNet mean and deviation", IMAGENET),
        ("Caffe mean, BGR", CAFFE),
        ("0 to 1, BGR", "channels=bgr&scale=1/255"),
    ],
)
def test_the_preprocessing_of_the_training_is_found_from_raw_pixels(name, steps, tmp_path):
    source = stored(tmp_path / "raw.npz", *images())
    file = classifier(tmp_path / "m.tflite", steps)
    diagnosis = doctor(file, source)
    assert [(trial.name, trial.preprocess) for trial in diagnosis.fits] == [(name, steps)]
    assert diagnosis.trials[0].accuracy.value > 0.9
    assert (diagnosis.data.samples, diagnosis.available) == (48, CLASSES * 20)
    assert (diagnosis.scores, diagnosis.classes, diagnosis.label_offset) == ("logits", CLASSES, 0)
    (now,) = (trial for trial in diagnosis.trials if trial.is_current)
    assert now.preprocess == diagnosis.data.preprocessing == "dtype=float32"


def test_bench_with_the_text_that_is_named_has_the_same_answers(tmp_path):
    source = stored(tmp_path / "raw.npz", *images())
    file = classifier(tmp_path / "m.tflite", IMAGENET)
    for trial in doctor(file, source, samples=60).trials[:4]:
        report = bench(
            [file], data=source, preprocess=trial.preprocess, samples=60, measuring=QUICK
        )
        assert report.measurements[0].accuracy == trial.accuracy


@pytest.mark.parametrize(
    ("is_stored", "steps", "says"),
    [
        ("scale=1/255", "none", "none"),
        ("scale=1/255", "scale=1/127.5&mean=1", "scale=2&mean=1"),
        ("scale=1/255", "dtype=float32", "scale=255"),
        ("scale=1/255", CAFFE, f"channels=bgr&scale=255&{CAFFE.split('&')[1]}"),
        ("scale=1/127.5&mean=1", "none", "none"),
        ("scale=1/127.5&mean=1", "scale=1/255", "scale=0.5&mean=-0.5"),
        ("scale=1/127.5&mean=1", "dtype=float32", "scale=127.5&mean=-127.5"),
        (
            "scale=1/127.5&mean=1",
            IMAGENET,
            "scale=0.5&mean=-0.015,-0.044,-0.094&std=0.229,0.224,0.225",
        ),
    ],
)
def test_what_was_scaled_already_is_scaled_from_there(is_stored, steps, says, tmp_path):
    pixels, labels = images()
    scaled = preprocess(pixels, parse_preprocessing(is_stored)[""], "here")
    # "none" is: trained with what is stored.
    file = classifier(tmp_path / "m.tflite", is_stored if steps == "none" else steps)
    diagnosis = doctor(file, stored(tmp_path / "scaled.npz", scaled, labels))
    assert [trial.preprocess for trial in diagnosis.fits] == [says]


def test_float64_is_tried_too_though_the_model_takes_float32(tmp_path):
    pixels, labels = images()
    source = stored(tmp_path / "raw.npz", pixels / 255.0, labels)
    diagnosis = doctor(classifier(tmp_path / "m.tflite", "scale=1/255"), source)
    assert [trial.preprocess for trial in diagnosis.fits] == ["dtype=float32"]
    assert diagnosis.stored_dtype == "float64"


def test_pixels_in_few_levels_are_tried_in_their_own_range(tmp_path):
    pixels, labels = images(channels=1)
    levels = (pixels // 16).astype(np.uint8)
    levels.flat[0] = 16
    file = classifier(tmp_path / "m.tflite", "scale=1/255", channels=1)
    diagnosis = doctor(file, stored(tmp_path / "levels.npz", levels, labels), samples=240)
    assert diagnosis.stored_limits[1] == 16
    assert diagnosis.trials[0].preprocess == "scale=1/16"


def test_sizes_and_channels_are_fitted_in_every_trial(tmp_path):
    pixels, labels = images()
    doubled = pixels.repeat(2, axis=1).repeat(2, axis=2)
    with_alpha = np.concatenate([doubled, np.full_like(doubled[..., :1], 255)], axis=-1)
    file = classifier(tmp_path / "m.tflite", CAFFE)
    diagnosis = doctor(file, stored(tmp_path / "rgba.npz", with_alpha, labels))
    size = f"resize={SIDE}x{SIDE}"
    assert diagnosis.fits[0].preprocess == CAFFE.replace("&", f"&{size}&")
    assert all(size in t.preprocess and "channels=" in t.preprocess for t in diagnosis.trials)


def test_gray_is_given_three_channels_and_colours_are_given_one(tmp_path):
    gray, labels = images(channels=1)
    color = gray.repeat(3, axis=-1)
    one = classifier(tmp_path / "one.tflite", "scale=1/255", channels=1)
    assert doctor(one, stored(tmp_path / "c.npz", color, labels)).fits[0].preprocess == (
        "channels=gray&scale=1/255"
    )
    flat = doctor(one, stored(tmp_path / "f.npz", gray[..., 0], labels))
    assert flat.fits[0].preprocess == "scale=1/255"
    three = classifier(tmp_path / "three.tflite", "channels=rgb&scale=1/255", channels=1)
    trials = doctor(three, stored(tmp_path / "g.npz", gray, labels)).trials
    assert trials[0].preprocess == "channels=rgb&scale=1/255"
    assert "0 to 1, BGR" not in {trial.name for trial in trials}, "the same values twice"


def test_the_shapes_of_what_is_used_now_are_kept_and_its_numbers_are_questioned(tmp_path):
    pixels, labels = images()
    padded = np.pad(pixels, [(0, 0), (2, 2), (2, 2), (0, 0)])
    source = stored(tmp_path / "padded.npz", padded, labels)
    file = classifier(tmp_path / "m.tflite", "scale=1/127.5&mean=1")
    diagnosis = doctor(file, source, preprocess="crop=3x3&scale=1/255")
    assert [trial.preprocess for trial in diagnosis.fits] == ["crop=3x3&scale=1/127.5&mean=1"]
    assert all("crop=3x3" in trial.preprocess for trial in diagnosis.trials)
    (now,) = (trial for trial in diagnosis.trials if trial.is_current)
    assert (now.name, now.preprocess) == ("0 to 1", "crop=3x3&scale=1/255")


def test_the_same_values_in_other_words_are_tried_once(tmp_path):
    source = stored(tmp_path / "raw.npz", *images())
    file = classifier(tmp_path / "m.tflite", "scale=1/127.5&mean=1")
    diagnosis = doctor(file, source, preprocess="mean=127.5&std=127.5")
    (fit,) = diagnosis.fits
    assert (fit.name, fit.preprocess, fit.is_current) == ("−1 to 1", "mean=127.5&std=127.5", True)
    assert len(diagnosis.trials) == 12


def test_a_manifest_says_what_is_used_now(tmp_path):
    source = stored(tmp_path / "raw.npz", *images())
    file = classifier(tmp_path / "m.tflite", "scale=1/127.5&mean=1")
    manifest = msgspec.structs.replace(
        artifact("float32"),
        file=file.name,
        sha256=sha256_file(file),
        preprocessing={"": Preprocessing(mean=(90.0,), std=(70.0,))},
    )
    file.with_suffix(".json").write_bytes(msgspec.json.encode(manifest))
    diagnosis = doctor(file, source)
    (now,) = (trial for trial in diagnosis.trials if trial.is_current)
    assert (now.name, now.preprocess) == ("as given", "mean=90&std=70")
    assert diagnosis.fits[0].name == "−1 to 1"


def test_a_class_for_the_background_is_an_offset_of_the_labels(tmp_path):
    source = stored(tmp_path / "raw.npz", *images())
    diagnosis = doctor(classifier(tmp_path / "m.tflite", "scale=1/255", background=1), source)
    assert (diagnosis.label_offset, diagnosis.classes) == (1, CLASSES + 1)
    assert [trial.preprocess for trial in diagnosis.fits] == ["scale=1/255"]
    assert diagnosis.trials[0].accuracy.value > 0.9


def test_labels_that_count_from_1_are_an_offset_of_the_other_sign(tmp_path):
    pixels, labels = images()
    source = stored(tmp_path / "raw.npz", pixels, labels + 1)
    diagnosis = doctor(classifier(tmp_path / "m.tflite", "scale=1/255"), source)
    assert diagnosis.label_offset == -1
    assert diagnosis.fits[0].preprocess == "scale=1/255"


def test_a_model_at_chance_fits_nowhere(tmp_path):
    source = stored(tmp_path / "raw.npz", *images())
    rng = np.random.default_rng(1)
    weights = rng.normal(0, 1, (CLASSES + 1, SIDE * SIDE * 3))
    file = linear(tmp_path / "m.tflite", (SIDE, SIDE, 3), weights, np.zeros(CLASSES + 1))
    labels = np.random.default_rng(2).permutation(images()[1])
    shuffled = stored(tmp_path / "shuffled.npz", images()[0], labels)
    right = classifier(tmp_path / "right.tflite", "scale=1/255")
    for diagnosis in (doctor(file, shuffled), doctor(right, shuffled)):
        assert not diagnosis.ok
        assert diagnosis.chance >= 0.05
        assert diagnosis.label_offset == 0
    assert doctor(right, source).ok


def test_too_few_differences_leave_several_and_more_samples_leave_one(tmp_path):
    pixels, labels = images(each=40)
    # Here the true scale is right in all, and the next best in many.
    hard = pixels[labels < 6], labels[labels < 6]
    source = stored(tmp_path / "hard.npz", *hard)
    file = classifier(tmp_path / "m.tflite", "scale=1/127.5&mean=1")
    few = doctor(file, source, samples=12)
    many = doctor(file, source, samples=240)
    assert len(few.fits) > 1
    assert "scale=1/127.5&mean=1" in [trial.preprocess for trial in few.fits]
    assert [trial.preprocess for trial in many.fits] == ["scale=1/127.5&mean=1"]


def test_every_run_chooses_and_answers_alike(tmp_path):
    source = stored(tmp_path / "raw.npz", *images())
    file = classifier(tmp_path / "m.tflite", "scale=1/255")
    assert doctor(file, source) == doctor(file, source)


def test_columns_of_numbers_are_tried_without_colours(tmp_path):
    rng = np.random.default_rng(4)
    labels = np.tile(np.arange(4), 30)
    centres = rng.uniform(0, 16, (4, 5))
    rows = np.clip(np.rint(centres[labels] + rng.normal(0, 0.5, (120, 5))), 0, 16)
    unit = centres / 16
    weights, biases = 2 * unit, -np.square(unit).sum(axis=1)
    file = linear(tmp_path / "m.tflite", (5,), weights, biases)
    diagnosis = doctor(file, stored(tmp_path / "rows.npz", rows.astype(np.float32), labels))
    assert "scale=1/16" in [trial.preprocess for trial in diagnosis.fits]
    assert not any("bgr" in trial.preprocess for trial in diagnosis.trials)
    names = {trial.name for trial in diagnosis.trials}
    assert names == {"as stored", "0 to 1", "−1 to 1", "standardized"}


# What cannot be examined.


@pytest.fixture
def model(tmp_path) -> Path:
    return classifier(tmp_path / "m.tflite", "scale=1/255")


def is_refused(model: Path, pixels: Any, labels: Any, **options: Any) -> None:
    with fails(InputRefused):
        doctor(model, stored(model.with_suffix(".npz"), pixels, labels), **options)


def test_data_that_say_nothing_are_refused(model):
    pixels, labels = images()
    is_refused(model, pixels, None)
    is_refused(model, pixels[:7], labels[:7])
    is_refused(model, pixels, np.full(len(pixels), 3))
    is_refused(model, pixels, labels, samples=241)
    is_refused(model, np.full_like(pixels, 9), labels)
    is_refused(model, pixels, np.where(labels == 0, 99, labels))
    with fails(UsageError):
        doctor(model, "x.npz", samples=7)


def test_samples_without_labels_are_refused_before_a_keras_file_is_loaded(model, monkeypatch):
    spec = TensorSpec(name=NAME, dtype="float32", shape=(-1, SIDE, SIDE, 3))
    signature = Signature(key="serving_default", inputs=(spec,), outputs=(spec,))
    monkeypatch.setattr("edgeconv.model.source.keras_file_signature", lambda _: signature)
    monkeypatch.setattr("edgeconv.measure.doctor.open_model", pytest.fail)
    is_refused(model, images()[0], None)


def test_samples_that_no_step_makes_fit_are_refused(model):
    pixels, labels = images()
    is_refused(model, pixels.reshape(-1, 27)[:, :26], labels)
    bad = pixels.astype(np.float32)
    bad[:, 0, 0, 0] = np.nan
    is_refused(model, bad, labels)


def test_models_that_are_no_classifier_of_one_float_input_are_refused(tmp_path):
    pixels, labels = images()
    one = linear(tmp_path / "one.tflite", (SIDE, SIDE, 3), np.ones((1, 27)), np.zeros(1))
    is_refused(one, pixels, labels)
    two = Graph()
    a, b = (two.tensor(name, (1, 4), "float32", dynamic=True) for name in "ab")
    y = two.computed("y", (1, 4), "ADD", [a, b])
    (tmp_path / "two.tflite").write_bytes(packed(two.model([a, b], [y])))
    is_refused(tmp_path / "two.tflite", pixels, labels)
    tokens = Graph()
    a, b = (tokens.tensor(name, (1, 4), "int32", dynamic=True) for name in "ab")
    tokens.operator("ADD", [a, a], [b])
    (tmp_path / "tokens.tflite").write_bytes(packed(tokens.model([a], [b])))
    is_refused(tmp_path / "tokens.tflite", pixels, labels)


def test_an_int8_file_is_examined_in_floats(tmp_path):
    path = tmp_path / "int8.tflite"
    path.write_bytes(packed(int8_model()))
    labels = np.tile(np.arange(3), 10)
    rows = np.random.default_rng(1).uniform(0, 60, (30, 4)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=rows, y=labels)
    diagnosis = doctor(path, f"{tmp_path / 'rows.npz'}?labels=y")
    assert len(diagnosis.trials) > 2


def test_an_unknown_output_is_named(model):
    source = stored(model.with_suffix(".npz"), *images())
    with fails(UsageError):
        doctor(model, source, output="score")
    assert doctor(model, source, output="scores").ok


def test_all_that_is_tried_must_fit_into_memory(model, monkeypatch):
    monkeypatch.setattr("edgeconv.measure.doctor_trials._MOST_BYTES", 10_000)
    is_refused(model, *images())


# What may as well be chance.


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_wilsons_and_holds_the_accuracy(counts):
    right, total = counts
    low, high = share_interval(right, total)
    share, z = right / total, 1.959963984540054
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = math.sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2)
    half *= z / (1 + z * z / total)
    assert low == pytest.approx(max(0.0, middle - half), abs=1e-9)
    assert high == pytest.approx(min(1.0, middle + half), abs=1e-9)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1


@settings(deadline=None)
@given(st.text("01", min_size=1, max_size=80), st.data())
def test_of_two_at_most_one_is_better_and_only_by_more_right_answers(one, drawn):
    other = drawn.draw(st.text("01", min_size=len(one), max_size=len(one)))
    first, second = accuracy_of(one), accuracy_of(other)
    assert not (is_better(first, second, 1) and is_better(second, first, 1))
    assert not is_better(first, second, 1) or first.value > second.value
    assert not is_better(first, second, 10) or is_better(first, second, 1)


def test_six_samples_won_and_none_lost_are_just_enough_for_one_comparison():
    # 2 / 2**6 is .031, and 2 / 2**5 is .063.
    assert is_better(accuracy_of("1" * 6 + "0" * 9), accuracy_of("0" * 15), 1)
    assert not is_better(accuracy_of("1" * 5 + "0" * 9), accuracy_of("0" * 14), 1)
    assert not is_better(accuracy_of("1" * 6 + "0" * 9), accuracy_of("0" * 15), 2)


def test_the_chance_of_guessing_grows_with_the_number_of_attempts():
    once = chance_of(10, 20, 0.1, 1)
    assert once == pytest.approx(
        sum(math.comb(20, k) * 0.1**k * 0.9 ** (20 - k) for k in range(10, 21))
    )
    assert chance_of(10, 20, 0.1, 36) == pytest.approx(36 * once)
    assert chance_of(10, 20, 0.5, 36) == 1.0


def test_a_guesser_seldom_fits_however_many_ways_it_is_tried():
    rng = np.random.default_rng(0)
    fits = 0
    for _ in range(100):
        labels = rng.permutation(np.tile(np.arange(10), 5))
        outputs = [{"y": rng.normal(size=(50, 10))} for _ in range(12)]
        judgement = score_candidates(outputs, labels, label_limits=(0, 9), output=None)
        fits += judgement.chance < 0.05
    assert fits <= 12


def test_the_true_way_is_seldom_left_out():
    rng = np.random.default_rng(5)
    labels = np.tile(np.arange(10), 10)

    def answers(rate: float) -> dict[str, Any]:
        said = np.where(rng.random(100) < rate, labels, rng.integers(0, 10, 100))
        return {"y": np.eye(10)[said]}

    lost = 0
    for _ in range(100):
        # The first is the best in truth, and the others are nearly as good.
        outputs = [answers(0.7), *(answers(0.66) for _ in range(11))]
        lost += (
            not score_candidates(outputs, labels, label_limits=(0, 9), output=None)
            .candidates[0]
            .fits
        )
    assert lost <= 8


def test_an_offset_that_is_no_better_than_none_is_not_claimed():
    labels = np.tile(np.arange(5), 10)
    outputs = [{"y": np.eye(7)[labels]}]
    judgement = score_candidates(outputs, labels, label_limits=(0, 4), output=None)
    assert (judgement.label_offset, judgement.candidates[0].accuracy.value) == (0, 1.0)
    shifted = score_candidates(
        [{"y": np.eye(7)[labels + 1]}], labels, label_limits=(0, 4), output=None
    )
    assert (shifted.label_offset, shifted.candidates[0].accuracy.value) == (1, 1.0)
    half = np.where(np.arange(50) < 26, labels, labels + 1)
    unclear = score_candidates([{"y": np.eye(7)[half]}], labels, label_limits=(0, 4), output=None)
    assert unclear.label_offset == 0


def test_scores_that_are_not_finite_are_wrong_and_do_not_decide_their_kind():
    labels = np.tile(np.arange(4), 10)
    right = np.eye(4)[labels] * 0.97 + 0.0075
    broken = np.where(np.arange(40)[:, None] < 5, np.nan, right)
    judgement = score_candidates([{"y": broken}], labels, label_limits=(0, 3), output=None)
    assert judgement.scores == "probabilities"
    assert judgement.candidates[0].accuracy == top1({"y": broken}, labels, None)
    assert judgement.candidates[0].accuracy.value == 35 / 40


@pytest.mark.parametrize(
    ("scores", "kind"),
    [
        ([[0.2, 0.8], [0.5, 0.5]], "probabilities"),
        ([[0.2, 0.801], [0.5, 0.499]], "probabilities"),
        ([[0.2, 0.9], [0.5, 0.5]], "sigmoids"),
        ([[-0.2, 1.2], [0.5, 0.5]], "logits"),
        ([[3.0, 1.2], [0.5, 0.5]], "logits"),
        ([[np.nan, 1.0]], "logits"),
    ],
)
def test_scores_are_told_apart_by_their_range_and_sum(scores, kind):
    assert kind_of_scores(np.asarray(scores)) == kind


def test_the_input_is_the_one_that_is_named(model):
    source = stored(model.with_suffix(".npz"), *images())
    given = doctor(model, source, preprocess=f"{NAME}.scale=1/255")
    assert [(t.preprocess, t.is_current) for t in given.fits] == [("scale=1/255", True)]
    with fails(UsageError):
        doctor(model, source, preprocess="imag.scale=1/255")


@pytest.mark.parametrize(
    ("usual", "computed", "first"),
    [
        # A sample more is no reason to believe in the samples' own mean; eight more are.
        ("1" * 30 + "0" * 18, "1" * 31 + "0" * 17, "0 to 1"),
        ("1" * 30 + "0" * 18, "1" * 38 + "0" * 10, "standardized"),
        ("1" * 31 + "0" * 17, "1" * 30 + "0" * 18, "0 to 1"),
    ],
)
def test_a_usual_preprocessing_goes_before_a_computed_one_that_is_hardly_better(
    usual, computed, first
):
    trials = [
        trial_of("as stored", "0" * 48, fits=False),
        trial_of("standardized", computed, fits=True),
        trial_of("0 to 1", usual, fits=True),
    ]
    ordered = [trial.name for trial in likeliest_first(trials)]
    assert ordered[0] == first
    assert ordered[2] == "as stored"


def trial_of(name: str, correct: str, *, fits: bool) -> Trial:
    accuracy = accuracy_of(correct)
    return Trial(name=name, preprocess="", accuracy=accuracy, interval=(0.0, 1.0), fits=fits)
