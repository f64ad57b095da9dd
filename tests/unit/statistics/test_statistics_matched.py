"""The exact test of a drop, held against the probability of every outcome there is."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, multinomial, norm

from edgeconv.statistics.drop import MatchedDrop, RelativeDrop
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


@given(COUNTS, st.floats(-0.3, 0.3))
@settings(deadline=None, max_examples=60)
def test_what_is_above_a_limit_is_above_a_lower_one_and_below_none_of_them(
    counts: tuple[int, int, int], limit: float
) -> None:
    drop = MatchedDrop(counts[0], counts[1], sum(counts))
    turned = MatchedDrop(counts[1], counts[0], sum(counts))
    assert turned.is_below(-limit, LEVEL) == drop.is_above(limit, LEVEL)
    if drop.is_above(limit, LEVEL):
        assert drop.value > limit
        assert not drop.is_below(limit, LEVEL)
        assert drop.is_above(limit - 0.1, LEVEL)


def test_pairs_that_never_differ_bound_the_drop_by_the_rule_of_three() -> None:
    drop = MatchedDrop(0, 0, 300)
    # What is likeliest to show nothing is that all that differ are won: 0.95 ** 300 of them.
    bound = 1 - LEVEL ** (1 / 300)
    assert drop.is_below(bound + 1e-4, LEVEL)
    assert not drop.is_below(bound - 1e-4, LEVEL)


def test_a_test_at_a_lower_level_rejects_less() -> None:
    drop = MatchedDrop(12, 3, 200)
    assert drop.is_above(0.005, 0.05)
    assert not drop.is_above(0.005, 0.005)
    assert drop.is_below(0.09, 0.05)
    assert not drop.is_below(0.09, 0.005)


def test_a_relative_drop_is_the_drop_over_the_accuracy_before() -> None:
    evidence = RelativeDrop(MatchedDrop(30, 10, 1000), 800)
    assert evidence.value == pytest.approx(0.025)
    plain = MatchedDrop(30, 10, 1000)
    # A little harder to tell than if the accuracy before were known to be 0.8.
    bound = max(d for d in np.linspace(0, 0.02, 200) if plain.is_above(float(d), LEVEL))
    assert not evidence.is_above(bound / 0.8, LEVEL)
    assert evidence.is_above(0.9 * bound / 0.8, LEVEL)


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
    lost = MatchedDrop(1, 0, 1)
    assert not lost.is_above(-0.8, LEVEL)
    assert not lost.is_below(0.99, LEVEL)
    assert MatchedDrop(0, 0, 1).is_below(0.96, LEVEL)
    assert not MatchedDrop(0, 0, 1).is_below(0.94, LEVEL)
