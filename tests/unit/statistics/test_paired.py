"""The paired interval, held against a likelihood maximised by search, print, and its promise."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import multinomial
from wording import fails

from edgeconv.statistics.comparison import paired_difference
from edgeconv.types.errors import InputRefused

Z = 1.959963984540054
COUNTS = st.tuples(*[st.integers(0, 40)] * 3).filter(any)


def answers(won: int, lost: int, agreed: int) -> tuple[str, str]:
    """What a and b have right where a alone is right in `won` samples, and b alone in `lost`."""
    return "1" * won + "0" * lost + "1" * agreed, "0" * won + "1" * lost + "1" * agreed


@cache
def of_counts(won: int, lost: int, agreed: int) -> tuple[float, float, float]:
    return paired_difference(*answers(won, lost, agreed))


def searched(won: int, lost: int, agreed: int) -> tuple[float, float]:
    """The interval with the restricted likelihood maximised by search: no formula is shared."""
    samples = won + lost + agreed

    def unlikeliness(share: float, difference: float) -> float:
        shares = (share + difference, share, 1 - 2 * share - difference)
        counts = (won, lost, agreed)
        return -sum(n * math.log(max(p, 1e-300)) for n, p in zip(counts, shares, strict=True) if n)

    def statistic(difference: float) -> float:
        limits = (max(0.0, -difference), (1 - difference) / 2)
        share = minimize_scalar(
            unlikeliness,
            bounds=limits,
            args=(difference,),
            method="bounded",
            options={"xatol": 1e-12},
        ).x
        variance = samples * (2 * share + difference * (1 - difference))
        return (won - lost - samples * difference) / math.sqrt(max(variance, 1e-300))

    estimate = (won - lost) / samples
    low = brentq(lambda d: statistic(d) - Z, -1 + 1e-9, estimate - 1e-9)
    high = brentq(lambda d: statistic(d) + Z, estimate + 1e-9, 1 - 1e-9)
    return low, high


@pytest.mark.parametrize(
    "counts", [(1, 7, 13), (40, 20, 100), (0, 1, 43), (5, 0, 5), (3, 9, 348), (12, 68, 2320)]
)
def test_the_interval_is_that_of_the_likelihood_itself(counts):
    assert of_counts(*counts)[1:] == pytest.approx(searched(*counts), abs=1e-6)


def test_the_interval_is_the_one_in_print():
    # Fagerland, Lydersen and Laake, Statistics in Medicine 33 (2014), on airways before and
    # after a transplantation: of 21 pairs, 1 and 7 differ.
    difference, low, high = of_counts(1, 7, 13)
    assert (round(difference, 3), round(low, 3), round(high, 3)) == (-0.286, -0.517, -0.026)


def test_two_that_never_differ_still_have_an_interval_with_a_width():
    # There the score equation is that of one proportion: z² / (n + z²).
    assert of_counts(0, 0, 50) == pytest.approx((0, -(Z**2) / (50 + Z**2), Z**2 / (50 + Z**2)))
    assert of_counts(0, 0, 1)[1:] == pytest.approx((-(Z**2) / (1 + Z**2), Z**2 / (1 + Z**2)))


def test_two_that_always_differ_have_one_end_at_the_end():
    assert of_counts(10, 0, 0) == pytest.approx((1, (10 - Z**2) / (10 + Z**2), 1))
    assert of_counts(1, 0, 0)[2] == 1.0


@given(COUNTS)
def test_swapping_the_two_swaps_the_signs(counts):
    won, lost, agreed = counts
    difference, low, high = of_counts(won, lost, agreed)
    assert of_counts(lost, won, agreed) == (-difference, -high, -low)


@given(COUNTS)
def test_the_estimate_is_inside_and_the_interval_is_inside_one(counts):
    difference, low, high = of_counts(*counts)
    assert -1 <= low <= difference <= high <= 1
    assert low < high
    assert difference == (counts[0] - counts[1]) / sum(counts)


@given(COUNTS, st.integers(2, 8))
def test_more_samples_of_the_same_kind_narrow_it(counts, times):
    _, low, high = of_counts(*counts)
    _, lower, higher = of_counts(*(count * times for count in counts))
    assert higher - lower < high - low


@given(COUNTS)
def test_only_the_samples_that_differ_and_their_number_count(counts):
    a, b = answers(*counts)
    order = np.random.default_rng(0).permutation(len(a))
    shuffled = ["".join(text[i] for i in order) for text in (a, b)]
    both_wrong = [text[: counts[0] + counts[1]] + "0" * counts[2] for text in (a, b)]
    assert paired_difference(*shuffled) == paired_difference(*both_wrong) == of_counts(*counts)


@pytest.mark.parametrize("samples", [12, 25, 40])
@pytest.mark.parametrize(
    "shares", [(0.02, 0.02), (0.1, 0.1), (0.2, 0.05), (0.3, 0.3), (0.0, 0.1), (0.5, 0.1)]
)
def test_the_true_difference_is_in_as_many_intervals_as_is_promised(samples, shares):
    # Not by simulation: the probability of every outcome there is, added up.
    outcomes = [(w, x, samples - w - x) for w in range(samples + 1) for x in range(samples + 1 - w)]
    likely = multinomial.pmf(outcomes, samples, [*shares, 1 - sum(shares)])
    truth = shares[0] - shares[1]
    covered = [low <= truth <= high for _, low, high in (of_counts(*o) for o in outcomes)]
    assert likely.sum() == pytest.approx(1)
    assert 0.93 <= likely[covered].sum() <= 1


def test_what_cannot_be_paired_is_refused():
    with fails(InputRefused):
        paired_difference("11", "1")
    with fails(InputRefused):
        paired_difference("", "")
