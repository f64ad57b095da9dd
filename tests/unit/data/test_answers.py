"""What is strange about the answers of a model, and what is not."""

from typing import Any

import numpy as np
import pytest

from edgeconv.data.suspects import answer_remarks, information, is_at_chance, is_saturated

RANDOM = np.random.default_rng(8)
LABELS = RANDOM.integers(0, 5, 100)


def probabilities(logits: Any) -> Any:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (shifted / shifted.sum(axis=1, keepdims=True)).astype(np.float32)


def trained(certainty: float = 4.0) -> Any:
    """Probabilities as a classifier has them that is right three times in four."""
    answers = np.where(RANDOM.random(100) < 0.75, LABELS, RANDOM.integers(0, 5, 100))
    return probabilities(RANDOM.normal(0, 1, (100, 5)) + certainty * np.eye(5)[answers])


def remarks(output: Any) -> str:
    return "; ".join(answer_remarks({"scores": output}))


@pytest.mark.parametrize("certainty", [1.0, 4.0, 20.0])
def test_the_answers_of_a_trained_model_are_not_strange(certainty):
    output = trained(certainty)
    assert remarks(output) == ""
    assert remarks(np.log(output + 1e-9)) == ""
    assert not is_at_chance(output, LABELS)
    # However its classes are numbered.
    assert not is_at_chance(output[:, ::-1], LABELS)


@pytest.mark.parametrize(
    ("output", "remark"),
    [
        (probabilities(1000 * RANDOM.normal(0, 1, (100, 5))), "exactly 0 and 1"),
        (probabilities(np.float64([[3, 1, 1]]) + RANDOM.normal(0, 0.1, (100, 3))), "same answer"),
        (0.2 + 1e-5 * RANDOM.normal(0, 1, (100, 5)).astype(np.float32), "hardly differs"),
        (np.full((30, 2), 0.5, np.float32), "hardly differs"),
        (np.float32(RANDOM.random((100, 1)) > 0.5), "exactly 0 and 1"),
    ],
)
def test_answers_that_no_training_gives_are_named(output, remark):
    assert remark in remarks(output)
    # A few may be so by chance.
    assert remarks(output[:8]) == ""


def test_answers_that_do_not_depend_on_the_labels_are_named():
    output = trained()
    shuffled = np.random.default_rng(1).permutation(LABELS)
    assert is_at_chance(output, shuffled)
    assert not is_at_chance(output[:30], shuffled[:30])
    # Labels that are no classes, or one for all, are not compared.
    assert not is_at_chance(output, None)
    assert not is_at_chance(output, shuffled.astype(np.float32))
    assert not is_at_chance(output, np.zeros(100, np.int64))


@pytest.mark.parametrize(
    "output",
    [
        RANDOM.normal(0, 500, (100, 5)).astype(np.float32),  # no probabilities
        np.full((100, 1), 0.999, np.float32),
        np.zeros((0, 3), np.float32),
        np.arange(100),
        np.full((100, 3), np.nan, np.float32),
    ],
)
def test_what_is_not_a_probability_is_not_saturated(output):
    assert not is_saturated(output)
    assert "exactly" not in remarks(output)


def test_the_largest_of_values_that_are_no_classes_is_no_answer():
    """As of coordinates, or of an autoencoder: one of them is always the largest."""
    values = RANDOM.normal(0, 1, (64, 8)).astype(np.float32) + np.float32([9, 0, 0, 0, 0, 0, 0, 0])
    assert remarks(values) == ""


def test_answers_tell_nothing_that_are_all_the_same_and_all_that_are_certain_and_differ():
    certain = np.eye(5, dtype=np.float32)[np.arange(100) % 5]
    assert information(certain) == pytest.approx(1)
    assert information(certain[[0] * 100]) == pytest.approx(0)
    assert information(np.full((100, 5), 0.2, np.float32)) == pytest.approx(0)
    assert 0.1 < information(trained(1.0)) < information(trained(4.0)) < 1
    # Scores are as good as their probabilities, and what has no classes tells nothing.
    assert information(np.log(trained() + 1e-9)) == pytest.approx(information(trained()), abs=0.1)
    assert information(certain[:, :1]) == information(certain.reshape(100, 5, 1)) == 0
