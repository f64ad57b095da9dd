"""How many samples are said to be enough: that they are, and that not many fewer would do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from edgeconv.statistics.drop import MatchedDrop, RelativeDrop
from edgeconv.statistics.estimate import Levels, round_up, samples_to_resolve, smallest_sufficient
from edgeconv.statistics.matched import enough_pairs, is_above
from edgeconv.statistics.proportion import Flips, Proportion, proportion_bounds

LEVELS = Levels(0.05, 0.05, 0.05)


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
    differ: float, limit: float, count: int
) -> None:
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


def test_fewer_pairs_are_enough_for_a_wider_limit_and_where_fewer_differ() -> None:
    numbers = [enough_pairs(0.05, limit, LEVELS) for limit in (0.005, 0.01, 0.02, 0.05)]
    assert numbers == sorted(numbers, reverse=True)
    assert enough_pairs(0.02, 0.01, LEVELS) < enough_pairs(0.2, 0.01, LEVELS)


def test_no_number_of_pairs_shows_that_a_drop_is_nothing_at_most() -> None:
    assert enough_pairs(0.05, 0.0, LEVELS) is None
    assert MatchedDrop(0, 0, 50).enough(0.0, LEVELS) is None
    assert Flips(0, 50).enough(0.0, LEVELS) is None


def test_fifty_samples_of_which_none_differs_are_told_to_be_too_few() -> None:
    # Hardly more than 3.2 % differ, and so many pairs tell a drop of 1 % where 3.2 % do.
    enough = MatchedDrop(0, 0, 50).enough(0.01, LEVELS)
    assert enough == enough_pairs(proportion_bounds(0, 50, 0.2, 0.2)[1], 0.01, LEVELS)
    assert 3500 <= enough <= 4500


def test_a_drop_close_to_the_limit_needs_more_than_enough() -> None:
    near = MatchedDrop(190, 100, 10_000)
    enough = near.enough(0.01, LEVELS)
    assert enough > 10_000
    assert MatchedDrop(200, 100, 10_000).enough(0.01, LEVELS) is None


def test_a_relative_drop_needs_more_the_lower_the_accuracy_is() -> None:
    drop = MatchedDrop(3, 2, 100)
    needed = [RelativeDrop(drop, right).enough(0.05, LEVELS) for right in (90, 60, 30)]
    assert needed == sorted(needed)
    assert needed[0] > MatchedDrop(3, 2, 100).enough(0.05, LEVELS)


@pytest.mark.parametrize("limit", [0.005, 0.03, 0.2])
def test_with_enough_samples_flips_of_twice_the_limit_are_caught(limit: float) -> None:
    enough = Flips(0, 1).enough(limit, LEVELS)
    assert proportion_bounds(0, enough, 0.05, 0.05)[1] <= limit
    counts = np.arange(enough + 1)
    low = np.array([proportion_bounds(int(k), enough, 0.05, 0.05)[0] for k in counts])
    assert binom.pmf(counts, enough, 2 * limit)[low > limit].sum() >= 0.95


@pytest.mark.parametrize("right", [50, 48])
def test_an_accuracy_that_stays_as_it_is_is_told_with_enough_samples(right: int) -> None:
    limit = 0.9
    evidence = Proportion(right, 50)
    assert not evidence.bounds(0.05, 0.05)[0] >= limit or right == 50
    enough = evidence.enough(limit, LEVELS)
    low = [proportion_bounds(k, enough, 0.05, 0.05)[0] for k in range(enough + 1)]
    chance = binom.pmf(np.arange(enough + 1), enough, right / 50)
    assert chance[np.array(low) >= limit].sum() >= 0.95


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 10**6))
def test_what_resolves_is_more_than_there_is(value: float, limit: float, samples: int) -> None:
    found = samples_to_resolve(value, limit, 0.25, samples, LEVELS)
    assert found is None or found > samples
    if value == limit:
        assert found is None


@given(st.integers(1, 10**9))
def test_numbers_are_rounded_up_to_two_digits(count: int) -> None:
    found = round_up(count)
    assert count <= found <= count * 1.1 + 1
    assert not str(found)[2:].strip("0")


@given(st.integers(1, 5000), st.floats(1, 10_000))
def test_the_least_is_found_from_any_guess(truth: int, guess: float) -> None:
    found = smallest_sufficient(lambda count: count >= truth, guess)
    assert truth <= found <= 1.2 * truth + 2


def test_nothing_is_least_where_nothing_is_enough() -> None:
    assert smallest_sufficient(lambda _: False, 10.0) is None


def test_shared_levels_add_up_to_those_of_one() -> None:
    shared = LEVELS.shared(4)
    assert 4 * shared.fail == LEVELS.fail
    assert 4 * shared.missed == LEVELS.missed
    assert shared.hold == LEVELS.hold
