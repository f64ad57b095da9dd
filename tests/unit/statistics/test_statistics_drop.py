"""Drops of accuracy: tests of a limit, held against every outcome there is; enough samples."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, multinomial, norm

from edgeconv.statistics.bootstrap import MeanOf, Resampling
from edgeconv.statistics.drop import (
    MatchedDrop,
    RelativeDrop,
    UnpairedDrop,
    drop_p_value,
    enough_pairs,
    is_above,
    score,
)
from edgeconv.statistics.estimate import (
    LEVEL,
    Flips,
    Levels,
    Proportion,
    proportion_bounds,
    round_up,
    samples_to_resolve,
    share_interval,
    smallest_sufficient,
)

COUNTS = st.tuples(*[st.integers(0, 30)] * 3).filter(any)
LEVELS = Levels(0.05, 0.05, 0.05)
SIZES = 12, 20


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
def test_the_test_is_never_wrong_more_often_than_its_level(samples, drop, level):
    said = np.array([is_above(a, b, samples, drop, level) for a, b, _ in outcomes(samples)])
    for won in np.linspace(max(0.0, -drop), (1 - drop) / 2, 40):
        assert likely(samples, drop, float(won))[said].sum() <= level


def test_a_smaller_true_drop_is_said_to_be_above_the_limit_less_often_still():
    samples, limit = 30, 0.1
    said = np.array([is_above(a, b, samples, limit, LEVEL) for a, b, _ in outcomes(samples)])
    for drop in (0.0, 0.05, 0.09):
        for won in np.linspace(0, (1 - drop) / 2, 20):
            assert likely(samples, drop, float(won))[said].sum() <= LEVEL


def test_the_p_value_is_the_worst_tail_there_is():
    lost, won, samples, drop = 9, 2, 40, 0.05
    scores = np.array([float(score(a, b, samples, drop)) for a, b, _ in outcomes(samples)])
    tail = scores >= float(score(lost, won, samples, drop)) - 1e-9
    worst = max(likely(samples, drop, share)[tail].sum() for share in np.linspace(0, 0.475, 400))
    # Only shares that are not ruled out are looked at, and what that may cost is added.
    assert drop_p_value(lost, won, samples, drop, LEVEL) <= worst + 0.02 * LEVEL
    assert drop_p_value(lost, won, samples, drop, LEVEL) == pytest.approx(worst, abs=0.01)


def test_it_is_nearly_as_sharp_as_the_normal_distribution_for_many_samples():
    exact = drop_p_value(300, 200, 10_000, 0.005, LEVEL)
    assert exact == pytest.approx(norm.sf(float(score(300, 200, 10_000, 0.005))), abs=0.002)


def test_it_is_sharper_than_the_test_of_those_that_differ_alone():
    # Five of 50 lost and none won: by the five alone, as McNemar's exact test has it, 1 in 32.
    assert binomtest(5, 5, alternative="greater").pvalue == 1 / 32
    assert drop_p_value(5, 0, 50, 0.0, LEVEL) < 1 / 32


def test_what_is_not_above_the_limit_is_not_said_to_be():
    assert drop_p_value(1, 1, 50, 0.0, LEVEL) == 1.0
    assert drop_p_value(0, 9, 50, 0.0, LEVEL) == 1.0


@given(COUNTS, st.floats(-0.3, 0.3))
@settings(deadline=None, max_examples=60)
def test_what_is_above_a_limit_is_above_a_lower_one_and_below_none_of_them(counts, limit):
    drop = MatchedDrop(counts[0], counts[1], sum(counts))
    turned = MatchedDrop(counts[1], counts[0], sum(counts))
    assert turned.is_below(-limit, LEVEL) == drop.is_above(limit, LEVEL)
    if drop.is_above(limit, LEVEL):
        assert drop.value > limit
        assert not drop.is_below(limit, LEVEL)
        assert drop.is_above(limit - 0.1, LEVEL)


def test_pairs_that_never_differ_bound_the_drop_by_the_rule_of_three():
    drop = MatchedDrop(0, 0, 300)
    # What is likeliest to show nothing is that all that differ are won: 0.95 ** 300 of them.
    bound = 1 - LEVEL ** (1 / 300)
    assert drop.is_below(bound + 1e-4, LEVEL)
    assert not drop.is_below(bound - 1e-4, LEVEL)


def test_a_test_at_a_lower_level_rejects_less():
    drop = MatchedDrop(12, 3, 200)
    assert drop.is_above(0.005, 0.05)
    assert not drop.is_above(0.005, 0.005)
    assert drop.is_below(0.09, 0.05)
    assert not drop.is_below(0.09, 0.005)


def test_a_relative_drop_is_the_drop_over_the_accuracy_before():
    evidence = RelativeDrop(MatchedDrop(30, 10, 1000), 800)
    assert evidence.value == pytest.approx(0.025)
    plain = MatchedDrop(30, 10, 1000)
    # A little harder to tell than if the accuracy before were known to be 0.8.
    bound = max(d for d in np.linspace(0, 0.02, 200) if plain.is_above(float(d), LEVEL))
    assert not evidence.is_above(bound / 0.8, LEVEL)
    assert evidence.is_above(0.9 * bound / 0.8, LEVEL)


@pytest.mark.parametrize("accuracy", [0.3, 0.8])
def test_a_relative_bound_is_wrong_at_most_as_often_as_its_level(accuracy):
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


def test_one_pair_says_almost_nothing():
    lost = MatchedDrop(1, 0, 1)
    assert not lost.is_above(-0.8, LEVEL)
    assert not lost.is_below(0.99, LEVEL)
    assert MatchedDrop(0, 0, 1).is_below(0.96, LEVEL)
    assert not MatchedDrop(0, 0, 1).is_below(0.94, LEVEL)


def power(samples: int, limit: float, won: float, drop: float, level: float) -> float:
    """How often the exact test says that the drop is above the limit: over all that may happen."""
    first, last = binom.ppf([1e-6, 1 - 1e-6], samples, won).astype(int)
    total, lost = 0.0, 0
    for count in range(first, last + 1):
        lost = max(lost, int(np.floor(count + samples * limit)))
        while lost <= samples - count and not is_above(lost, count, samples, limit, level):
            lost += 1
        beyond = binom.sf(lost - 1, samples - count, (won + drop) / (1 - won))
        total += binom.pmf(count, samples, won) * beyond
    return float(total)


@pytest.mark.parametrize(
    ("differ", "limit"),
    [(0.002, 0.02), (0.03, 0.02), (0.1, 0.05), (0.01, 0.05), (0.3, 0.1), (0.05, 0.2)],
)
@pytest.mark.parametrize("count", [1, 8])
def test_with_enough_pairs_a_drop_of_twice_the_limit_is_caught_and_none_passes(
    differ, limit, count
):
    levels = LEVELS.shared(count)
    enough = enough_pairs(differ, limit, levels)
    assert enough is not None
    shares = max(differ, 2 * limit)
    for samples in (enough, round(enough * 1.13)):
        won = (shares - 2 * limit) / 2
        assert power(samples, limit, won, 2 * limit, levels.fail) >= 1 - levels.missed
        assert power(samples, -limit, differ / 2, 0.0, levels.hold) >= 1 - levels.missed
    # Half of them would not do: what is asked for is not far more than it takes.
    half = enough // 2
    caught = power(half, limit, (shares - 2 * limit) / 2, 2 * limit, levels.fail)
    assert min(caught, power(half, -limit, differ / 2, 0.0, levels.hold)) < 1 - levels.missed


def test_fewer_pairs_are_enough_for_a_wider_limit_and_where_fewer_differ():
    numbers = [enough_pairs(0.05, limit, LEVELS) for limit in (0.005, 0.01, 0.02, 0.05)]
    assert numbers == sorted(numbers, reverse=True)
    assert enough_pairs(0.02, 0.01, LEVELS) < enough_pairs(0.2, 0.01, LEVELS)


def test_no_number_of_pairs_shows_that_a_drop_is_nothing_at_most():
    assert enough_pairs(0.05, 0.0, LEVELS) is None
    assert MatchedDrop(0, 0, 50).enough(0.0, LEVELS) is None
    assert Flips(0, 50).enough(0.0, LEVELS) is None


def test_fifty_samples_of_which_none_differs_are_told_to_be_too_few():
    # Hardly more than 3.2 % differ, and so many pairs tell a drop of 1 % where 3.2 % do.
    enough = MatchedDrop(0, 0, 50).enough(0.01, LEVELS)
    assert enough == enough_pairs(proportion_bounds(0, 50, 0.2, 0.2)[1], 0.01, LEVELS)
    assert 3500 <= enough <= 4500


def test_a_drop_close_to_the_limit_needs_more_than_enough():
    near = MatchedDrop(190, 100, 10_000)
    enough = near.enough(0.01, LEVELS)
    assert enough > 10_000
    assert MatchedDrop(200, 100, 10_000).enough(0.01, LEVELS) is None


def test_a_relative_drop_needs_more_the_lower_the_accuracy_is():
    drop = MatchedDrop(3, 2, 100)
    needed = [RelativeDrop(drop, right).enough(0.05, LEVELS) for right in (90, 60, 30)]
    assert needed == sorted(needed)
    assert needed[0] > MatchedDrop(3, 2, 100).enough(0.05, LEVELS)


@pytest.mark.parametrize("limit", [0.005, 0.03, 0.2])
def test_with_enough_samples_flips_of_twice_the_limit_are_caught(limit):
    enough = Flips(0, 1).enough(limit, LEVELS)
    assert proportion_bounds(0, enough, 0.05, 0.05)[1] <= limit
    counts = np.arange(enough + 1)
    low = np.array([proportion_bounds(int(k), enough, 0.05, 0.05)[0] for k in counts])
    assert binom.pmf(counts, enough, 2 * limit)[low > limit].sum() >= 0.95


@pytest.mark.parametrize("right", [50, 48])
def test_an_accuracy_that_stays_as_it_is_is_told_with_enough_samples(right):
    limit = 0.9
    evidence = Proportion(right, 50)
    assert not evidence.bounds(0.05, 0.05)[0] >= limit or right == 50
    enough = evidence.enough(limit, LEVELS)
    low = [proportion_bounds(k, enough, 0.05, 0.05)[0] for k in range(enough + 1)]
    chance = binom.pmf(np.arange(enough + 1), enough, right / 50)
    assert chance[np.array(low) >= limit].sum() >= 0.95


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 10**6))
def test_what_resolves_is_more_than_there_is(value, limit, samples):
    found = samples_to_resolve(value, limit, 0.25, samples, LEVELS)
    assert found is None or found > samples
    if value == limit:
        assert found is None


@given(st.integers(1, 10**9))
def test_numbers_are_rounded_up_to_two_digits(count):
    found = round_up(count)
    assert count <= found <= count * 1.1 + 1
    assert not str(found)[2:].strip("0")


@given(st.integers(1, 5000), st.floats(1, 10_000))
def test_the_least_is_found_from_any_guess(truth, guess):
    found = smallest_sufficient(lambda count: count >= truth, guess)
    assert truth <= found <= 1.2 * truth + 2


def test_nothing_is_least_where_nothing_is_enough():
    assert smallest_sufficient(lambda _: False, 10.0) is None


def test_shared_levels_add_up_to_those_of_one():
    shared = LEVELS.shared(4)
    assert 4 * shared.fail == LEVELS.fail
    assert 4 * shared.missed == LEVELS.missed
    assert shared.hold == LEVELS.hold


def drop(before: int, after: int, *, is_relative: bool = False) -> UnpairedDrop:
    return UnpairedDrop(
        Proportion(before, SIZES[0]), Proportion(after, SIZES[1]), is_relative=is_relative
    )


@pytest.mark.parametrize("is_relative", [False, True])
@pytest.mark.parametrize(
    "truth", [(0.5, 0.5), (0.9, 0.9), (0.99, 0.95), (0.9, 0.4), (0.3, 0.6), (1.0, 0.95)]
)
def test_each_bound_is_wrong_at_most_as_often_as_its_level(truth, is_relative):
    """Over all outcomes there are, each with its probability."""
    true_drop = (truth[0] - truth[1]) / (truth[0] if is_relative else 1)
    too_high = too_low = 0.0
    for before, after in product(range(SIZES[0] + 1), range(SIZES[1] + 1)):
        chance = binom.pmf(before, SIZES[0], truth[0]) * binom.pmf(after, SIZES[1], truth[1])
        low, high = drop(before, after, is_relative=is_relative).bounds(LEVEL, LEVEL)
        too_high += chance * (low > true_drop + 1e-12)
        too_low += chance * (high < true_drop - 1e-12)
    assert too_high <= LEVEL
    assert too_low <= LEVEL


def test_a_large_loss_is_sure_and_a_small_one_is_not():
    large = UnpairedDrop(Proportion(999, 1000), Proportion(495, 1000))
    low, high = large.bounds(LEVEL, LEVEL)
    assert 0.46 < low < large.value < high < 0.55
    low, high = UnpairedDrop(Proportion(999, 1000), Proportion(997, 1000)).bounds(LEVEL, LEVEL)
    assert low < 0 < high
    assert large.enough(0.01, Levels(LEVEL, LEVEL, LEVEL)) is None


def test_of_an_error_more_is_worse():
    draws = Resampling(1000, 0)
    small = MeanOf(tuple(i % 3 / 10 for i in range(90)), 0.2, draws, has_zero=False)
    large = MeanOf(tuple(1 + i % 3 / 10 for i in range(90)), 1.2, draws, has_zero=False)
    worse = UnpairedDrop(small, large, higher_is_better=False)
    low, high = worse.bounds(LEVEL, LEVEL)
    assert worse.value == pytest.approx(1.0)
    assert 0.9 < low < 1.0 < high < 1.1
    better = UnpairedDrop(large, small, higher_is_better=False)
    assert better.bounds(LEVEL, LEVEL)[1] < -0.9


@pytest.mark.parametrize("samples", [1, 7, 28, 600])
def test_the_interval_of_a_share_is_wilson_s(samples):
    for count in range(0, samples + 1, max(1, samples // 28)):
        wilson = binomtest(count, samples).proportion_ci(1 - LEVEL, method="wilson")
        assert share_interval(count, samples) == pytest.approx((wilson.low, wilson.high))
