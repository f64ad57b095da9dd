"""Two models on the same samples or in the same rounds: their difference, and which is better."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import TypeVar

from edgeconv.statistics.estimate import LEVEL, normal_quantile
from edgeconv.types import Accuracy, Latency, TuningTrial
from edgeconv.types.errors import InputRefused

_T = TypeVar("_T")
# A single round is split into this number of blocks of consecutive samples.
_BLOCKS = 10
_LEAST_ROUNDS = 2


def latency_ratio_interval(a: Latency, b: Latency) -> tuple[float, float] | None:
    """The 95 % interval of a's median time over b's, timed in the same rounds.

    None for a single round, for different numbers of rounds, and without times.
    """
    every = (*a.rounds_us, *b.rounds_us)
    if not all(times and 0 < median(times) < math.inf for times in every):
        return None
    low, high = ratio_bounds(a.rounds_us, b.rounds_us, LEVEL / 2, LEVEL / 2)
    return (low, high) if math.isfinite(high) else None


def is_faster(a: Latency, b: Latency) -> bool:
    """Whether a's median time is below b's beyond noise.

    By the ratio in the rounds; where it has no interval, by the intervals of both medians.
    """
    interval = latency_ratio_interval(a, b)
    if interval is not None:
        return interval[1] < 1
    return _is_shorter(a.p50_us, a.p50_interval_us, b.p50_us, b.p50_interval_us)


def is_faster_trial(a: TuningTrial, b: TuningTrial) -> bool:
    """The same for two trials that were timed apart; without intervals by the medians."""
    if a.latency_us is None or b.latency_us is None:
        return a.latency_us is not None
    return _is_shorter(a.latency_us, a.latency_interval_us, b.latency_us, b.latency_interval_us)


def _is_shorter(
    a: float, interval: tuple[float, float] | None, b: float, other: tuple[float, float] | None
) -> bool:
    if interval is None or other is None or min(a, b, *interval, *other) <= 0:
        return a < b
    return unpaired_ratio_bounds(a, interval, b, other)[1] < 1


def loses_less(a: TuningTrial, b: TuningTrial) -> bool:
    """Whether trial a's drop is smaller than b's beyond chance.

    As if both drops were independent, though they share the float32 model's answers: that errs
    towards equal.
    """
    if a.loss is None or b.loss is None:
        return a.loss is not None
    error = math.sqrt(a.loss.variance / a.loss.samples + b.loss.variance / b.loss.samples)
    return b.loss.drop - a.loss.drop > normal_quantile(LEVEL / 2) * error


def is_more_accurate(a: Accuracy, b: Accuracy) -> bool:
    """Whether a is better than b by the same metric on the same samples, beyond chance.

    Without results of each sample, by the values alone.
    """
    alike = len(a.correct) == len(b.correct) and len(a.per_sample) == len(b.per_sample)
    interval = drop_of(a, b)[1] if alike and (a.correct or a.per_sample) else None
    if interval is not None:
        return interval[0] > 0
    return a.value > b.value if a.higher_is_better else a.value < b.value


def pareto_front(
    items: Sequence[_T], is_cheaper: Callable[[_T, _T], bool], is_better: Callable[[_T, _T], bool]
) -> list[bool]:
    """The Pareto front: for each item, whether no other beats it.

    Both functions tell whether the first of two is better beyond noise. An item beats another if
    it is worse in neither way and better in one.
    """

    def beats(a: _T, b: _T) -> bool:
        is_worse = is_cheaper(b, a) or is_better(b, a)
        return not is_worse and (is_cheaper(a, b) or is_better(a, b))

    return [not any(beats(other, item) for other in items) for item in items]


def median_interval(rounds: Sequence[Sequence[float]], level: float = LEVEL) -> tuple[float, float]:
    """The confidence interval (low, high) of the median time, in the unit of the samples.

    It misses the true median with probability `level`, half of it on each side. Samples of one
    process are not independent, so the rounds are the observations: Student's interval of the
    logarithms of their medians, around the median of all samples (T. Kalibera and R. Jones,
    "Rigorous benchmarking in reasonable time", ISMM 2013, section 6).

    For a single round, its blocks take the place of rounds (batch means; A. Law, "Simulation
    Modeling and Analysis", 5th edition, section 9.5.3), and the interval is within this process.
    For a single sample both limits are that sample. Times are above 0.
    """
    from scipy.special import stdtrit

    middle = _median(rounds)
    observed = list(rounds) if len(rounds) > 1 else _blocks(rounds[0])
    logarithms = [math.log(median(samples)) for samples in observed]
    count = len(logarithms)
    if count == 1:
        return middle, middle
    half = stdtrit(count - 1, 1 - level / 2) * stdev(logarithms) / math.sqrt(count)
    factor = math.exp(half)
    return middle / factor, middle * factor


def ratio_bounds(
    rounds: Sequence[Sequence[float]],
    other: Sequence[Sequence[float]],
    low_level: float,
    high_level: float,
) -> tuple[float, float]:
    """The bounds of the median time over another model's, timed in the same rounds.

    Student's bounds of the logarithms of the ratio in each round, which cancel a slow phase of the
    machine (Kalibera and Jones, section 7), around the ratio of the medians of all samples.
    Infinite for fewer than two rounds, and for different numbers of them.
    """
    from scipy.special import stdtrit

    count = len(rounds)
    if count < _LEAST_ROUNDS or count != len(other):
        return 0.0, math.inf
    middle = math.log(_median(rounds) / _median(other))
    ratios = [math.log(median(a) / median(b)) for a, b in zip(rounds, other, strict=True)]
    error = stdev(ratios) / math.sqrt(count)
    low, high = (float(stdtrit(count - 1, level)) * error for level in (low_level, high_level))
    return math.exp(middle + low), math.exp(middle - high)


def unpaired_ratio_bounds(
    middle: float, interval: tuple[float, float], other: float, other_interval: tuple[float, float]
) -> tuple[float, float]:
    """The bounds of the ratio of two median times that were not taken in the same rounds.

    Each median has an interval of `median_interval`. The squares of the logarithms of independent
    factors add up. Times are above 0.
    """
    halves = math.log(interval[1] / middle), math.log(other_interval[1] / other)
    factor = math.exp(math.hypot(*halves))
    return middle / other / factor, middle / other * factor


def _median(rounds: Sequence[Sequence[float]]) -> float:
    return median([sample for samples in rounds for sample in samples])


def _blocks(samples: Sequence[float]) -> list[Sequence[float]]:
    """At most `_BLOCKS` blocks of consecutive samples, of equal length or one longer."""
    count = min(_BLOCKS, len(samples))
    ends = [round(len(samples) * number / count) for number in range(count + 1)]
    return [samples[start:end] for start, end in pairwise(ends)]


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
