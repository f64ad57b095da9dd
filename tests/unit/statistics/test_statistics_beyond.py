"""What is better beyond noise, and what is equal."""

import math
import random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from scipy.stats import t as student

from edgeconv.measure.timing import make_latency
from edgeconv.statistics.comparison import (
    is_faster,
    is_more_accurate,
    latency_ratio_interval,
    median_interval,
    pareto_front,
    ratio_bounds,
    unpaired_ratio_bounds,
)
from edgeconv.statistics.estimate import proportion_bounds
from edgeconv.types import Accuracy, Latency

LEVEL = 0.05


def timed(*rounds: tuple[float, ...]) -> Latency:
    return make_latency(rounds, load_us=(), first_us=(), threads=1, batch=1)


def by_median(*medians: float) -> Latency:
    return timed(*((0.9 * one, one, 1.3 * one) for one in medians))


def of(correct: str) -> Accuracy:
    return Accuracy(value=correct.count("1") / len(correct), samples=len(correct), correct=correct)


def test_a_ratio_within_noise_is_no_difference_and_beyond_it_is():
    slow = by_median(100.0, 101.0, 99.0)
    assert is_faster(by_median(70.0, 71.0, 72.0), slow)
    assert not is_faster(slow, by_median(70.0, 71.0, 72.0))
    # Student's interval of the three ratios' logarithms.
    ratio = latency_ratio_interval(by_median(70.0, 71.0, 72.0), slow)
    assert ratio == pytest.approx((0.674, 0.748), abs=5e-4)
    noisy = by_median(50.0, 71.0, 110.0)
    assert 100.0 / noisy.p50_us == pytest.approx(1.40, abs=0.02)
    assert not is_faster(noisy, slow)
    assert not is_faster(slow, noisy)


def test_what_slows_every_model_of_a_round_hides_no_difference():
    slow, quick = by_median(100.0, 300.0, 170.0), by_median(50.0, 150.0, 85.0)
    assert is_faster(quick, slow)
    assert latency_ratio_interval(quick, slow) == pytest.approx((0.5, 0.5))


def test_a_lone_round_has_no_ratio_but_the_intervals_within_it_tell_far_apart_times():
    one, other = timed((10.0, 10.1, 9.9, 10.0)), timed((500.0, 501.0, 499.0, 500.0))
    assert latency_ratio_interval(one, other) is None
    assert is_faster(one, other)
    assert not is_faster(one, timed((10.1, 10.0, 10.0, 10.2)))


@pytest.mark.parametrize("bad", [0.0, math.inf, math.nan, -1.0])
def test_times_that_are_none_have_no_ratio(bad):
    good = by_median(1.0, 2.0)
    broken = msgspec.structs.replace(good, rounds_us=((bad,), (1.0,)))
    assert latency_ratio_interval(good, broken) is None
    assert latency_ratio_interval(msgspec.structs.replace(good, rounds_us=((), ())), good) is None


def test_equal_models_are_told_apart_as_rarely_as_the_level_says():
    """Processes differ by 10 %, all models of a round are slowed alike, samples by 3 %."""
    rng = random.Random(5)
    wrong, count = 0, 400
    for _ in range(count):
        mood = [rng.lognormvariate(0, 0.5) for _ in range(3)]
        models = []
        for _ in range(2):
            starts = [100 * m * rng.lognormvariate(0, 0.1) for m in mood]
            models.append(
                timed(*(tuple(s * rng.lognormvariate(0, 0.03) for _ in range(9)) for s in starts))
            )
        wrong += is_faster(*models) or is_faster(models[1], models[0])
    assert wrong / count < 0.085


def test_accuracies_differ_where_more_samples_did_than_chance_explains():
    good, bad = of("1" * 90 + "0" * 10), of("1" * 60 + "0" * 40)
    assert is_more_accurate(good, bad)
    assert not is_more_accurate(bad, good)
    near = of("1" * 89 + "0" * 11)
    assert not is_more_accurate(good, near)


def test_a_metric_of_numbers_is_better_in_its_own_direction():
    def error(*values: float) -> Accuracy:
        mean = sum(values) / len(values)
        return Accuracy(
            metric="mae", value=mean, samples=len(values), higher_is_better=False, per_sample=values
        )

    low, high = error(1.0, 1.1, 0.9, 1.0), error(2.0, 2.2, 1.9, 2.1)
    assert is_more_accurate(low, high)
    assert not is_more_accurate(high, low)
    plain = Accuracy(metric="f1", value=0.9, samples=4)
    assert is_more_accurate(plain, msgspec.structs.replace(plain, value=0.8))


POINTS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12)


@given(POINTS)
def test_the_front_has_what_no_other_beats(points):
    found = pareto_front(points, lambda a, b: a[0] < b[0], lambda a, b: a[1] > b[1])
    for point, is_best in zip(points, found, strict=True):
        beaten = any(o != point and o[0] <= point[0] and o[1] >= point[1] for o in points)
        assert is_best != beaten
    assert any(found) == bool(points)


@given(POINTS, st.integers(0, 4))
def test_noise_never_empties_the_front_nor_keeps_what_is_beaten_in_both(points, noise):
    found = pareto_front(points, lambda a, b: a[0] + noise < b[0], lambda a, b: a[1] > b[1] + noise)
    assert any(found) == bool(points)
    best = [point for point, is_best in zip(points, found, strict=True) if is_best]
    for point in best:
        assert not any(o[0] + noise < point[0] and o[1] > point[1] + noise for o in points)


@given(st.floats(0.5, 2.0), st.floats(1.0, 1.5), st.floats(1.0, 1.5))
def test_two_medians_that_were_not_timed_together_have_both_their_widths(ratio, one, other):
    low, high = unpaired_ratio_bounds(ratio, (ratio / one, ratio * one), 1.0, (1 / other, other))
    assert low * high == pytest.approx(ratio**2)
    assert high >= ratio * max(one, other) * (1 - 1e-9)
    assert high <= ratio * one * other * (1 + 1e-9)
    times = by_median(50.0, 52.0, 48.0)
    alone = unpaired_ratio_bounds(times.p50_us, median_interval(times.rounds_us), 1.0, (1.0, 1.0))
    assert alone == pytest.approx(times.p50_interval_us)


def rounds(*medians: float) -> list[tuple[float, ...]]:
    return [(median * 0.9, median, median * 1.2) for median in medians]


def test_a_ratio_is_bounded_by_how_much_it_changes_from_round_to_round():
    ours, other = rounds(50.0, 52.0, 48.0), rounds(100.0, 100.0, 100.0)
    low, high = ratio_bounds(ours, other, LEVEL, LEVEL)
    error = np.std(np.log([0.5, 0.52, 0.48]), ddof=1) / math.sqrt(3)
    factor = math.exp(student.isf(LEVEL, 2) * error)
    assert (low, high) == pytest.approx((0.5 / factor, 0.5 * factor))


def test_what_slows_both_down_changes_nothing():
    slow = [1.0, 3.0, 1.7]
    ours = rounds(*(50 * factor for factor in slow))
    other = rounds(*(100 * factor for factor in slow))
    assert ratio_bounds(ours, other, LEVEL, LEVEL) == pytest.approx((0.5, 0.5))
    low, high = median_interval(ours)
    assert high > 1.5 * low


def test_each_bound_of_a_ratio_has_a_level_of_its_own():
    ours, other = rounds(50.0, 52.0, 48.0), rounds(100.0, 101.0, 99.0)
    wide, narrow = ratio_bounds(ours, other, 0.001, LEVEL), ratio_bounds(ours, other, LEVEL, LEVEL)
    assert wide[0] < narrow[0]
    assert wide[1] == narrow[1]


def test_one_round_or_different_numbers_of_them_bound_nothing():
    assert ratio_bounds(rounds(50.0), rounds(100.0), LEVEL, LEVEL) == (0.0, math.inf)
    assert ratio_bounds(rounds(50.0, 51.0), rounds(100.0), LEVEL, LEVEL) == (0.0, math.inf)


def test_the_interval_of_a_median_is_wider_at_a_lower_level():
    times = rounds(50.0, 55.0, 60.0)
    low, high = median_interval(times, 0.1)
    lower, higher = median_interval(times, 0.01)
    assert lower < low < high < higher
    assert median_interval(times, 0.05) == median_interval(times)


@given(st.integers(0, 60), st.integers(1, 60), st.sampled_from([0.05, 0.001]))
def test_a_share_has_the_bounds_of_clopper_and_pearson(count, more, level):
    samples = count + more
    ends = binomtest(count, samples).proportion_ci(1 - 2 * level, method="exact")
    found = proportion_bounds(count, samples, level, level)
    assert found == pytest.approx((ends.low, ends.high), abs=1e-9)
