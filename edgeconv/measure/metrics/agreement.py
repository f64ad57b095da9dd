"""How close the outputs of a model are to another model's, on the same samples."""

from __future__ import annotations

import math
import sys

import numpy as np

from edgeconv.data.strings import holds_strings
from edgeconv.measure.metrics.scores import Array, Floats, Outputs, blocks
from edgeconv.statistics.outputs import OutputRange, Signal, snr_db
from edgeconv.types import Agreement

_TINY = 1e-30


def agreements(outputs: Outputs, reference: Outputs, name: str) -> tuple[Agreement, ...]:
    """The agreement of each output that both have in the same shape, (n, ...).

    `name` is the reference's. A single output of each is the same one, with any name.
    """
    if len(outputs) == len(reference) == 1:
        reference = dict(zip(outputs, reference.values(), strict=True))
    return tuple(
        agreement(output, array, reference[output], name)
        for output, array in sorted(outputs.items())
        if output in reference and reference[output].shape == array.shape
    )


def agreement(output: str, actual: Array, expected: Array, name: str) -> Agreement:
    """The agreement of two arrays (n, ...) of numbers or strings, read block by block.

    A difference that is not finite counts as the largest float64.
    """
    if holds_strings(actual) and holds_strings(expected):
        return _string_agreement(output, actual, expected, name)
    has_classes = actual.ndim == 2 and actual.shape[1] > 1
    flips, highest = 0, 0.0
    signal, extent = Signal(), OutputRange()
    noise, cosines = 0.0, 0.0
    for rows, block in blocks(actual):
        have = np.asarray(block, np.float64).reshape(len(block), -1)
        want = np.asarray(expected[rows], np.float64).reshape(len(block), -1)
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
        samples=len(actual),
        flips=flips if has_classes else None,
        cosine=cosines / len(actual),
        snr_db=snr_db(signal.variance, noise / max(actual.size, 1)),
        max_error=highest,
        span=extent.span,
        varies_by=extent.varies_by,
    )


def _string_agreement(output: str, actual: Array, expected: Array, name: str) -> Agreement:
    """A sample of strings is flipped if any of its strings differs."""
    flips, differing = 0, 0
    for rows, block in blocks(actual):
        differs = (block != expected[rows]).reshape(len(block), -1)
        flips += int(differs.any(axis=1).sum())
        differing += int(differs.sum())
    return Agreement(
        output=output,
        reference=name,
        samples=len(actual),
        flips=flips,
        cosine=1 - differing / actual.size,
        snr_db=snr_db(1.0, differing / actual.size),
        max_error=float(differing > 0),
    )


def _cosines(have: Floats, want: Floats) -> Floats:
    """The cosine of the rows, (n,): 1 where both are equal, 0 if one is not finite."""
    norms = np.linalg.norm(have, axis=1) * np.linalg.norm(want, axis=1)
    products = np.einsum("ij,ij->i", have, want)
    cosines: Floats = np.where(norms > _TINY, products / np.maximum(norms, _TINY), 0.0)
    cosines[(have == want).all(axis=1)] = 1.0
    return np.nan_to_num(cosines, nan=0.0, posinf=0.0, neginf=0.0)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else sys.float_info.max
