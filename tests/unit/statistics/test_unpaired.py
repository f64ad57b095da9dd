"""The bounds of a drop between two sets of samples that are not the same."""

from __future__ import annotations

from itertools import product

import pytest
from scipy.stats import binom

from edgeconv.statistics.bootstrap import MeanOf, Resampling
from edgeconv.statistics.drop import UnpairedDrop
from edgeconv.statistics.estimate import Levels
from edgeconv.statistics.proportion import Proportion

LEVEL = 0.05
SIZES = 12, 20


def drop(before: int, after: int, *, is_relative: bool = False) -> UnpairedDrop:
    return UnpairedDrop(
        Proportion(before, SIZES[0]), Proportion(after, SIZES[1]), is_relative=is_relative
    )


@pytest.mark.parametrize("is_relative", [False, True])
@pytest.mark.parametrize(
    "truth", [(0.5, 0.5), (0.9, 0.9), (0.99, 0.95), (0.9, 0.4), (0.3, 0.6), (1.0, 0.95)]
)
def test_each_bound_is_wrong_at_most_as_often_as_its_level(
    truth: tuple[float, float], is_relative: bool
) -> None:
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


def test_a_large_loss_is_sure_and_a_small_one_is_not() -> None:
    large = UnpairedDrop(Proportion(999, 1000), Proportion(495, 1000))
    low, high = large.bounds(LEVEL, LEVEL)
    assert 0.46 < low < large.value < high < 0.55
    low, high = UnpairedDrop(Proportion(999, 1000), Proportion(997, 1000)).bounds(LEVEL, LEVEL)
    assert low < 0 < high
    assert large.enough(0.01, Levels(LEVEL, LEVEL, LEVEL)) is None


def test_of_an_error_more_is_worse() -> None:
    draws = Resampling(1000, 0)
    small = MeanOf(tuple(i % 3 / 10 for i in range(90)), 0.2, draws, has_zero=False)
    large = MeanOf(tuple(1 + i % 3 / 10 for i in range(90)), 1.2, draws, has_zero=False)
    worse = UnpairedDrop(small, large, higher_is_better=False)
    low, high = worse.bounds(LEVEL, LEVEL)
    assert worse.value == pytest.approx(1.0)
    assert 0.9 < low < 1.0 < high < 1.1
    better = UnpairedDrop(large, small, higher_is_better=False)
    assert better.bounds(LEVEL, LEVEL)[1] < -0.9
