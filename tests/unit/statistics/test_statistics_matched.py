"""The exact test of a drop, held against the probability of every outcome there is."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, multinomial, norm

from edgeconv.statistics.drop import MatchedDrop, RelativeDrop, drop_bounds
from edgeconv.statistics.matched import drop_p_value, is_above, score

LEVEL = 0.05
COUNTS = st.tuples(*[st.integers(0, 30)] * 3).filter(any)


@cache
def outcomes(samples: int) -> tuple[tuple[int, int, int], ...]:
    """All (lost, won, alike)."""
    pairs = ((a, b) for a in range(samples + 1) for b in range(samples + 1 - a))
    return tuple((a, b, samples - a - b) for a, b in pairs)


def likely(samples: int, drop: float, won: float) -> np.ndarray:
    """The probability of each outcome."""
    shares = [won + drop, won, max(0.0, 1 - 2 * won - drop)]
    return multinomial.pmf(outcomes(samples), samples, shares)


@pytest.mark.parametrize("samples", [6, 20, 45])
@pytest.mark.parametrize("drop", [-0.05, 0.0, 0.01, 0.1, 0.4])
@pytest.mark.parametrize("level", [0.05, 0.004])
def test_the_test_is_never_wrong_more_often_than_its_level(
    samples: int, drop: float, level: float
) -> None:
    said = np.array([is_above(a, b, samples, drop, level) for a, b, _ in outcomes(samples)])
    for won in np.linspace(max(0.0, -drop), (1 - drop) / 2, 40):
        assert likely(samples, drop, float(won))[said].sum() <= level


def test_a_smaller_true_drop_is_said_to_be_above_the_limit_less_often_still() -> None:
    samples, limit = 30, 0.1
    said = np.array([is_above(a, b, samples, limit, LEVEL) for a, b, _ in outcomes(samples)])
    for drop in (0.0, 0.05, 0.09):
        for won in np.linspace(0, (1 - drop) / 2, 20):
            assert likely(samples, drop, float(won))[said].sum() <= LEVEL


def test_the_p_value_is_the_worst_tail_there_is() -> None:
    lost, won, samples, drop = 9, 2, 40, 0.05
    scores = np.array([float(score(a, b, samples, drop)) for a, b, _ in outcomes(samples)])
    tail = scores >= float(score(lost, won, samples, drop)) - 1e-9
    worst = max(likely(samples, drop, share)[tail].sum() for share in np.linspace(0, 0.475, 400))
    # Only shares that are not ruled out are looked at, and what that may cost is added.
    assert drop_p_value(lost, won, samples, drop, LEVEL) <= worst + 0.02 * LEVEL
    assert drop_p_value(lost, won, samples, drop, LEVEL) == pytest.approx(worst, abs=0.01)


def test_it_is_nearly_as_sharp_as_the_normal_distribution_for_many_samples() -> None:
    exact = drop_p_value(300, 200, 10_000, 0.005, LEVEL)
    assert exact == pytest.approx(norm.sf(float(score(300, 200, 10_000, 0.005))), abs=0.002)


def test_it_is_sharper_than_the_test_of_those_that_differ_alone() -> None:
    # Five of 50 lost and none won: by the five alone, as McNemar's exact test has it, 1 in 32.
    assert binomtest(5, 5, alternative="greater").pvalue == 1 / 32
    assert drop_p_value(5, 0, 50, 0.0, LEVEL) < 1 / 32


def test_what_is_not_above_the_limit_is_not_said_to_be() -> None:
    assert drop_p_value(1, 1, 50, 0.0, LEVEL) == 1.0
    assert drop_p_value(0, 9, 50, 0.0, LEVEL) == 1.0


@given(COUNTS, st.sampled_from([0.05, 0.01]))
@settings(deadline=None, max_examples=60)
def test_the_bounds_are_those_of_the_test(counts: tuple[int, int, int], level: float) -> None:
    lost, won, _ = counts
    samples = sum(counts)
    low, high = drop_bounds(lost, won, samples, level, level)
    assert -1 <= low <= (lost - won) / samples <= high <= 1
    assert drop_bounds(won, lost, samples, level, level) == (-high, -low)
    if low > -1 and (lost or won):
        assert is_above(lost, won, samples, low, level)


def test_pairs_that_never_differ_bound_the_drop_by_the_rule_of_three() -> None:
    low, high = drop_bounds(0, 0, 300, LEVEL, LEVEL)
    assert (low, high) == pytest.approx((-0.00994, 0.00994), abs=1e-5)
    assert (1 - high) ** 300 == pytest.approx(LEVEL)


@pytest.mark.parametrize("samples", [10, 20])
@pytest.mark.parametrize("shares", [(0.02, 0.02), (0.1, 0.05), (0.3, 0.3), (0.0, 0.1)])
def test_each_bound_is_wrong_at_most_as_often_as_its_level(
    samples: int, shares: tuple[float, float]
) -> None:
    chance = multinomial.pmf(outcomes(samples), samples, [*shares, 1 - sum(shares)])
    bounds = [drop_bounds(a, b, samples, LEVEL, LEVEL) for a, b, _ in outcomes(samples)]
    truth = shares[0] - shares[1]
    assert chance[[low > truth + 1e-12 for low, _ in bounds]].sum() <= LEVEL
    assert chance[[high < truth - 1e-12 for _, high in bounds]].sum() <= LEVEL


def test_a_bound_at_a_lower_level_is_further_out() -> None:
    low, high = drop_bounds(12, 3, 200, 0.05, 0.05)
    lower, higher = drop_bounds(12, 3, 200, 0.005, 0.005)
    assert lower < low < high < higher


@given(COUNTS, st.floats(0.0, 0.3))
@settings(deadline=None, max_examples=60)
def test_bounds_are_beyond_a_limit_only_where_the_test_at_the_limit_says_so(
    counts: tuple[int, int, int], limit: float
) -> None:
    evidence = MatchedDrop(counts[0], counts[1], sum(counts))
    low, high = evidence.bounds(LEVEL, LEVEL, limit)
    if low > limit:
        assert evidence.is_above(limit, LEVEL)
    if high <= limit:
        assert evidence.is_below(limit, LEVEL)


def test_a_relative_drop_is_the_drop_over_the_accuracy_before() -> None:
    evidence = RelativeDrop(MatchedDrop(30, 10, 1000), 800)
    assert evidence.value == pytest.approx(0.025)
    low, high = evidence.bounds(LEVEL, LEVEL, 0.01)
    plain = MatchedDrop(30, 10, 1000).bounds(LEVEL, LEVEL, 0.01)
    # A little wider than if the accuracy before were known to be 0.8.
    assert 0.9 * plain[0] / 0.8 < low < plain[0] / 0.8
    assert plain[1] / 0.8 < high < 1.1 * plain[1] / 0.8


@pytest.mark.parametrize("accuracy", [0.3, 0.8])
def test_a_relative_bound_is_wrong_at_most_as_often_as_its_level(accuracy: float) -> None:
    samples, limit = 200, 0.1
    rng = np.random.default_rng(3)
    lost = limit * accuracy + 0.05
    cells = [lost, 0.05, accuracy - lost, 1 - accuracy - 0.05]
    above = below = 0
    for a, b, both, _ in rng.multinomial(samples, cells, size=400).tolist():
        evidence = RelativeDrop(MatchedDrop(a, b, samples), a + both)
        above += evidence.is_above(limit, LEVEL)
        below += evidence.is_below(limit, LEVEL)
    # 400 draws of 5 % are above 33 once in a thousand.
    assert above <= 33
    assert below <= 33


def test_one_pair_says_almost_nothing() -> None:
    low, high = drop_bounds(1, 0, 1, LEVEL, LEVEL)
    assert low < -0.8
    assert high == 1.0
    assert math.isclose(drop_bounds(0, 0, 1, LEVEL, LEVEL)[1], 0.95)
