"""The difference of two models on the same samples, with the interval that reports show."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import TYPE_CHECKING, TypeVar

from edgeconv.statistics.estimate import LEVEL, normal_quantile
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import Accuracy

_T = TypeVar("_T")
Interval = tuple[float, float]
_LEAST = 2
# Bisections of an interval of length 2 at most.
_HALVINGS = 60


def drop_of(
    before: Accuracy, after: Accuracy, rows: Sequence[int] | None = None, level: float = LEVEL
) -> tuple[float, Interval | None]:
    """The drop from `before` to `after` by the same metric, and its interval.

    Paired by sample, over all samples or `rows`; the interval misses the true drop with
    probability `level`. It is None for a single sample that is not right or wrong. Every report
    takes the interval from here. Raises `InputRefused` for different numbers of samples.
    """
    if before.correct or after.correct:
        answers = _chosen(before.correct, rows), _chosen(after.correct, rows)
        drop, *interval = paired_difference(*answers, level)
        return drop, (interval[0], interval[1])
    better, worse = (before, after) if before.higher_is_better else (after, before)
    numbers = _chosen(better.per_sample, rows), _chosen(worse.per_sample, rows)
    if len(numbers[0]) < _LEAST:
        return better.value - worse.value, None
    drop, *interval = paired_mean_difference(*numbers, level)
    return drop, (interval[0], interval[1])


def paired_difference(
    correct_a: Sequence[str], correct_b: Sequence[str], level: float = LEVEL
) -> tuple[float, float, float]:
    """The accuracy of a minus b's, with its interval: (difference, low, high), fractions.

    `correct_a`, `correct_b`: "1" for right and "0" for wrong, one for each sample, in the same
    order. The interval misses the true difference with probability `level`: T. Tango, "Equivalence
    test and confidence interval for the difference in proportions for the paired-sample design",
    Statistics in Medicine 17 (1998) 891-908. Raises `InputRefused` without samples, and for
    different numbers of them.
    """
    if len(correct_a) != len(correct_b) or not correct_a:
        raise InputRefused(
            f"accuracies of {len(correct_a)} and {len(correct_b)} samples cannot be paired"
        )
    pairs = list(zip(correct_a, correct_b, strict=True))
    samples, won, lost = len(pairs), pairs.count(("1", "0")), pairs.count(("0", "1"))
    low, high = -_upper(lost, won, samples, level), _upper(won, lost, samples, level)
    return (won - lost) / samples, low, high


def paired_mean_difference(
    values_a: Sequence[float], values_b: Sequence[float], level: float = LEVEL
) -> tuple[float, float, float]:
    """The mean of a minus b's, with Student's interval: (difference, low, high).

    One number for each sample, in the same order. Raises `InputRefused` for fewer than two
    samples, and for different numbers of them.
    """
    count = len(values_a)
    if count != len(values_b) or count < _LEAST:
        raise InputRefused(f"measurements of {count} and {len(values_b)} samples cannot be paired")
    differences = [a - b for a, b in zip(values_a, values_b, strict=True)]
    return (fmean(differences), *mean_interval(differences, level))


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Student's interval of the mean of at least two numbers."""
    from scipy.special import stdtrit

    count, mean = len(values), fmean(values)
    half = float(stdtrit(count - 1, 1 - level / 2)) * stdev(values) / math.sqrt(count)
    return mean - half, mean + half


def is_better(accuracy: Accuracy, other: Accuracy, comparisons: int) -> bool:
    """Whether an accuracy is better than the other on the same samples beyond chance.

    McNemar's exact test (Psychometrika 12, 1947), at `LEVEL` over all `comparisons` (Bonferroni).
    """
    from scipy.stats import binomtest

    pairs = list(zip(accuracy.correct, other.correct, strict=True))
    won, lost = pairs.count(("1", "0")), pairs.count(("0", "1"))
    if won <= lost:
        return False
    return bool(binomtest(won, won + lost).pvalue < LEVEL / comparisons)


def _upper(won: int, lost: int, samples: int, level: float) -> float:
    """The largest difference that the score test does not reject, by bisection."""
    far = normal_quantile(level / 2)
    inside, outside = (won - lost) / samples, 1.0
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        if _is_rejected(middle, won, lost, samples, far):
            outside = middle
        else:
            inside = middle
    return inside


def _is_rejected(difference: float, won: int, lost: int, samples: int, far: float) -> bool:
    """Whether Tango's score statistic of a true difference is beyond `far`.

    As `matched.score`, but without numpy, whose import would delay a report. Both sides are
    squared and multiplied out, because the variance may be 0.
    """
    # The likeliest share of samples that only b has right: the larger root in section 3.
    half = (2 * samples - won + lost) * difference - won - lost
    product = 8 * samples * lost * difference * (1 - difference)
    share = (math.sqrt(max(half * half + product, 0.0)) - half) / (4 * samples)
    variance = samples * (2 * share + difference * (1 - difference))
    return (won - lost - samples * difference) ** 2 > far * far * variance


def _chosen(values: Sequence[_T], rows: Sequence[int] | None) -> Sequence[_T]:
    return values if rows is None else [values[i] for i in rows]
