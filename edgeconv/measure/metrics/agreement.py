"""How close the outputs of a model are to another model's, on the same samples.

The outputs of a detector, after suppression, are boxes (n, boxes, 4), and the class and the score
of each box, both (n, boxes); the number of valid boxes, (n,) or (n, 1), is optional.
"""

import math
import sys
from typing import NamedTuple

import numpy as np

from edgeconv.data.arrays import holds_strings
from edgeconv.measure.metrics.scores import Array, Floats, Outputs, Scored, SimilarityMetric, blocks
from edgeconv.statistics.outputs import OutputRange, Signal, snr_db
from edgeconv.types import Agreement
from edgeconv.types.errors import InputRefused

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


# The overlap at which COCO and Pascal VOC count a box, and the usual threshold of scores.
LEAST_OVERLAP = 0.5
LEAST_SCORE = 0.5
_CORNERS = 4


class _OutputNames(NamedTuple):
    boxes: str
    classes: str
    scores: str


def detection_agreement(outputs: Outputs, reference: Outputs) -> Scored:
    """2 x matched boxes / (boxes of both) for each sample, (n,); 1 where neither finds any.

    Boxes with a score of 0.5 or more are matched one to one, the highest score first:
    of the same class, with an intersection of half of their union or more.
    """
    names = _names(reference)
    count = len(reference[names.boxes])
    values = np.empty(count, np.float64)
    for index in range(count):
        here, there = (_detections(each, names, index) for each in (outputs, reference))
        total = len(here[0]) + len(there[0])
        values[index] = 2 * _matched(here, there) / total if total else 1.0
    return Scored(values)


def _names(outputs: Outputs) -> _OutputNames:
    boxes = [n for n, a in outputs.items() if a.ndim == 3 and a.shape[2] == _CORNERS]
    if len(boxes) == 1:
        shape = outputs[boxes[0]].shape[:2]
        each = [n for n, a in outputs.items() if a.shape == shape]
        whole = [n for n in each if (np.rint(outputs[n]) == outputs[n]).all()]
        others = [n for n in each if n not in whole]
        if len(whole) == len(others) == 1:
            return _OutputNames(boxes[0], whole[0], others[0])
    shapes = ", ".join(f"{name!r} {array.shape}" for name, array in sorted(outputs.items()))
    raise InputRefused(
        f"the outputs are not detections: {shapes}",
        hint="detection_agreement needs boxes (n, boxes, 4), and classes and scores (n, boxes)",
    )


def _detections(outputs: Outputs, names: _OutputNames, index: int) -> tuple[Floats, Array]:
    """The boxes (k, 4) of one sample and their classes (k,), the highest score first."""
    scores = np.asarray(outputs[names.scores][index], np.float64)
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] >= LEAST_SCORE]
    boxes = np.asarray(outputs[names.boxes][index], np.float64)[order]
    return boxes, np.asarray(outputs[names.classes][index])[order]


def _matched(here: tuple[Floats, Array], there: tuple[Floats, Array]) -> int:
    overlaps = overlap(here[0], there[0]) * (here[1][:, None] == there[1][None, :])
    matched = 0
    for row in overlaps:
        if row.size and row.max() >= LEAST_OVERLAP:
            overlaps[:, int(row.argmax())] = 0
            matched += 1
    return matched


def overlap(a: Floats, b: Floats) -> Floats:
    """The intersection over union of every box in a (i, 4) with every one in b (j, 4): (i, j).

    A box is two opposite corners, y before x or x before y alike.
    """
    low_a, high_a = np.minimum(a[:, :2], a[:, 2:]), np.maximum(a[:, :2], a[:, 2:])
    low_b, high_b = np.minimum(b[:, :2], b[:, 2:]), np.maximum(b[:, :2], b[:, 2:])
    low = np.maximum(low_a[:, None], low_b[None])
    high = np.minimum(high_a[:, None], high_b[None])
    both = np.clip(high - low, 0, None).prod(axis=2)
    either = (high_a - low_a).prod(axis=1)[:, None] + (high_b - low_b).prod(axis=1)[None] - both
    shared: Floats = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
    return shared


DETECTION = SimilarityMetric(detection_agreement)
