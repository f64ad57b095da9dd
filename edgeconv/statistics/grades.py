"""Grades of an output: how close to its reference it is, in the output's own terms.

A classifier is judged by its answers, a probability by its error, any other number by its error
next to the spread of the output. What is no better than chance has no grade: it is broken. What is
close on few samples is unproven.
"""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeconv.statistics.estimate import LEVEL, proportion_bounds
from edgeconv.types import LEAST_SAMPLES, ROUNDING, Grade, OutputError, OutputKind

Floats = np.ndarray[Any, np.dtype[np.float64]]


class Threshold(NamedTuple):
    """The most that a measure may be for a grade, or the least if `is_minimum`.

    None: no value of it gives that grade.
    """

    close: float
    usable: float | None
    is_minimum: bool = False

    def grade(self, value: float) -> Grade:
        """The grade of a value; "poor" for NaN."""
        if self._holds(value, self.close):
            return "close"
        return "usable" if self._holds(value, self.usable) else "poor"

    def _holds(self, value: float, limit: float | None) -> bool:
        if limit is None:
            return False
        return value >= limit if self.is_minimum else value <= limit


# docs/methods.md has this table; a test compares both.
THRESHOLDS = {
    "share of equal answers": Threshold(0.98, 0.90, is_minimum=True),
    "error of a probability": Threshold(0.05, 0.20),
    "error of one of several probabilities": Threshold(0.10, 0.50),
    "error over the deviation": Threshold(0.03, 0.18),
    "error over the range": Threshold(0.01, None),
}
GRADES: tuple[Grade, ...] = get_args(Grade)[1:]
# A share of so few samples may be the next better one by chance, but not one below this.
_LEAST_SHARE = 0.75
_BY_CHANCE = 0.25
# Where the reference gives one answer more often, chance tells nothing.
_ONE_ANSWER = 0.75
# With more probabilities in a sample, as in masks, the worst in a thousand do not count.
_DENSE, _COUNTED = 4096, 0.999
_SUMS_TO = 0.01
# Scores of classes have a winner, and no column that always has it: see `_are_scores`.
_WINS_BY = 0.6
_OWN_SHARE = 0.5
# A softmax tells scores apart by their differences alone, so training leaves their sum as it was.
_SUM_SHARE = 0.5
# What arithmetic in float may change in a quantized file.
_QUANTIZED_ROUNDING = 2.0**-10


class Graded(NamedTuple):
    """An output's error with its kind and grade, and why it is broken, "" where it is not."""

    error: OutputError
    broken: str = ""


def worst_grade(grades: Iterable[Grade]) -> Grade:
    """The worst of several grades; "" for none."""
    return max(filter(None, grades), key=GRADES.index, default="")


def graded(
    error: OutputError,
    expected: NDArray[np.generic],
    actual: NDArray[np.generic],
    *,
    is_sigmoid: bool = False,
) -> Graded:
    """The error of an output with its grade: arrays [samples, ...] of any dtype.

    `is_sigmoid`: each value is a probability of its own.
    """
    if not expected.size or not math.isfinite(error.rms_error):
        return Graded(error)
    kind = _kind(expected, is_sigmoid=is_sigmoid)
    fields: dict[str, Any] = {"kind": kind}
    answers = error.samples
    if kind in ("classes", "scores", "labels"):
        equal = _equal(kind, expected, actual)
        fields["argmax_agreement"] = float(equal.mean())
        answers = _independent(equal)
    if kind in ("classes", "probabilities"):
        fields["probability_error"] = _probability_error(expected, actual)
    error = msgspec.structs.replace(error, **fields)
    grade = _grade(error, expected.shape[-1] if expected.ndim > 1 else 1, answers)
    is_rounding = error.rms_error <= ROUNDING * error.rms_reference
    if grade == "close" and error.samples < LEAST_SAMPLES and not is_rounding:
        grade = "unproven"
    broken = _broken(error, expected, actual) if grade == "poor" else ""
    return Graded(msgspec.structs.replace(error, grade=grade), broken)


def _kind(expected: NDArray[np.generic], *, is_sigmoid: bool) -> OutputKind:
    if expected.dtype.kind not in "fc":
        return "labels"
    if expected.ndim > 1 and expected.shape[-1] > 1:
        rows = np.asarray(expected, np.float64).reshape(-1, expected.shape[-1])
        sums = rows.sum(axis=1)
        if rows.min() >= -_SUMS_TO and np.abs(sums - 1).max() <= _SUMS_TO:
            return "classes"
        if not is_sigmoid and _are_scores(rows):
            return "scores"
    return "probabilities" if is_sigmoid else "numbers"


def _are_scores(rows: Floats) -> bool:
    """Whether rows of numbers look like the scores of classes before a softmax.

    The largest is well above the next, and not the same one in each row, and the sums vary less
    than the sums of independent numbers, such as the two of a position, would; in landmarks or
    forecasts most of the variance is between the columns' means. A few rows do not show it.
    """
    spread = float(rows.std())
    if spread <= 0 or len(rows) < LEAST_SAMPLES or len(np.unique(rows.argmax(axis=1))) == 1:
        return False
    largest = np.partition(rows, -2, axis=1)[:, -2:]
    wins_by = float(np.median(largest[:, 1] - largest[:, 0]))
    of_columns = float(rows.mean(axis=0).var())
    of_sums = float(rows.sum(axis=1).var() / rows.var(axis=0).sum())
    return (
        wins_by >= _WINS_BY * spread
        and of_columns <= _OWN_SHARE * spread**2
        and of_sums <= _SUM_SHARE
    )


def _equal(
    kind: OutputKind, expected: NDArray[np.generic], actual: NDArray[np.generic]
) -> NDArray[np.bool_]:
    if kind == "labels":
        return np.asarray(expected == actual)
    return np.asarray(expected.argmax(axis=-1) == actual.argmax(axis=-1))


def _probability_error(expected: NDArray[np.generic], actual: NDArray[np.generic]) -> float:
    errors = np.abs(np.asarray(actual, np.float64) - np.asarray(expected, np.float64))
    return float(np.quantile(errors, _COUNTED if errors[0].size > _DENSE else 1.0))


def _grade(error: OutputError, columns: int, answers: int) -> Grade:
    if error.max_abs_error <= THRESHOLDS["error over the range"].close * _range(error):
        return "close"
    several = "error of one of several probabilities" if columns > 2 else "error of a probability"
    if error.kind == "probabilities":
        return THRESHOLDS["error of a probability"].grade(error.probability_error or 0.0)
    if error.kind == "classes":
        by_error = THRESHOLDS[several].grade(error.probability_error or 0.0)
        return worst_grade((_grade_of_answers(error, answers), by_error))
    by_error = THRESHOLDS["error over the deviation"].grade(_over_deviation(error))
    if error.kind == "numbers" or (error.kind == "scores" and by_error == "close"):
        return by_error
    by_answers = _grade_of_answers(error, answers)
    # Whole numbers may be classes or quantities, as the pixels of a picture.
    is_whole = error.kind == "labels"
    return min(by_answers, by_error, key=GRADES.index) if is_whole else by_answers


def _range(error: OutputError) -> float:
    """The range of the output; of an output that is the same throughout, its size.

    Of many classes none may be likely: answers then differ by less than 1 % of what they may be.
    """
    if error.kind == "probabilities" or (error.kind == "classes" and error.span is None):
        return 1.0
    if error.span is None:
        return 0.0
    low, high = error.span
    if error.kind == "classes":
        return min(1.0, high)
    return max(abs(low), abs(high)) if error.is_flat else high - low


def _over_deviation(error: OutputError) -> float:
    if not error.is_flat:
        return math.pow(10, -error.snr_db / 20)
    size = _range(error)
    return error.rms_error / size if size else math.inf * bool(error.rms_error)


def _independent(equal: NDArray[np.bool_]) -> int:
    """How many independent answers tell as much as these, (samples, ...).

    One a sample if those of a sample are equal or different together, else more: the design effect
    of L. Kish, "Survey Sampling" (1965).
    """
    shares = equal.reshape(len(equal), -1).mean(axis=1)
    share = float(shares.mean())
    variance = float(shares.var(ddof=1)) / len(shares) if len(shares) > 1 else 0.0
    many = share * (1 - share) / variance if variance else equal.size
    return int(min(max(many, len(shares)), equal.size))


def _grade_of_answers(error: OutputError, count: int) -> Grade:
    """By the share of equal answers; one that chance may have lowered below a limit passes it.

    `count`: of so many independent answers.
    """
    share = error.argmax_agreement or 0.0
    threshold = THRESHOLDS["share of equal answers"]
    high = proportion_bounds(round(share * count), count, LEVEL / 2, LEVEL / 2)[1]
    if share >= _LEAST_SHARE and threshold.grade(share) == "poor":
        return "usable" if threshold.grade(high) != "poor" else "poor"
    is_chance = threshold.grade(share) == "usable" and threshold.grade(high) == "close"
    return "close" if is_chance else threshold.grade(share)


def _broken(error: OutputError, expected: NDArray[np.generic], actual: NDArray[np.generic]) -> str:
    """Why a poor output is broken: no better than a constant, or than guessing; "" if it is."""
    count = error.samples
    if error.kind in ("classes", "scores", "labels") and count >= LEAST_SAMPLES:
        share, chance = error.argmax_agreement or 0.0, _chance(error.kind, expected, actual)
        low, _ = proportion_bounds(round(share * count), count, LEVEL, LEVEL)
        if low <= chance and share - chance < _BY_CHANCE * (1 - chance):
            return (
                f"has the answer of its reference for {round(share * count)} of {count} samples, "
                f"no more than by chance ({100 * chance:.0f} %)"
            )
    if error.kind == "labels" or error.is_flat:
        return ""
    if error.rms_error <= max(error.step, _QUANTIZED_ROUNDING * error.rms_reference):
        return ""
    varies_by = float(np.ptp(np.asarray(actual, np.float64), axis=0).max())
    size = float(np.abs(np.asarray(actual, np.float64)).max())
    if count > 1 and not error.is_constant and varies_by <= ROUNDING * size:
        return (
            f"is the same for all {count} samples, and its reference differs by up to "
            f"{error.varies_by or 0.0:.3g}"
        )
    if error.kind != "scores" and error.kind != "classes" and error.snr_db <= 0:
        return (
            f"is no closer to its reference than the mean of that is: SNR {error.snr_db:.1f} dB "
            f"(root mean square {error.rms_reference:.3g}, error {error.rms_error:.3g})"
        )
    return ""


def _chance(kind: OutputKind, expected: NDArray[np.generic], actual: NDArray[np.generic]) -> float:
    """How often two that answer as often as these, each by itself, answer the same (kappa).

    0 where the reference nearly always gives one answer.

    J. Cohen, "A coefficient of agreement for nominal scales", Educational and Psychological
    Measurement 20 (1960).
    """
    counts = []
    for values in (expected, actual):
        answers = values if kind == "labels" else values.argmax(axis=-1)
        counts.append(Counter(answers.reshape(-1).tolist()))
    total = sum(counts[0].values())
    if max(counts[0].values()) > _ONE_ANSWER * total:
        return 0.0
    return float(sum(count * counts[1][answer] for answer, count in counts[0].items())) / total**2
