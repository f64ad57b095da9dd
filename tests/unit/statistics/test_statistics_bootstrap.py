import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from edgeconv.statistics.bootstrap import (
    KEPT,
    MeanOf,
    RelativeMean,
    Resampling,
    mean_bounds,
    resampled_scores,
)
from edgeconv.statistics.drop import MatchedDrop
from edgeconv.statistics.estimate import Levels

LEVEL = 0.05
LEVELS = Levels(LEVEL, LEVEL, 0.05)
DRAWS = Resampling(2000, 0)


def drawn(seed: int, samples: int, mean: float = 0.0) -> tuple[float, ...]:
    return tuple(np.random.default_rng(seed).normal(mean, 1.0, samples).tolist())


def test_normal_numbers_have_nearly_students_bounds_and_never_narrower_ones():
    values = drawn(1, 400, 0.3)
    low, high = mean_bounds(values, 4.0, LEVEL, LEVEL, DRAWS)
    mean, error = np.mean(values), np.std(values, ddof=1) / 20
    half = student.isf(KEPT * LEVEL, 399) * error
    assert low <= mean - half
    assert high >= mean + half
    assert high - low == pytest.approx(2 * half, rel=0.1)


def test_skewed_numbers_have_the_wider_bound_where_their_tail_is():
    values = tuple(np.random.default_rng(1).exponential(size=100).tolist())
    low, high = mean_bounds(values, 10.0, LEVEL, LEVEL, DRAWS)
    mean = float(np.mean(values))
    assert high - mean > 1.15 * (mean - low)


def test_the_same_seed_gives_the_same_bounds_and_another_one_nearly_the_same():
    values = tuple(np.random.default_rng(3).exponential(size=80).tolist())
    first = mean_bounds(values, 10.0, LEVEL, LEVEL, Resampling(2000, 1))
    resampled_scores.cache_clear()
    assert mean_bounds(values, 10.0, LEVEL, LEVEL, Resampling(2000, 1)) == first
    other = mean_bounds(values, 10.0, LEVEL, LEVEL, Resampling(2000, 2))
    assert other != first
    assert other == pytest.approx(first, rel=0.1)


def test_right_and_wrong_answers_have_nearly_the_exact_bounds():
    values = (1.0,) * 60 + (-1.0,) * 30 + (0.0,) * 910
    low, high = mean_bounds(values, 1.0, LEVEL, LEVEL, Resampling(20_000, 0))
    exact = MatchedDrop(60, 30, 1000)
    assert exact.is_above(low - 0.002, LEVEL)
    assert not exact.is_above(low + 0.002, LEVEL)
    assert exact.is_below(high + 0.002, LEVEL)
    assert not exact.is_below(high - 0.002, LEVEL)


@pytest.mark.parametrize("samples", [20, 100])
def test_numbers_that_never_differ_do_not_prove_that_they_never_will(samples):
    low, high = mean_bounds((0.0,) * samples, 2.0, LEVEL, LEVEL, DRAWS)
    assert high == pytest.approx(2.0 * (1 - (KEPT * LEVEL) ** (1 / samples)))
    assert low == -high


def test_a_single_number_can_be_anything():
    assert mean_bounds((0.5,), 2.0, LEVEL, LEVEL, DRAWS) == (-2.0, 2.0)
    assert mean_bounds((0.0,), 0.0, LEVEL, LEVEL, DRAWS) == (-math.inf, math.inf)


@pytest.mark.parametrize("shape", ["normal", "laplace", "uniform"])
def test_a_bound_is_wrong_about_as_often_as_its_level_at_most(shape):
    rng = np.random.default_rng(4)
    draw = {"normal": rng.normal, "laplace": rng.laplace, "uniform": rng.uniform}[shape]
    truth = 0.5 if shape == "uniform" else 0.0
    above = below = 0
    for number in range(400):
        values = tuple(draw(size=60).tolist())
        low, high = mean_bounds(values, 5.0, LEVEL, LEVEL, Resampling(500, number))
        above += low > truth
        below += high < truth
    # 400 draws of 5 % are above 33 once in a thousand.
    assert above <= 33
    assert below <= 33


@given(
    st.lists(st.integers(-6400, 6400).map(lambda v: v / 64), min_size=2, max_size=40),
    st.sampled_from([2.0**-40, 0.5, 4.0, 2.0**40]),
)
@settings(deadline=None, max_examples=40)
def test_the_mean_is_inside_and_the_unit_does_not_matter(values, unit):
    low, high = mean_bounds(tuple(values), 200.0, LEVEL, LEVEL, Resampling(200, 0))
    mean = math.fsum(values) / len(values)
    assert low <= mean + 1e-9
    assert high >= mean - 1e-9
    scaled = tuple(v * unit for v in values)
    bounds = mean_bounds(scaled, 200.0 * unit, LEVEL, LEVEL, Resampling(200, 0))
    assert bounds == pytest.approx((low * unit, high * unit), rel=1e-6, abs=1e-6 * unit)


def test_samples_are_enough_by_how_much_they_differ():
    near, far = MeanOf(drawn(5, 50), 4.0, DRAWS), MeanOf(drawn(6, 50), 4.0, DRAWS)
    assert near.enough(0.1, LEVELS) == pytest.approx(far.enough(0.1, LEVELS), rel=0.6)
    assert near.enough(0.1, LEVELS) > 3 * near.enough(0.2, LEVELS)
    assert near.enough(0.0, LEVELS) is None


def test_with_enough_samples_a_mean_of_twice_the_limit_is_caught():
    enough = MeanOf(drawn(7, 50), 4.0, DRAWS).enough(0.3, LEVELS)
    caught = passed = 0
    for number in range(100):
        quick = Resampling(500, number)
        caught += MeanOf(drawn(number, enough, 0.6), 4.0, quick).is_above(0.3, 0.05)
        passed += MeanOf(drawn(number, enough), 4.0, quick).is_below(0.3, 0.05)
    assert caught >= 92
    assert passed >= 92


def test_a_relative_mean_is_that_over_the_other():
    of = tuple(0.1 + 0.01 * v for v in drawn(8, 200))
    to = tuple(2.0 + 0.1 * v for v in drawn(9, 200))
    share = RelativeMean(MeanOf(of, 1.0, DRAWS), to)
    assert share.value == pytest.approx(0.05, abs=0.002)
    assert share.is_above(0.04, LEVEL)
    assert not share.is_above(share.value, LEVEL)
    assert not share.is_below(share.value, LEVEL)
    assert share.is_below(0.06, LEVEL)
    plain = MeanOf(of, 1.0, DRAWS).enough(0.08, LEVELS)
    assert share.enough(0.04, LEVELS) == pytest.approx(plain, rel=0.3)
