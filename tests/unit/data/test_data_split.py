import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sources import split_taken

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
    ("total", "held"), [(2, 1), (9, 1), (20, 2), (79, 11), (447, 63), (500, 64), (5000, 64)]
)
def test_without_a_count_one_to_64_samples_are_held_back(total, held):
    calibration, held_back = split_taken(numbered(total), None)
    assert (calibration.count, held_back.count) == (total - held, held)


def test_a_single_sample_serves_both():
    for count in (None, 1):
        calibration, held_back = split_taken(numbered(1), count)
        assert indices(calibration) == indices(held_back) == [0]


def test_a_count_is_the_number_that_calibrates():
    calibration, held_back = split_taken(numbered(100), 20)
    assert (calibration.count, held_back.count) == (20, 64)


def test_fewer_than_64_are_held_back_where_fewer_are_left():
    assert split_taken(numbered(10), 7)[1].count == 3


def test_with_a_count_of_all_the_last_ones_serve_both():
    samples = numbered(20)
    calibration, held_back = split_taken(samples, 20)
    assert indices(calibration) == list(range(20))
    assert indices(held_back) == list(range(20))
    assert calibration.count + held_back.count > samples.count


def test_asking_for_more_than_there_are_is_refused():
    with pytest.raises(InputRefused, match="the request is for 11 samples, the source has 10"):
        split_taken(numbered(10), 11)


@pytest.mark.parametrize("count", [0, -1])
def test_asking_for_none_is_a_usage_error(count):
    with pytest.raises(UsageError, match="at least 1"):
        split_taken(numbered(10), count)


def test_labels_stay_with_their_samples():
    samples = numbered(40, [index % 4 for index in range(40)])
    for part in split_taken(samples, 13):
        assert part.labels.tolist() == [index % 4 for index in indices(part)]


def test_both_parts_are_whole_batches():
    calibration, held_back = split_taken(numbered(30), None, batch=3)
    assert (calibration.count, held_back.count) == (24, 6)
    calibration, held_back = split_taken(numbered(30), 18, batch=3)
    assert (calibration.count, held_back.count) == (18, 12)


def test_a_single_batch_serves_both():
    calibration, held_back = split_taken(numbered(4), None, batch=4)
    assert (calibration.count, held_back.count) == (4, 4)


def test_a_part_of_a_batch_is_refused():
    with pytest.raises(InputRefused, match="source has 10 samples, and the model takes 4"):
        split_taken(numbered(10), None, batch=4)
    with pytest.raises(InputRefused, match="the request is for 6 samples, and the model takes 4"):
        split_taken(numbered(10), 6, batch=4)


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
