"""The float graph that integer recipes are made from: equal to the model's, with other operators.

Nothing is taken on trust: both graphs run on calibration samples, and what does not give the same
is left as it was.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeconv.model.tflite.rewriting import rewritten
from edgeconv.quantize.trials import comparison_feeds, outputs_of
from edgeconv.types.errors import ToolFailed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from edgeconv.model.tflite.kernels import IntegerType
    from edgeconv.quantize.calibrate import Feed
    from edgeconv.quantize.parted import OutputArrays

# The error is at most this fraction of the output: sums in another order, and no more.
_ROUNDING = 1e-3


class EqualGraph(NamedTuple):
    """A model, and what was rewritten in it; see `rewritten`."""

    model: bytes
    changes: tuple[str, ...]


def equal_graph(
    model: bytes,
    feeds: Mapping[str, Feed],
    ranges: Mapping[str, tuple[float, float]],
    integers: IntegerType,
    *,
    kept: Sequence[str],
    threads: int,
    left: Collection[str] = (),
) -> EqualGraph:
    """The model with kernels for these integers wherever they are and the outputs stay the same.

    `feeds` has samples by signature, `ranges` what they gave, by tensor; the layers with an output
    in `kept` stay, and so do operators with a name in `left`. Raises `ToolFailed` where the model
    itself does not run.
    """
    change = partial(rewritten, model, ranges, integers, kept=kept)
    whole = EqualGraph(*change(without=left))
    if not whole.changes:
        return whole
    samples = comparison_feeds(feeds)
    expected = outputs_of(model, samples, threads=threads)

    def is_equal(graph: EqualGraph) -> bool:
        try:
            return _are_equal(expected, outputs_of(graph.model, samples, threads=threads))
        except ToolFailed:
            return False

    if is_equal(whole):
        return whole
    floors = "masks" in whole.changes
    if floors:
        whole = EqualGraph(*change(without=left, floors=True))
        if is_equal(whole):
            return whole
    wrong = [
        kind
        for kind in whole.changes
        if not is_equal(
            EqualGraph(
                *change(
                    floors=floors,
                    without=[*left, *(each for each in whole.changes if each != kind)],
                )
            )
        )
    ]
    rest = EqualGraph(*change(floors=floors, without=[*left, *wrong]))
    return rest if wrong and is_equal(rest) else EqualGraph(model, ())


def _are_equal(expected: OutputArrays, actual: OutputArrays) -> bool:
    for output, values in expected.items():
        if actual[output].shape != values.shape or not np.isfinite(actual[output]).all():
            return False
        size = float(np.sqrt(np.mean(values**2)))
        error = float(np.sqrt(np.mean((actual[output] - values) ** 2)))
        if error > _ROUNDING * max(size, 1e-6):
            return False
    return True
