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

from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.tflite import with_softmax_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.quantize.calibrate import Feed
    from edgeconv.tflite import SoftmaxInput

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
                peaks = answers[softmax.output].max(axis=-1)
                lowest[softmax] = min(lowest[softmax], float(peaks.min()))
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
