"""What each layer of a model loses by quantization."""

from __future__ import annotations

from typing import Literal

from edgeconv.types.conversion import (
    CalibrationRecord,
    LayerRule,
    Methods,
    OutputError,
    PostTraining,
    Precision,
    Recipe,
    RecipeName,
    SharedScale,
)
from edgeconv.types.model import FrozenStruct, Result

# A smaller gain may be a loss on other samples.
LEAST_GAIN_DB = 0.5


class Sensitivity(FrozenStruct, kw_only=True, frozen=True):
    """What one layer alone costs: it has this precision, and all others are in float.

    `layer` is its short name, as in a `LayerRule`; `weights` counts the numbers of its largest
    constant. `snr_db` is the lowest signal-to-noise ratio of the model's outputs against the float
    model, in decibels, within ±200.
    """

    layer: str
    operator: str
    weights: int
    precision: Precision
    snr_db: float


class DebuggedLayer(FrozenStruct, kw_only=True, frozen=True):
    """One layer of a float graph, and the effect of its precision in the quantized file.

    `layer` is its short name, and `tensor` the name of its first output tensor. `position` is its
    number in the graph, from 1. `weight_bytes` is what its largest constant takes in `precision`.
    `alone_snr_db` is the lowest signal-to-noise ratio of the model's outputs when this layer alone
    is quantized; None where it runs in float, or does not run so. `inside_snr_db` is that of the
    layer's own output in the quantized file, with the errors of the layers before it; None where
    the file has no tensor of that name and shape.
    """

    layer: str
    operator: str
    position: int
    weights: int
    weight_bytes: int
    precision: Precision
    alone_snr_db: float | None = None
    inside_snr_db: float | None = None
    tensor: str = ""


class LayerFix(FrozenStruct, kw_only=True, frozen=True):
    """A change that was tried, and the file that it gave.

    It is one of these: `rules` for the worst layers; `methods`, with what they chose in
    `post_training`; or another `recipe` without methods. `snr_db` is the lowest signal-to-noise
    ratio of the outputs, in decibels.
    """

    rules: tuple[LayerRule, ...] = ()
    methods: Methods = ()
    recipe: RecipeName | None = None
    snr_db: float
    size_bytes: int
    post_training: PostTraining | None = None


class Debugged(Result, kw_only=True, frozen=True):
    """Which layers of a model lose most by a recipe, and what helps.

    `outputs` is how far each output of the quantized model is from the float32 model's, `snr_db`
    the lowest of their signal-to-noise ratios, and like all the others here it is over the same
    `samples` of those that calibrated. `layers` has the costliest first, by `alone_snr_db`.
    `fixes` are all that were tried, in order; `post_training` says which ranges and
    methods the file has.
    """

    format: Literal[1] = 1
    model: str
    signature: str
    recipe: Recipe
    calibration: CalibrationRecord
    samples: int
    runtime: str
    float_size_bytes: int
    size_bytes: int
    outputs: tuple[OutputError, ...] = ()
    snr_db: float
    layers: tuple[DebuggedLayer, ...]
    fixes: tuple[LayerFix, ...] = ()
    post_training: PostTraining | None = None
    shared_scales: tuple[SharedScale, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def helpful(self) -> tuple[LayerFix, ...]:
        """The fixes worth having, the best first, and those with another recipe after the others.

        Each makes the outputs clearly better than the file does as it is. Of those with the same
        recipe, each is also clearly better than all whose files are as small or smaller.
        """
        helpful: list[LayerFix] = []
        best_db = self.snr_db
        for fix in sorted(self.fixes, key=lambda each: (each.size_bytes, -each.snr_db)):
            if fix.recipe is None and fix.snr_db >= best_db + LEAST_GAIN_DB:
                helpful.append(fix)
                best_db = fix.snr_db
        others = [fix for fix in self.fixes if fix.recipe is not None]
        better = [fix for fix in others if fix.snr_db >= self.snr_db + LEAST_GAIN_DB]
        return (*reversed(helpful), *sorted(better, key=lambda each: -each.snr_db))
