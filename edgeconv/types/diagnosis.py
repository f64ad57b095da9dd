"""Which preprocessing a model was trained with."""

from __future__ import annotations

from typing import Literal

from edgeconv.types.measurement import Accuracy
from edgeconv.types.model import FrozenStruct, Result
from edgeconv.types.samples import DataIdentity


class Trial(FrozenStruct, kw_only=True, frozen=True):
    """One preprocessing, and how often the model is right with it.

    `preprocess` is the text that `--preprocess` takes. `interval` is the 95 % interval of the
    accuracy; `fits` says that the model works with it, and no other was shown to be better.
    `is_current` marks what is used now.
    """

    name: str
    preprocess: str
    accuracy: Accuracy
    interval: tuple[float, float]
    fits: bool
    is_current: bool = False


class Diagnosis(Result, kw_only=True, frozen=True):
    """Which preprocessing a model was trained with, as far as some labeled samples tell.

    They are `data.samples` of the `available` ones.
    `data.preprocessing` is what is used now, `data.sha256` of the samples with it.
    `stored_dtype`, `stored_limits` are of the samples as they are stored. `classes` is the
    number of scores in the output, which are `scores`: "probabilities" add up to 1,
    "sigmoids" are in 0 to 1 and do not, and all else are "logits". The model's class is the
    label plus `label_offset`. `guessing` is the share of the commonest label, and `chance` how
    probable so good a best trial would be if the model only guessed. `trials` has the
    likeliest first: by accuracy, but a usual one before what was computed from these samples.
    """

    format: Literal[1] = 1
    model: str
    runtime: str
    data: DataIdentity
    available: int
    stored_dtype: str
    stored_limits: tuple[float, float]
    classes: int
    scores: Literal["probabilities", "sigmoids", "logits"]
    label_offset: int
    guessing: float
    chance: float
    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> tuple[Trial, ...]:
        """The trials that fit, the likeliest first: one is clear, of several none is."""
        return tuple(trial for trial in self.trials if trial.fits)

    @property
    def ok(self) -> bool:
        """Whether there is a fit."""
        return bool(self.fits)
