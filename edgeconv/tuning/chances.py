"""How probable a drop on other samples is, given the drop on some."""

from __future__ import annotations

import math
from statistics import NormalDist, pvariance
from typing import TYPE_CHECKING

from edgeconv.measure.metrics.accuracy import flips
from edgeconv.statistics.paired import drop_of
from edgeconv.types import Loss

if TYPE_CHECKING:
    from edgeconv.types import Accuracy

# A candidate that is likelier than this to be within the budget may be the answer. Half is enough
# for one of the few uniform recipes. Of many mixes the luckiest would win, so more is needed.
LIKELY, LIKELY_OF_MANY = 0.5, 0.8
# What is all but sure to be within it.
SURE = 0.95
# Fewer samples in a half show nothing about any budget.
LEAST_OF_A_PART = 20
LEAST_SAMPLES = 2 * LEAST_OF_A_PART
_NORMAL = NormalDist()


def loss_of(before: Accuracy, after: Accuracy) -> Loss:
    """What `after` loses to `before`, by the same metric on the same samples."""
    drop, interval = drop_of(before, after)
    if before.correct:
        fixed, broken = flips(before, after)
        # One flip more than was counted: none on these samples does not mean none on others.
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
    """How probable a drop of at most `budget` is on `samples` other samples.

    Predictive: the drop on the samples of `loss` and the drop on the others both scatter around
    the true drop, each with the variance of one sample's part over their number. The normal
    distribution is close enough for a ranking; half a step is added, since counts are discrete.
    """
    step = 0.5 / samples if loss.broken is not None else 0.0
    spread = math.sqrt(loss.variance * (1 / loss.samples + 1 / samples))
    room = budget + step - loss.drop
    if spread == 0:
        return float(room >= 0)
    return _NORMAL.cdf(room / spread)


def enough_samples(budget: float) -> int:
    """How many samples are needed in all for one answer of each half to be within the budget."""
    return 2 * max(LEAST_OF_A_PART, math.ceil(1 / budget - 1e-9)) if budget > 0 else LEAST_SAMPLES
