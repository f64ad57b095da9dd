"""Ranges of softmax inputs without the part that the softmax does not see.

A softmax gives exp(x) / sum(exp): what lies far enough below the largest value of its row
counts for nothing. One sample of which a network is very sure stretches the range down to
hundreds below, and the step of the integers with it, at the cost of all other samples.
The range ends instead where no calibration sample would notice: below the lowest of the
rows' maxima by so much that all the classes that end up there, together, weigh less than
half a step of the softmax's own output.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.model.tflite import SoftmaxInput, with_softmax_inputs
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.quantize.calibrate import Feed

# An 8-bit step of less than an eighth changes a probability by a factor of less than
# exp(1/16); a narrower range needs no second pass over the samples.
_NARROW = 256 / 8


class Floor(NamedTuple):
    """The tensors of one softmax input, and the lowest of its rows' largest values."""

    tensors: tuple[str, ...]
    lowest_peak: float
    classes: int
    beta: float

    def at(self, bits: int) -> float:
        """Below this, a value makes no difference to a softmax of `bits` bits."""
        levels = 2**bits
        return self.lowest_peak - math.log(2 * levels * self.classes) / self.beta


def softmax_floors(
    float_model: bytes, feeds: Mapping[str, Feed], ranges: Mapping[str, Any], *, threads: int
) -> list[Floor]:
    """The floor of every softmax input with a wide range, over the calibration samples."""

    def is_wide(name: str) -> bool:
        limits = ranges.get(name)
        return limits is not None and float(np.max(limits["max"]) - np.min(limits["min"])) > _NARROW

    exposed, inputs = with_softmax_inputs(float_model, is_wide)
    if not inputs:
        return []
    peaks = _lowest_peaks(exposed, inputs, feeds, threads=threads)
    return [
        Floor(softmax.tensors, peaks[softmax], softmax.classes, softmax.beta) for softmax in inputs
    ]


def _lowest_peaks(
    model: bytes, inputs: tuple[SoftmaxInput, ...], feeds: Mapping[str, Feed], *, threads: int
) -> dict[SoftmaxInput, float]:
    interpreter = open_interpreter(model, threads=threads)
    lowest = dict.fromkeys(inputs, math.inf)
    for key in {softmax.signature for softmax in inputs}:
        signature = InProcessModel(interpreter, key)
        for batch in feeds[key]:
            answers = signature.invoke(batch)
            for softmax in (softmax for softmax in inputs if softmax.signature == key):
                rows = answers[softmax.output]
                peaks = rows.max(axis=-1)
                # A row of equal values, as where all are masked, stays one wherever a range ends.
                seen = peaks[peaks > rows.min(axis=-1)]
                lowest[softmax] = min(lowest[softmax], float(seen.min(initial=math.inf)))
    return lowest


def cut_at_floors(
    ranges: Mapping[str, Any], floors: list[Floor], *, bits: int
) -> tuple[dict[str, Any], list[str]]:
    """`ranges` with those of softmax inputs cut off at their floors, and which were cut."""
    cut, names = dict(ranges), []
    for floor in floors:
        for name in floor.tensors:
            limits, least = ranges.get(name), floor.at(bits)
            if limits and float(np.min(limits["min"])) < least < float(np.max(limits["max"])):
                cut[name] = {**limits, "min": np.maximum(limits["min"], least)}
                names.append(name)
    return cut, names


# Ranges of inputs of sigmoid and tanh, which end where these are as good as constant.
#
# A generator's last layer gives -1255 to 4.9, and its sigmoid 0 for nearly all of that. With one
# scale for the whole range a step of 5 lies where the sigmoid changes. Beyond the ends used here it
# is within half an output step of its limit, so an integer there gives the same output.

# tanh(x) is 2 sigmoid(2 x) - 1, and its output has steps of twice the size.
_OF_SIGMOID = {"LOGISTIC": 1.0, "TANH": 0.5}


def squashing_end(kind: str, bits: int) -> float:
    """From this magnitude on, LOGISTIC or TANH of `bits` bits gives its limit."""
    return _OF_SIGMOID[kind] * math.log(2.0 ** (bits + 1))


def cut_where_squashed(
    ranges: Mapping[str, Any], squashed: Mapping[str, str], *, bits: int
) -> tuple[dict[str, Any], list[str]]:
    """`ranges` cut off where LOGISTIC or TANH is at its limit, and the tensors that were cut.

    `squashed` has that operator by tensor, see `edgeconv.model.tflite.squashed_tensors`.
    """
    cut, names = dict(ranges), []
    for name, kind in squashed.items():
        limits, end = ranges.get(name), squashing_end(kind, bits)
        if limits and max(float(np.max(limits["max"])), -float(np.min(limits["min"]))) > end:
            cut[name] = {
                **limits,
                "min": np.clip(limits["min"], -end, end),
                "max": np.clip(limits["max"], -end, end),
            }
            names.append(name)
    return cut, names
