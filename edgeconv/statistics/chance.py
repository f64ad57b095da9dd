"""What so many right answers say, and what may as well be chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgeconv.types import Accuracy

# How often a conclusion may be wrong, over all that was compared for it.
LEVEL = 0.05


def wilson_interval(accuracy: Accuracy) -> tuple[float, float]:
    """The 95 % interval of an accuracy, by the score method.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    Journal of the American Statistical Association 22 (1927): it stays within 0 and 1, and
    holds for few samples too.
    """
    from scipy.stats import binomtest

    right = accuracy.correct.count("1")
    interval = binomtest(right, accuracy.samples).proportion_ci(1 - LEVEL, method="wilson")
    return float(interval.low), float(interval.high)


def chance_of(accuracy: Accuracy, guessing: float, tried: int) -> float:
    """How probable it is that guessing does as well in one of `tried` attempts; at most 1.

    `guessing` is the probability of a right guess. One-sided and exact, times `tried`
    (Bonferroni): the best of many attempts looks good even where all of them guess.
    """
    from scipy.stats import binomtest

    right = accuracy.correct.count("1")
    test = binomtest(right, accuracy.samples, guessing, alternative="greater")
    return float(min(1.0, test.pvalue * tried))


def is_better(accuracy: Accuracy, other: Accuracy, comparisons: int) -> bool:
    """Whether the one is better than the other on the same samples, and not by chance.

    Only the samples that one has right and the other wrong count: McNemar's test, exact
    (Psychometrika 12, 1947), at the level for `comparisons` of its kind.
    """
    from scipy.stats import binomtest

    pairs = list(zip(accuracy.correct, other.correct, strict=True))
    won, lost = pairs.count(("1", "0")), pairs.count(("0", "1"))
    if won <= lost:
        return False
    return bool(binomtest(won, won + lost).pvalue < LEVEL / comparisons)
