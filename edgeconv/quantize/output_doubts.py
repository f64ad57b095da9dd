"""What to doubt in an output that passed: answers that changed, and errors that hide them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.statistics.chance import LEVEL
from edgeconv.statistics.proportion import proportion_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import OutputError

# Below this share of equal answers, or where not even a third of them is sure, it is worth a word:
# no fewer than 4 samples can show that much.
_LEAST_AGREEMENT = 0.95
_LEAST_SURE = 1 / 3
_FEW_SAMPLES = 20
# An error of a thousandth turns hardly any answer, however few samples show it.
_CLOSE_DB = 60.0


def output_doubts(error: OutputError, *, is_faint: bool) -> Iterator[str]:
    """Warnings, a sentence each.

    `is_faint` says that the output varies too little beside its error for the recipe's limit, and
    passed for another reason.
    """
    if is_faint and not error.is_flat and not _has_fixed_range(error):
        spans = (
            f"spans {error.span[0]:.6g} to {error.span[1]:.6g}" if error.span else "hardly varies"
        )
        step = f"; its quantization step is {error.step:.3g}" if error.step else ""
        yield (
            f"output {error.output!r} is off by up to {error.max_abs_error:.3g}, and only {spans} "
            f"on these samples{step}"
        )
    if error.argmax_agreement is not None and error.samples and not error.is_flat:
        yield from _answer_doubts(error, error.argmax_agreement)


def _has_fixed_range(error: OutputError) -> bool:
    """Whether the error is within a step that is a power of two.

    Such a scale belongs to an operator, not to the samples: softmax and the sigmoid give 0 to 1
    in steps of 1/256, whatever they are given, and tanh -1 to 1 in steps of 1/128.
    """
    return error.is_within_step and math.frexp(error.step)[0] == 1 / 2


def _answer_doubts(error: OutputError, agreement: float) -> Iterator[str]:
    """What to doubt in the answers of a classifier: where the largest of its values is."""
    count = error.samples
    same = round(agreement * count)
    low, high = proportion_bounds(same, count, LEVEL / 2, LEVEL / 2)
    is_sure = low >= _LEAST_SURE or error.snr_db >= _CLOSE_DB
    if agreement >= _LEAST_AGREEMENT and is_sure:
        return
    few = ""
    if count < _FEW_SAMPLES:
        samples = "1 sample tells" if count == 1 else f"{count} samples tell"
        few = f"; {samples} little: calibrate with more, or compare accuracies with edgeconv bench"
    yield (
        f"output {error.output!r} has its largest value in the same place for {same} of {count} "
        f"({100 * agreement:.3g} %, 95 % interval {100 * low:.3g} % to {100 * high:.3g} %){few}"
    )
