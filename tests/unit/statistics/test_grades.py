"""Grades of outputs, in their own terms."""

import re
from typing import Any

import numpy as np
import pytest
from places import ROOT

from edgeconv.statistics.grades import THRESHOLDS, Graded, graded, worst_grade
from edgeconv.statistics.outputs import output_errors

RANDOM = np.random.default_rng(0)


def judged(expected: Any, actual: Any, step: float = 0.0, **options: Any) -> Graded:
    reference, values = np.asarray(expected), np.asarray(actual)
    (error,) = output_errors({"y": reference}, {"y": values}, {"y": step})
    return graded(error, reference, values, **options)


def grade_of(expected: Any, actual: Any, **options: Any) -> tuple[str, str]:
    error, broken = judged(expected, actual, **options)
    assert not broken
    return error.kind, error.grade


def softmax(logits: Any) -> Any:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def winners(samples: int, classes: int = 10, *, wins_by: float = 6.0) -> Any:
    scores = RANDOM.normal(size=(samples, classes))
    scores[np.arange(samples), np.arange(samples) % classes] += wins_by
    return scores


def test_the_documented_thresholds_are_those_of_the_code():
    text = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    row = r"^\| ([a-z ]+) \|[^|]*\| [≤≥] ([\d.]+) \| (?:[≤≥] ([\d.]+)|–) \|$"
    documented = {
        name: (float(close), float(usable) if usable else None)
        for name, close, usable in re.findall(row, text, re.M)
    }
    assert documented == {name: each[:2] for name, each in THRESHOLDS.items()}


def test_a_thousandth_on_outputs_of_moderate_range_is_close():
    """29 dB of an output from .04 to .84: once refused."""
    want = np.linspace(0.04, 0.84, 40)[:, None]
    off = 0.001 * np.where(np.arange(40) % 2, 1, -1)[:, None]
    assert grade_of(want, want + off) == ("numbers", "close")
    assert grade_of(want, want + off, is_sigmoid=True) == ("probabilities", "close")


@pytest.mark.parametrize(
    ("off", "grade"), [(0.04, "close"), (0.18, "usable"), (0.21, "poor"), (0.39, "poor")]
)
def test_a_sigmoid_is_judged_by_its_largest_error(off, grade):
    want = RANDOM.uniform(0.0, 0.6, size=(60, 3))
    have = want.copy()
    have[7, 1] += off
    assert grade_of(want, have, is_sigmoid=True) == ("probabilities", grade)


def test_a_rare_event_is_close_where_its_probability_is_however_little_it_varies():
    want = RANDOM.uniform(0.0, 0.002, size=(60, 1))
    have = np.zeros((60, 1))
    assert grade_of(want, have, is_sigmoid=True) == ("probabilities", "close")
    assert judged(want, have).broken


def test_the_edges_of_a_mask_do_not_make_it_poor():
    want = RANDOM.uniform(size=(8, 80, 80, 1))
    have = want.copy()
    have[0, :2, :5] += 0.4
    assert grade_of(want, have, is_sigmoid=True) == ("probabilities", "close")
    assert grade_of(want[:, :60, :60], have[:, :60, :60], is_sigmoid=True)[1] == "poor"


@pytest.mark.parametrize(
    ("samples", "same", "grade"),
    [
        *((28, 27, "close"), (28, 26, "close"), (28, 25, "usable"), (28, 20, "poor")),
        *((1000, 980, "close"), (1000, 965, "usable"), (1000, 900, "usable"), (1000, 870, "poor")),
        *((4, 3, "usable"), (2, 1, "poor"), (8, 8, "close"), (7, 7, "unproven")),
    ],
)
def test_a_classifier_is_judged_by_its_answers(samples, same, grade):
    want = softmax(np.log(np.tile([0.50, 0.44, 0.06], (samples, 1))))
    have = want.copy()
    have[:, 2] += 0.001
    have[same:] = [0.44, 0.50, 0.06]
    assert grade_of(want, have) == ("classes", grade)


def test_answers_count_also_where_no_class_is_likely():
    want = softmax(winners(40, 1000, wins_by=0.5) / 2)
    assert want.max() < 0.01
    steps = np.rint(want * 256) / 256
    assert grade_of(want, steps, step=1 / 256) == ("classes", "poor")
    assert grade_of(want, want + 1e-6) == ("classes", "close")


def test_scores_are_judged_as_classes_and_landmarks_are_not():
    scores = winners(100)
    flipped = scores.copy()
    flipped[:20] = np.roll(flipped[:20], 1, axis=1)
    assert grade_of(scores, flipped) == ("scores", "poor")
    # A shift of all scores changes no answer.
    assert grade_of(scores, scores + 4.0) == ("scores", "close")
    # Two numbers of a position win by as much, but do not compete.
    positions = np.random.default_rng(1).normal(0.5, 0.1, (28, 2))
    assert grade_of(positions, positions + 0.001) == ("numbers", "close")
    logits = np.stack([positions[:, 0], 1 - positions[:, 0]], 1) + 0.2 * positions[:, 1:]
    assert grade_of(logits, logits + 0.001)[0] == "scores"
    landmarks = np.linspace(0, 1, 20) + RANDOM.normal(0, 0.05, size=(100, 20))
    assert grade_of(landmarks, landmarks + 0.02) == ("numbers", "usable")
    embedding = RANDOM.normal(size=(100, 64))
    assert grade_of(embedding, embedding + RANDOM.normal(0, 0.02, size=(100, 64)))[0] == "numbers"


@pytest.mark.parametrize(("noise", "grade"), [(0.02, "close"), (0.1, "usable"), (0.3, "poor")])
def test_other_numbers_are_judged_by_their_spread(noise, grade):
    want = RANDOM.normal(1000.0, 5.0, size=(2000, 1))
    have = want + RANDOM.normal(0.0, 5.0 * noise, size=(2000, 1))
    assert grade_of(want, have) == ("numbers", grade)


def test_labels_and_texts_are_equal_or_not():
    indices = RANDOM.integers(0, 99, size=(40, 3))
    other = indices.copy()
    other[:4] += 50
    assert grade_of(indices, indices) == ("labels", "close")
    assert grade_of(indices, other) == ("labels", "usable")
    words = np.array([[b"a"], [b"b"], [b"c"], [b"d"]])
    assert grade_of(words, words) == ("labels", "close")


def test_pixels_are_close_where_they_are_off_by_little():
    picture = RANDOM.integers(0, 256, size=(9, 8, 8, 3)).astype(np.uint8)
    off = RANDOM.integers(-4, 5, size=picture.shape)
    other = np.clip(picture + off, 0, 255).astype(np.uint8)
    assert grade_of(picture, other) == ("labels", "usable")


def test_what_is_no_better_than_chance_is_broken():
    scores = winners(60)
    chance = "no more than by chance"
    assert chance in judged(softmax(scores), softmax(np.roll(scores, 1, 1))).broken
    one_answer = np.tile(softmax(winners(1)), (60, 1))
    assert chance in judged(softmax(scores), one_answer).broken
    want = RANDOM.normal(size=(60, 1))
    assert "no closer to its reference than the mean" in judged(want, -want).broken
    assert "is the same for all 60 samples" in judged(want, np.full((60, 1), 0.9)).broken
    assert judged(want, want + 0.5).broken == ""


@pytest.mark.parametrize(("together", "grade"), [(False, "usable"), (True, "close")])
def test_many_answers_of_a_sample_are_more_than_one_unless_they_differ_together(together, grade):
    """A translator's 8 words of 28 samples, 16 of them others: 93 % are no 98 %, by no chance."""
    want = np.zeros((28, 8), np.int64)
    have = want.copy()
    have.reshape(-1)[: 16 if together else None : 1 if together else 14] = 1
    assert grade_of(want, have) == ("labels", grade)


def test_too_few_samples_never_show_that_answers_are_chance():
    want = softmax(winners(7))
    assert not judged(want, np.roll(want, 1, axis=1)).broken


def test_an_error_of_a_step_of_coarse_integers_is_poor_and_not_broken():
    want = np.linspace(5000.0, 5001.0, 12)[:, None]
    have = np.full((12, 1), 5004.0)
    assert grade_of(want, have, step=19.6) == ("numbers", "poor")


def test_an_output_that_is_flat_is_judged_by_its_size():
    assert grade_of(np.ones((8, 2)), np.full((8, 2), 0.996)) == ("numbers", "close")
    assert grade_of(np.ones((8, 2)), np.full((8, 2), 0.9)) == ("numbers", "usable")
    assert grade_of(np.zeros((6, 2)), np.zeros((6, 2))) == ("numbers", "close")
    assert grade_of(np.zeros((6, 2)), np.full((6, 2), 0.5)) == ("numbers", "poor")


def test_the_worst_grade_is_that_of_the_whole():
    assert worst_grade(["close", "poor", "usable"]) == "poor"
    assert worst_grade(["", "close"]) == "close"
    assert worst_grade([]) == ""


def test_a_few_samples_do_not_prove_that_a_file_is_close_but_for_rounding():
    want = RANDOM.normal(size=(2, 4))
    assert grade_of(want, want + 0.001)[1] == "unproven"
    assert grade_of(want, want * (1 + 1e-7))[1] == "close"
    assert grade_of(want, want + 0.1)[1] == "usable"
    assert worst_grade(["unproven", "close"]) == "unproven"
