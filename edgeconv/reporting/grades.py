"""What in a file is not as good as it could be, a line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.closeness import span, worst_output
from edgeconv.statistics.proportion import share_interval
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from edgeconv.types import Artifact, FloatOperators, OutputError
    from edgeconv.types.conversion import FloatReason

_REASONS: dict[FloatReason, str] = {
    "no kernel": "no integer kernel",
    "rule": "by a rule",
    "engine": "not quantized",
    "neighbor": "between them",
}
_KINDS = 3


def floats_line(artifact: Artifact) -> str:
    """What computes in float in a file of integers, how often, where and why; "" for nothing."""
    left = artifact.left_in_float
    if not left:
        return ""
    parts = [_part(each) for each in left[:_KINDS]]
    more = sum(each.count for each in left[_KINDS:])
    if more:
        parts.append(f"{more} more between them or like them")
    share = units.percent(artifact.integer_share or 0.0, 1)
    return units.plain(f"{share} of the work in integers; in float: {'; '.join(parts)}")


def grade_line(artifact: Artifact) -> str:
    """Why a file is only usable, or poor, and what would make it better; "" where it is close."""
    checked = artifact.verification
    if checked.grade not in ("usable", "poor"):
        return ""
    graded = [each for each in checked.outputs if each.grade == checked.grade]
    worst = worst_output(graded)
    name = f"{worst.output}: " if len(checked.outputs) > 1 else ""
    more = f" and {len(graded) - 1} more outputs" if len(graded) > 1 else ""
    closer = f"; closer: {checked.advice}" if checked.advice else ""
    return units.plain(f"{checked.grade}: {name}{_why(worst)}{more}{closer}")


def _why(error: OutputError) -> str:
    """The measure that gave an output its grade, with its interval where that is wide."""
    if error.kind in ("classes", "scores", "labels") and error.argmax_agreement is not None:
        same = round(error.argmax_agreement * error.samples)
        low, high = share_interval(same, error.samples)
        answers = (
            f"{units.percent(error.argmax_agreement, 1)} of the answers are float's (95 % interval "
            f"{units.percent(low, 0)} to {units.percent(high, 0)})"
        )
        if error.probability_error is None:
            return answers
        return f"{answers}, probabilities off by up to {error.probability_error:.2g}"
    if error.probability_error is not None:
        return f"a probability is off by up to {error.probability_error:.2g}"
    largest = f"up to {units.significant(error.max_abs_error)}"
    if error.is_flat:
        return f"off by {largest}, and {span(error)}"
    share = units.percent(10 ** (-error.snr_db / 20), 1)
    return f"off by {share} of the deviation, {largest}"


def _part(each: FloatOperators) -> str:
    times = f" ×{each.count}" if each.count > 1 else ""
    return f"{each.name}{times} in {listed(each.layers, 2)} ({_REASONS[each.reason]})"
