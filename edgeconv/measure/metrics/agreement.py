"""How far the outputs of a model are those of another one, on the same samples."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import numpy as np

from edgeconv.data.strings import holds_strings
from edgeconv.measure.metrics.scores import blocks
from edgeconv.statistics.outputs import OutputRange, Signal, snr_db
from edgeconv.types import Agreement

if TYPE_CHECKING:
    from edgeconv.measure.metrics.scores import Array, Floats, Outputs

_TINY = 1e-30


def agreements(outputs: Outputs, reference: Outputs, name: str) -> tuple[Agreement, ...]:
    """One for each output that both have in the same shape; `name` is the reference's.

    Where both have one output it is the same, whatever it is called.
    """
    if len(outputs) == len(reference) == 1:
        reference = dict(zip(outputs, reference.values(), strict=True))
    return tuple(
        agreement(output, array, reference[output], name)
        for output, array in sorted(outputs.items())
        if output in reference and reference[output].shape == array.shape
    )


def agreement(output: str, given: Array, wanted: Array, name: str) -> Agreement:
    """The agreement of two arrays (n, ...), which are read block by block.

    A difference that is not finite counts as the largest number there is.
    """
    if holds_strings(given) and holds_strings(wanted):
        return _string_agreement(output, given, wanted, name)
    has_classes = given.ndim == 2 and given.shape[1] > 1
    flips, highest = 0, 0.0
    signal, extent = Signal(), OutputRange()
    noise, cosines = 0.0, 0.0
    for rows, block in blocks(given):
        have = np.asarray(block, np.float64).reshape(len(block), -1)
        want = np.asarray(wanted[rows], np.float64).reshape(len(block), -1)
        with np.errstate(invalid="ignore", over="ignore"):
            error = have - want
            noise += float(np.square(error).sum())
            cosines += float(_cosines(have, want).sum())
        signal.add(want)
        extent.add(want)
        highest = max(highest, _finite(float(np.abs(error).max(initial=0.0))))
        flips += int((have.argmax(axis=1) != want.argmax(axis=1)).sum()) if has_classes else 0
    return Agreement(
        output=output,
        reference=name,
        samples=len(given),
        flips=flips if has_classes else None,
        cosine=cosines / len(given),
        snr_db=snr_db(signal.variance, noise / max(given.size, 1)),
        max_error=highest,
        span=extent.span,
        varies_by=extent.varies_by,
    )


def _string_agreement(output: str, given: Array, wanted: Array, name: str) -> Agreement:
    """Strings are equal or not: a sample is flipped where any of its strings is another one."""
    flips, differing = 0, 0
    for rows, block in blocks(given):
        differs = (block != wanted[rows]).reshape(len(block), -1)
        flips += int(differs.any(axis=1).sum())
        differing += int(differs.sum())
    return Agreement(
        output=output,
        reference=name,
        samples=len(given),
        flips=flips,
        cosine=1 - differing / given.size,
        snr_db=snr_db(1.0, differing / given.size),
        max_error=float(differing > 0),
    )


def _cosines(have: Floats, want: Floats) -> Floats:
    """The cosine of each row with its like: 1 where both are equal, 0 where one is not finite."""
    norms = np.linalg.norm(have, axis=1) * np.linalg.norm(want, axis=1)
    products = np.einsum("ij,ij->i", have, want)
    cosines: Floats = np.where(norms > _TINY, products / np.maximum(norms, _TINY), 0.0)
    cosines[(have == want).all(axis=1)] = 1.0
    return np.nan_to_num(cosines, nan=0.0, posinf=0.0, neginf=0.0)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else sys.float_info.max
