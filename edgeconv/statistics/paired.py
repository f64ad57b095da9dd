"""The difference of two accuracies on the same samples, with its interval."""

from __future__ import annotations

import math
from statistics import NormalDist

from edgeconv.errors import InputRefused
from edgeconv.statistics.chance import LEVEL

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
