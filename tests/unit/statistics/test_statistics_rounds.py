from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from scipy.stats import t as student

from edgeconv.statistics.proportion import proportion_bounds
from edgeconv.statistics.rounds import median_interval, ratio_bounds

LEVEL = 0.05


def rounds(*medians: float) -> list[tuple[float, ...]]:
    return [(median * 0.9, median, median * 1.2) for median in medians]


def test_a_ratio_is_bounded_by_how_much_it_changes_from_round_to_round() -> None:
    ours, other = rounds(50.0, 52.0, 48.0), rounds(100.0, 100.0, 100.0)
    low, high = ratio_bounds(ours, other, LEVEL, LEVEL)
    error = np.std(np.log([0.5, 0.52, 0.48]), ddof=1) / math.sqrt(3)
    factor = math.exp(student.isf(LEVEL, 2) * error)
    assert (low, high) == pytest.approx((0.5 / factor, 0.5 * factor))


def test_what_slows_both_down_changes_nothing() -> None:
    slow = [1.0, 3.0, 1.7]
    ours = rounds(*(50 * factor for factor in slow))
    other = rounds(*(100 * factor for factor in slow))
    assert ratio_bounds(ours, other, LEVEL, LEVEL) == pytest.approx((0.5, 0.5))
    low, high = median_interval(ours)
    assert high > 1.5 * low


def test_each_bound_of_a_ratio_has_a_level_of_its_own() -> None:
    ours, other = rounds(50.0, 52.0, 48.0), rounds(100.0, 101.0, 99.0)
    wide, narrow = ratio_bounds(ours, other, 0.001, LEVEL), ratio_bounds(ours, other, LEVEL, LEVEL)
    assert wide[0] < narrow[0]
    assert wide[1] == narrow[1]


def test_one_round_or_different_numbers_of_them_bound_nothing() -> None:
    assert ratio_bounds(rounds(50.0), rounds(100.0), LEVEL, LEVEL) == (0.0, math.inf)
    assert ratio_bounds(rounds(50.0, 51.0), rounds(100.0), LEVEL, LEVEL) == (0.0, math.inf)


def test_the_interval_of_a_median_is_wider_at_a_lower_level() -> None:
    times = rounds(50.0, 55.0, 60.0)
    low, high = median_interval(times, 0.1)
    lower, higher = median_interval(times, 0.01)
    assert lower < low < high < higher
    assert median_interval(times, 0.05) == median_interval(times)


@given(st.integers(0, 60), st.integers(1, 60), st.sampled_from([0.05, 0.001]))
def test_a_share_has_the_bounds_of_clopper_and_pearson(count: int, more: int, level: float) -> None:
    samples = count + more
    ends = binomtest(count, samples).proportion_ci(1 - 2 * level, method="exact")
    found = proportion_bounds(count, samples, level, level)
    assert found == pytest.approx((ends.low, ends.high), abs=1e-9)
