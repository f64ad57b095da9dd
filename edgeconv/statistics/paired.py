"""The difference of two accuracies on the same samples, with its interval."""

from __future__ import annotations

import math
from statistics import NormalDist, fmean, stdev
from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused
from edgeconv.statistics.chance import LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

_Z = NormalDist().inv_cdf(1 - LEVEL / 2)
# Each one halves what is left of at most 2.
_HALVINGS = 60


def paired_difference(correct_a: str, correct_b: str) -> tuple[float, float, float]:
    """The accuracy of a minus that of b, and its 95 % interval: (difference, low, high).

    `correct_a`, `correct_b`: one character a sample, "1" right and "0" wrong, in the same order.
    All are fractions. The interval is Tango's, from the score statistic: T. Tango, "Equivalence
    test and confidence interval for the difference in proportions for the paired-sample design",
    Statistics in Medicine 17 (1998) 891-908. It has a width even where the two never differ, and
    holds for few samples. Raises `InputRefused` for no samples, or different numbers of them.
    """
    if len(correct_a) != len(correct_b) or not correct_a:
        raise InputRefused(
            f"accuracies of {len(correct_a)} and {len(correct_b)} samples cannot be paired"
        )
    pairs = list(zip(correct_a, correct_b, strict=True))
    samples, won, lost = len(pairs), pairs.count(("1", "0")), pairs.count(("0", "1"))
    return (won - lost) / samples, -_upper(lost, won, samples), _upper(won, lost, samples)


def paired_mean_difference(
    values_a: Sequence[float], values_b: Sequence[float]
) -> tuple[float, float, float]:
    """The mean of a minus that of b, and its 95 % interval: (difference, low, high).

    One number a sample, in the same order. The interval is Student's, of the samples'
    differences; it has no width where all of them are equal. Raises `InputRefused` for fewer
    than two samples, or different numbers of them.
    """
    from scipy.special import stdtrit

    count = len(values_a)
    if count != len(values_b) or count < 2:
        raise InputRefused(f"measurements of {count} and {len(values_b)} samples cannot be paired")
    differences = [a - b for a, b in zip(values_a, values_b, strict=True)]
    mean = fmean(differences)
    half = float(stdtrit(count - 1, 1 - LEVEL / 2)) * stdev(differences) / math.sqrt(count)
    return mean, mean - half, mean + half


def _upper(won: int, lost: int, samples: int) -> float:
    """The largest difference that the score test does not reject, by bisection."""
    inside, outside = (won - lost) / samples, 1.0
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        if _is_rejected(middle, won, lost, samples):
            outside = middle
        else:
            inside = middle
    return inside


def _is_rejected(difference: float, won: int, lost: int, samples: int) -> bool:
    """Whether Tango's score statistic of a true difference is beyond the quantile.

    Both sides are squared and multiplied out, for the variance may be 0.
    """
    # The likeliest share of samples that only b has right: the larger root of the quadratic
    # equation in section 3 of the paper.
    half = (2 * samples - won + lost) * difference - won - lost
    product = 8 * samples * lost * difference * (1 - difference)
    share = (math.sqrt(max(half * half + product, 0.0)) - half) / (4 * samples)
    variance = samples * (2 * share + difference * (1 - difference))
    return (won - lost - samples * difference) ** 2 > _Z * _Z * variance
