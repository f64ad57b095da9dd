"""One scale for a state and the output that is fed back to it, so that feeding back is exact."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from edgeconv.model.tflite.summary import end_levels, end_tensors

# By signature, and then the output by input.
States = Mapping[str, Mapping[str, str]]


def with_common_ranges(model: bytes, ranges: dict[str, Any], states: States) -> dict[str, Any]:
    """`ranges` (of `activation_ranges`), a state's wide enough for both its ends."""
    common = dict(ranges)
    for own, fed in _state_tensors(model, states):
        if own in common and fed in common:
            both = {
                "min": np.minimum(common[own]["min"], common[fed]["min"]),
                "max": np.maximum(common[own]["max"], common[fed]["max"]),
            }
            common[own], common[fed] = ({**common[name], **both} for name in (own, fed))
    return common


def with_fed_ranges(
    model: bytes, quantized: bytes, ranges: dict[str, Any], states: States
) -> dict[str, Any] | None:
    """`ranges`, where each state has the range of its output in a `quantized` file.

    Some operators give their outputs a fixed scale, which the state has to take. None where
    all scales are equal already.
    """
    changed = dict(ranges)
    for key, pairs in states.items():
        inputs, outputs = end_levels(quantized, key)
        names = end_tensors(model, key)[0]
        for name, output in pairs.items():
            if name in inputs and output in outputs and inputs[name] != outputs[output]:
                low, high = outputs[output].range
                like = ranges[names[name]]
                changed[names[name]] = {
                    **like,
                    "min": np.full_like(like["min"], low),
                    "max": np.full_like(like["max"], high),
                }
    return changed if any(changed[name] is not ranges[name] for name in ranges) else None


def _state_tensors(model: bytes, states: States) -> Iterator[tuple[str, str]]:
    """The tensor of each state, and the tensor of the output that is fed back to it."""
    for key, pairs in states.items():
        inputs, outputs = end_tensors(model, key)
        yield from ((inputs[name], outputs[output]) for name, output in pairs.items())
