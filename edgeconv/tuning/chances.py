"""What a drop on some samples says of the drop on others."""

from __future__ import annotations

import math
from statistics import NormalDist, pvariance
from typing import TYPE_CHECKING

from edgeconv.measure.metrics.accuracy import flips
from edgeconv.statistics.paired import drop_of
from edgeconv.types import Loss

if TYPE_CHECKING:
    from edgeconv.types import Accuracy

# A candidate that is likelier than this to be within the budget may be the answer: half for one
# of the few uniform recipes, more where the search had many to choose from, of which the luckiest
# would win.
LIKELY, LIKELY_OF_MANY = 0.5, 0.8
# What is all but sure to be.
SURE = 0.95
# Fewer samples in a part say nothing of any budget.
LEAST_OF_A_PART = 20
LEAST_SAMPLES = 2 * LEAST_OF_A_PART
_NORMAL = NormalDist()


def loss_of(before: Accuracy, after: Accuracy) -> Loss:
    """What `after` loses to `before`, by the same metric on the same samples."""
    drop, interval = drop_of(before, after)
    if before.correct:
        fixed, broken = flips(before, after)
        # One flip more than was seen: where none was, some may yet be.
        variance = (fixed + broken + 1) / after.samples
        return Loss(
            value=after.value,
            drop=drop,
            samples=after.samples,
            variance=variance,
            interval=interval,
            fixed=fixed,
            broken=broken,
        )
    parts = [a - b for a, b in zip(before.per_sample, after.per_sample, strict=True)]
    return Loss(
        value=after.value,
        drop=drop,
        samples=after.samples,
        variance=pvariance(parts),
        interval=interval,
    )


def chance_within(loss: Loss, budget: float, samples: int) -> float:
    """How probable a drop of at most `budget` is on so many other samples.

    Predictive: both the true drop, known from the samples of `loss` only, and the drop on the
    others scatter, each with the variance of one sample's part over their number. The normal
    distribution is near enough to rank by; counts move in steps, of which half a one is added.
    """
    step = 0.5 / samples if loss.broken is not None else 0.0
    spread = math.sqrt(loss.variance * (1 / loss.samples + 1 / samples))
    room = budget + step - loss.drop
    if spread == 0:
        return float(room >= 0)
    return _NORMAL.cdf(room / spread)


def enough_samples(budget: float) -> int:
    """How many samples in all are needed for one answer of each half to be within the budget."""
    return 2 * max(LEAST_OF_A_PART, math.ceil(1 / budget - 1e-9)) if budget > 0 else LEAST_SAMPLES
