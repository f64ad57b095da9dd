"""What each layer of a model loses by quantization."""

from __future__ import annotations

from typing import Literal

from edgeconv.types.conversion import (
    CalibrationRecord,
    LayerRule,
    OutputError,
    PostTraining,
    Precision,
    Recipe,
)
from edgeconv.types.model import Noun, Result

# A smaller gain may be a loss on other samples.
LEAST_GAIN_DB = 0.5


class Sensitivity(Noun, kw_only=True, frozen=True):
    """What one layer alone costs: it has this precision, and all others are in float.

    `layer` is the name of its first output tensor, as in a `LayerRule`; `weights` counts the
    numbers of its largest constant. `snr_db` is the lowest signal-to-noise ratio of the model's
    outputs against the float model, in decibels, within ±200.
    """

    layer: str
    operator: str
    weights: int
    precision: Precision
    snr_db: float


class DebuggedLayer(Noun, kw_only=True, frozen=True):
    """One layer of a float graph, and the effect of its precision in the quantized file.

    `position` is its number in the graph, from 1. `weight_bytes` is what its largest constant takes
    in `precision`. `alone_snr_db` is the lowest signal-to-noise ratio of the model's outputs when
    this layer alone is quantized; None where it runs in float, or does not run so. `inside_snr_db`
    is that of the layer's own output in the quantized file, with the errors of the layers before
    it; None where the file has no tensor of that name and shape.
    """

    layer: str
    operator: str
    position: int
    weights: int
    weight_bytes: int
    precision: Precision
    alone_snr_db: float | None = None
    inside_snr_db: float | None = None


class LayerFix(Noun, kw_only=True, frozen=True):
    """Rules for the worst layers that were tried, and the file that they gave."""

    rules: tuple[LayerRule, ...]
    snr_db: float
    size_bytes: int


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
    notes: tuple[str, ...] = ()

    @property
    def helpful(self) -> tuple[LayerFix, ...]:
        """The fixes worth having, the smallest file first.

        Each makes the outputs clearly better than the file does as it is, and than every smaller
        one of these.
        """
        helpful: list[LayerFix] = []
        best_db = self.snr_db
        for fix in sorted(self.fixes, key=lambda each: (each.size_bytes, -each.snr_db)):
            if fix.snr_db >= best_db + LEAST_GAIN_DB:
                helpful.append(fix)
                best_db = fix.snr_db
        return tuple(helpful)
