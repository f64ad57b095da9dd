import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sources import split_taken
from wording import fails

from edgeconv.data import Samples
from edgeconv.types.errors import InputRefused, UsageError


def numbered(count: int, labels: list[int] | None = None) -> Samples:
    """Samples whose value is their index."""
    values = np.arange(count, dtype=np.float32)[:, None]
    return Samples({"x": values}, None if labels is None else np.array(labels), "test")


def indices(samples: Samples) -> list[int]:
    return [int(value) for value in samples.arrays["x"][:, 0]]


def test_without_a_count_a_seventh_is_held_back_and_the_rest_calibrates():
    calibration, held_back = split_taken(numbered(30), None)
    assert (calibration.count, held_back.count) == (26, 4)
    assert sorted(indices(calibration) + indices(held_back)) == list(range(30))


@pytest.mark.parametrize(
    ("total", "count", "batch", "counts"),
    [
        (2, None, 1, (1, 1)),
        (9, None, 1, (8, 1)),
        (20, None, 1, (18, 2)),
        (79, None, 1, (68, 11)),
        (447, None, 1, (384, 63)),
        (500, None, 1, (436, 64)),
        (5000, None, 1, (4936, 64)),
        (100, 20, 1, (20, 64)),
        (10, 7, 1, (7, 3)),
        (30, None, 3, (24, 6)),
        (30, 18, 3, (18, 12)),
        (4, None, 4, (4, 4)),
    ],
)
def test_a_seventh_and_64_at_most_are_held_back_in_whole_batches(total, count, batch, counts):
    parts = split_taken(numbered(total), count, batch=batch)
    assert tuple(part.count for part in parts) == counts


@pytest.mark.parametrize(
    ("count", "batch", "kind"),
    [
        (11, 1, InputRefused),
        (0, 1, UsageError),
        (-1, 1, UsageError),
        (None, 4, InputRefused),
        (6, 4, InputRefused),
    ],
)
def test_a_count_that_cannot_be_is_refused(count, batch, kind):
    with fails(kind):
        split_taken(numbered(10), count, batch=batch)


def test_a_single_sample_serves_both():
    for count in (None, 1):
        calibration, held_back = split_taken(numbered(1), count)
        assert indices(calibration) == indices(held_back) == [0]


def test_with_a_count_of_all_the_last_ones_serve_both():
    samples = numbered(20)
    calibration, held_back = split_taken(samples, 20)
    assert indices(calibration) == list(range(20))
    assert indices(held_back) == list(range(20))
    assert calibration.count + held_back.count > samples.count


def test_labels_stay_with_their_samples():
    samples = numbered(40, [index % 4 for index in range(40)])
    for part in split_taken(samples, 13):
        assert part.labels.tolist() == [index % 4 for index in indices(part)]


@st.composite
def labelled_splits(draw: st.DrawFn) -> tuple[list[int], int]:
    labels = draw(st.lists(st.integers(0, 5), min_size=2, max_size=80))
    return labels, draw(st.integers(1, len(labels) - 1))


@given(labelled_splits())
def test_parts_are_disjoint_ascending_and_repeatable(case):
    labels, count = case
    samples = numbered(len(labels), labels)
    calibration, held_back = map(indices, split_taken(samples, count))
    assert not set(calibration) & set(held_back)
    assert calibration == sorted(set(calibration))
    assert held_back == sorted(set(held_back))
    assert len(calibration) == count
    assert len(held_back) == min(64, len(labels) - count)
    assert [calibration, held_back] == list(map(indices, split_taken(samples, count)))


@given(labelled_splits())
def test_every_label_gets_its_share_to_within_one_sample(case):
    labels, count = case
    calibration, _ = split_taken(numbered(len(labels), labels), count)
    chosen = calibration.labels.tolist()
    for label in set(labels):
        share = labels.count(label) * count / len(labels)
        assert abs(chosen.count(label) - share) < 1


@given(st.integers(2, 200), st.data())
def test_samples_without_labels_are_spread_over_the_source(total, data):
    count = data.draw(st.integers(1, total - 1))
    calibration, held_back = map(indices, split_taken(numbered(total), count))
    assert len(set(calibration)) == count
    assert not set(calibration) & set(held_back)


def test_the_choice_is_not_just_the_first_ones():
    assert max(indices(split_taken(numbered(1000), 50)[0])) > 500
