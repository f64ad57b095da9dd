"""Whether a detector finds what the reference finds, without labels.

The outputs come from a detector after suppression: boxes (n, boxes, 4), and the class and the
score of each box, both (n, boxes); the number of valid boxes, (n,) or (n, 1), is optional.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgeconv.measure.metrics.scores import Array, Floats, Outputs, Scored, SimilarityMetric
from edgeconv.types.errors import InputRefused

# The overlap at which COCO and Pascal VOC count a box, and the usual threshold of scores.
LEAST_OVERLAP = 0.5
LEAST_SCORE = 0.5
_CORNERS = 4


class _OutputNames(NamedTuple):
    boxes: str
    classes: str
    scores: str


def agreement(outputs: Outputs, reference: Outputs) -> Scored:
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


DETECTION = SimilarityMetric(agreement)
