"""Outputs of softmax and sigmoid as they would be if the network were less sure of its samples.

A network is very sure of the samples that it was trained with, and calibration samples are such:
its probabilities are 0 and 1, and hide errors that change answers on other samples. Divided by a
temperature, the same logits give probabilities that show them (Guo et al. 2017, "On Calibration of
Modern Neural Networks", section 4.2, where the confidence is to be the accuracy).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from edgeconv.quantize.parted import OutputArrays
    from edgeconv.tflite import Logits

    Floats = NDArray[np.float64]

# As sure as a network that is right nine times of ten.
_CONFIDENCE = 0.9
# Rows that a temperature is found by, and how often its interval is halved.
_MOST_ROWS = 4096
_HALVINGS = 30
_MOST_TEMPERATURE = 2.0**10


class Tempered(NamedTuple):
    """Logits that saturate their output, and by what to divide them so that they do not."""

    logits: Logits
    temperature: float

    @property
    def key(self) -> tuple[str, str]:
        """Signature and output."""
        return self.logits.signature, self.logits.output

    def probabilities(self, values: Floats, floor: float | None = None) -> Floats:
        """What logits [samples, ..., classes] would give: [samples, values, 1], of equal weight.

        Below `floor` a file's range ends, since its softmax sees nothing there.
        """
        cut = values if floor is None else np.maximum(values, floor)
        shares = _probabilities(cut / self.temperature, self.logits.beta)
        return shares.reshape(len(shares), -1, 1)


def saturated(logits: Iterable[Logits], expected: OutputArrays) -> tuple[Tempered, ...]:
    """Those of the logits whose outputs are surer than those of a network that errs now and then.

    `expected` has the float model's, [samples, ..., classes].
    """
    saturating = []
    for each in logits:
        values = expected[each.signature, each.output]
        temperature = _temperature(values, each.beta) if values.size else 1.0
        if temperature > 1:
            saturating.append(Tempered(each, temperature))
    return tuple(saturating)


def _temperature(values: Floats, beta: float | None) -> float:
    """By what to divide logits for a mean confidence of `_CONFIDENCE`; 1 where it is not higher."""
    rows = values.reshape(-1, values.shape[-1] if beta is not None else 1)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(int)]
    low, high = 0.0, float(np.log2(_MOST_TEMPERATURE))
    if not np.isfinite(rows).all() or _confidence(rows, beta) <= _CONFIDENCE:
        return 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_sure = _confidence(rows / 2.0**middle, beta) > _CONFIDENCE
        low, high = (middle, high) if is_sure else (low, middle)
    return float(2.0**high)


def _confidence(rows: Floats, beta: float | None) -> float:
    shares = _probabilities(rows, beta)
    most = np.maximum(shares, 1 - shares) if beta is None else shares.max(axis=-1)
    return float(most.mean())


def _probabilities(logits: Floats, beta: float | None) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        if beta is None:
            return 1 / (1 + np.exp(-logits))
        powers = np.exp(beta * (logits - logits.max(axis=-1, keepdims=True)))
        shares: Floats = powers / powers.sum(axis=-1, keepdims=True)
        return shares
