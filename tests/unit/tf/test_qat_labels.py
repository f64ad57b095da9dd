"""What labels are for an output of a model, and how far the output is right."""

import numpy as np
import pytest
from wording import fails

from edgeconv.tf.qat.labels import (
    kind_of_labels,
    labels_by_output,
    metric_name,
    misfits,
    right_shares,
    rows_of,
)
from edgeconv.types.errors import InputRefused

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 3, (40, 5)).astype(np.float32)
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=-1, keepdims=True)
SIGMOIDS = 1 / (1 + np.exp(-LOGITS))
NUMBERS = RNG.integers(0, 5, 40)
ONE_HOT = np.eye(5, dtype=np.float32)[NUMBERS]
TAGS = RNG.integers(0, 2, (40, 5))
MASKS = RNG.uniform(size=(40, 8, 8, 3)).astype(np.float32)
MASKS /= MASKS.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("scores", "labels", "loss", "kind"),
    [
        (PROBABILITIES, NUMBERS, "", "classes"),
        (PROBABILITIES, NUMBERS[:, None].astype(np.float32), "", "classes"),
        (PROBABILITIES, ONE_HOT, "", "classes"),
        (LOGITS, ONE_HOT, "", "classes"),
        (LOGITS, NUMBERS, "mean_squared_error", "classes"),
        (PROBABILITIES, ONE_HOT, "mean_squared_error", "values"),
        (SIGMOIDS, TAGS.astype(np.float32), "", "binary"),
        (LOGITS, TAGS, "", "binary"),
        (LOGITS, TAGS.astype(np.float32), "", "values"),
        (LOGITS, TAGS.astype(np.float32), "binary_crossentropy", "binary"),
        (SIGMOIDS, SIGMOIDS * 0.9, "binary_crossentropy", "values"),
        (PROBABILITIES, PROBABILITIES[::-1], "categorical_crossentropy", "values"),
        (LOGITS, LOGITS + 1, "", "values"),
        (SIGMOIDS[:, :1], TAGS[:, 0], "", "binary"),
        (LOGITS[:, :1], TAGS[:, 0], "", "binary"),
        (LOGITS[:, :1], NUMBERS * 20, "", "values"),
        (LOGITS[:, :1], LOGITS[:, 0], "", "values"),
        (MASKS, RNG.integers(0, 3, (40, 8, 8)).astype(np.uint8), "", "classes"),
        (MASKS, RNG.integers(0, 3, (40, 8, 8, 1)), "", "classes"),
        (MASKS[..., :1], RNG.integers(0, 2, (40, 8, 8)), "", "binary"),
        (MASKS[..., :1] * 4, MASKS[..., 0], "", "values"),
    ],
)
def test_labels_are_classes_yes_or_no_or_values_by_shape_value_and_loss(scores, labels, loss, kind):
    assert kind_of_labels("y", scores, labels, loss) == kind


@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        (PROBABILITIES, NUMBERS + 1),
        (PROBABILITIES, NUMBERS - 1),
        (PROBABILITIES, LOGITS[:, :3]),
        (PROBABILITIES, LOGITS[:, 0]),
        (SIGMOIDS[:, :1], NUMBERS),
        (MASKS[..., :1], 255 * RNG.integers(0, 2, (40, 8, 8))),
        (MASKS, NUMBERS),
    ],
)
def test_labels_that_do_not_fit_are_refused(scores, labels):
    with pytest.raises(InputRefused):
        kind_of_labels("y", scores, labels)


def test_a_wrong_shape_says_what_fits_and_how_to_train_without_labels():
    with fails(InputRefused) as raised:
        kind_of_labels("box", LOGITS, LOGITS[:, :3])
    for way in ("?labels=none", "--qat-target model"):
        assert way in (raised.value.hint or "")


def test_labels_of_several_outputs_are_fields():
    rows = np.zeros(3, [("kind", "<i8"), ("box", "<f4", (4,))])
    found = labels_by_output(rows, ["kind", "box"])
    assert {name: array.shape for name, array in found.items()} == {"kind": (3,), "box": (3, 4)}
    assert labels_by_output(None, ["kind", "box"]) == {}
    with pytest.raises(InputRefused) as raised:
        labels_by_output(NUMBERS, ["kind", "box"])
    assert "kind=…, box=…" in (raised.value.hint or "")


def test_one_hot_labels_and_class_numbers_have_the_same_rows():
    numbers = rows_of("classes", NUMBERS, (5,))
    assert np.array_equal(rows_of("classes", ONE_HOT, (5,)), numbers)
    assert numbers.shape == (40, 1)


def test_a_share_of_right_classes_tags_and_variance():
    assert right_shares("classes", ONE_HOT, NUMBERS).tolist() == [1.0] * 40
    wrong = right_shares("classes", np.roll(ONE_HOT, 1, axis=1), NUMBERS)
    assert wrong.tolist() == [0.0] * 40
    half = np.where(np.arange(5) < 2, TAGS, 1 - TAGS).astype(np.float32)
    assert right_shares("binary", half, TAGS) == pytest.approx(np.full(40, 0.4))
    assert right_shares("values", LOGITS, LOGITS).mean() == 1
    means = np.full_like(LOGITS, LOGITS.mean())
    assert right_shares("values", means, LOGITS).mean() == pytest.approx(0, abs=1e-5)
    # A row of half of the pixels right.
    labels = np.zeros((2, 4, 4), np.int64)
    scores = np.zeros((2, 4, 4, 3), np.float32)
    scores[:, :2, :, 0] = scores[:, 2:, :, 1] = 1
    assert right_shares("classes", scores, labels).tolist() == [0.5, 0.5]


def test_labels_in_another_unit_are_noticed():
    kinds = {"a": "values", "b": "values", "c": "classes"}
    scores = {"a": LOGITS, "b": LOGITS, "c": PROBABILITIES}
    labels = {"a": LOGITS * 100, "b": LOGITS + 0.1, "c": NUMBERS}
    assert misfits(kinds, scores, labels) == ()
    assert misfits(kinds, scores, labels | {"a": LOGITS + 100}) == ("a",)


@pytest.mark.parametrize(
    ("kinds", "name"),
    [
        (["classes", "binary"], "accuracy"),
        (["values", "model"], "explained_variance"),
        (["values", "classes"], "mean_score"),
    ],
)
def test_a_mean_over_outputs_is_called_by_what_they_are(kinds, name):
    assert metric_name(kinds) == name
