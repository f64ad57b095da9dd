"""Recipes, and the results of conversions."""

from __future__ import annotations

from typing import Literal

import msgspec

from edgeconv.types.model import (
    Noun,
    OldestRuntime,
    Opening,
    OperatorCount,
    Result,
    Signature,
    SourceKind,
)
from edgeconv.types.samples import Preprocessing
from edgeconv.types.training import Qat, QatRecord

RecipeName = Literal[
    "float32",
    "float16",
    "dynamic",
    "weight-only-int8",
    "int8",
    "int16x8",
    "weight-only-int4",
    "int8x4",
    "qat",
]
Engine = Literal["auto", "litert", "tflite"]
CalibrationRange = Literal["minmax", "ema", "percentile", "mse", "kl", "auto"]
IoType = Literal["float32", "int8", "uint8", "int16"]
PostTrainingMethod = Literal["equalization", "rounding", "bias-correction"]
# "auto" alone: those that make the error on held-back calibration samples smaller.
Methods = tuple[Literal["equalization", "rounding", "bias-correction", "auto"], ...]
Precision = Literal["float32", "float16", "int16x8", "int8", "int4", "int4-block32"]

# The recipes of `all`: those that need neither training nor a method.
RECIPE_NAMES: tuple[RecipeName, ...] = (
    "float32",
    "float16",
    "dynamic",
    "weight-only-int8",
    "int8",
    "int16x8",
)
# Their weights have 4 bits, where a layer has a kernel for that.
FOUR_BIT: tuple[RecipeName, ...] = ("weight-only-int4", "int8x4")
MAX_SNR_DB = 200.0
# What float32 arithmetic may change of a value, as a share of it.
ROUNDING = 2.0**-16
QAT: RecipeName = "qat"
# In the order of conversion and display.
EVERY_RECIPE: tuple[RecipeName, ...] = (*RECIPE_NAMES, *FOUR_BIT, QAT)
# Those whose activations' ranges are found with samples.
CALIBRATED: frozenset[RecipeName] = frozenset({"int8", "int16x8", "int8x4"})
FULL_INTEGER: frozenset[RecipeName] = CALIBRATED | {QAT}


class LayerRule(Noun, kw_only=True, frozen=True):
    """The precision of some layers, where it differs from the recipe's.

    `pattern` is an operator's name such as "CONV_2D", or the name of a layer's output tensor,
    in which * and ? stand for any text and any character. "float32" and "float16" compute in
    float, the latter with weights stored in float16; "int16x8" and "int8" are activations of 16
    and 8 bits with weights of 8, and "int4" weights of 4 bits. "int4-block32" has a scale for
    every 32 of them instead of one for a channel: FULLY_CONNECTED layers of the recipe dynamic
    take that, where the number of their inputs divides by 32.
    """

    pattern: str
    precision: Precision


class Recipe(Noun, kw_only=True, frozen=True):
    """How one artifact is made from the float graph.

    `allow_float` names the operators that a full-integer artifact may leave in
    float; `("*",)` allows all. `min_snr_db` is the lowest signal-to-noise ratio of
    an output against the float model that is still published. `methods` are the post-training
    ones that are applied, and `layers` the layers of another precision. `qat` is set where the
    model is trained on.
    """

    name: RecipeName
    engine: Engine = "auto"
    calibration_range: CalibrationRange = "minmax"
    input_type: IoType = "float32"
    output_type: IoType = "float32"
    allow_float: tuple[str, ...] = ()
    min_snr_db: float = 0.0
    methods: Methods = ()
    layers: tuple[LayerRule, ...] = ()
    qat: Qat | None = None

    @property
    def has_ranges(self) -> bool:
        """Whether the ranges of activations are found with calibration samples."""
        return self.name in CALIBRATED

    @property
    def calibrates(self) -> bool:
        """Whether calibration samples are needed, for ranges or for a method."""
        return self.has_ranges or bool(self.methods)

    @property
    def has_four_bits(self) -> bool:
        """Whether the weights are to have 4 bits where a kernel takes that."""
        return self.name in FOUR_BIT

    @property
    def full_integer(self) -> bool:
        """Whether weights and activations are to be integers."""
        return self.name in FULL_INTEGER


class Distance(Noun, kw_only=True, frozen=True):
    """How far an output is from its reference, and the range of the reference.

    `snr_db` is the variance of the reference's values over the mean square of the error, in
    decibels within ±200 (JSON has no infinity); equal outputs have 200. `span` is the smallest
    and the largest value of the reference, and `varies_by` the most that any one of them differs
    between two samples, in the output's own unit; None where they are not known.
    """

    output: str
    snr_db: float
    span: tuple[float, float] | None = None
    varies_by: float | None = None

    @property
    def is_flat(self) -> bool:
        """Whether all values of the reference are equal but for rounding: then no SNR says much."""
        return self.span is not None and self.span[1] - self.span[0] <= self._rounding

    @property
    def is_constant(self) -> bool:
        """Whether the reference is the same for every sample, but for rounding."""
        return self.varies_by is not None and self.varies_by <= self._rounding

    @property
    def _rounding(self) -> float:
        return ROUNDING * max(map(abs, self.span), default=0.0) if self.span else 0.0


class OutputError(Distance, kw_only=True, frozen=True):
    """How far one output is from its reference, over all the samples compared.

    `argmax_agreement` is the fraction of samples with the same largest class, None where the
    output is not a vector of classes. `step` is the output's quantization step in its own unit,
    0 where it has none. `samples` is 0 in manifests that do not have it yet.
    """

    max_abs_error: float
    rms_error: float
    rms_reference: float
    cosine: float
    argmax_agreement: float | None = None
    step: float = 0.0
    samples: int = 0

    @property
    def is_within_step(self) -> bool:
        """Whether no value is further off than the output's quantization step, but for rounding."""
        return 0 < self.max_abs_error <= self.step * (1 + ROUNDING)


class Verification(Noun, kw_only=True, frozen=True):
    """The verification of an artifact before it was published, on `samples` held-back samples."""

    reference: str
    samples: int
    synthetic: bool
    runtime: str
    outputs: tuple[OutputError, ...]
    warnings: tuple[str, ...] = ()


class TargetCheck(Noun, kw_only=True, frozen=True):
    """An artifact's run on its target runtime, in an environment of that runtime.

    `outputs` are against the same reference as in `Verification`; `cost` says what had to be given
    up to run there, "" for nothing.
    """

    runtime: str
    python: str
    outputs: tuple[OutputError, ...]
    cost: str = ""


class LadderStep(Noun, kw_only=True, frozen=True):
    """One attempt at a conversion: what was done, and why it failed; `failed` is "" if not."""

    attempt: str
    failed: str = ""


class MethodTrial(Noun, kw_only=True, frozen=True):
    """What one choice of ranges and methods gave on held-back calibration samples.

    `snr_db` is the lowest of all outputs against the float32 model, in decibels; `agreement` the
    lowest share of answers with the same largest class, None where no output has classes.
    """

    calibration_range: CalibrationRange
    methods: tuple[PostTrainingMethod, ...]
    snr_db: float
    agreement: float | None = None


class PostTraining(Noun, kw_only=True, frozen=True):
    """The ranges and methods by which an artifact was quantized.

    `trials` are those among which `auto` chose, on `held_back` calibration samples that took no
    part in them; none where nothing was left to choose. `four_bit` names the layers whose
    weights have 4 bits.
    """

    calibration_range: CalibrationRange
    methods: tuple[PostTrainingMethod, ...]
    trials: tuple[MethodTrial, ...] = ()
    held_back: int = 0
    four_bit: tuple[str, ...] = ()


class CalibrationRecord(Noun, kw_only=True, frozen=True):
    """Which samples a signature of an artifact was calibrated with."""

    signature: str
    source: str
    samples: int
    sha256: str
    range: CalibrationRange


class Artifact(Noun, kw_only=True, frozen=True):
    """A published .tflite, as its manifest describes it.

    `file` is relative to the manifest. `key` is the content hash of all that went
    in, so an equal key means that there is nothing to do. `ladder` has the attempts where the
    first one failed. `opening` is how the source was opened. `preprocessing` is by input name,
    "" for every input not named. `checksum` is in the file only; see edgeconv/store/checksums.py.
    """

    format: Literal[1] = 1
    name: str
    file: str
    key: str
    sha256: str
    size_bytes: int
    source_path: str
    source_kind: SourceKind
    source_sha256: str
    opening: Opening = Opening()
    recipe: Recipe
    engine: Literal["litert", "tflite"]
    signatures: tuple[Signature, ...]
    operators: tuple[OperatorCount, ...]
    quantized_weight_share: float
    float16_weight_share: float
    float_operators: tuple[str, ...]
    verification: Verification
    calibration: tuple[CalibrationRecord, ...] = ()
    preprocessing: dict[str, Preprocessing] = {}
    oldest_runtime: OldestRuntime | None = None
    target: TargetCheck | None = None
    post_training: PostTraining | None = None
    qat: QatRecord | None = None
    ladder: tuple[LadderStep, ...] = ()
    notes: tuple[str, ...] = ()
    tools: dict[str, str] = {}
    checksum: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        """Raise `ValueError` for a file that is not in the manifest's folder."""
        if self.file in ("", ".", "..") or "/" in self.file or "\0" in self.file:
            raise ValueError(f"the file {self.file!r} is not the name of a file next to it")

    @property
    def signature(self) -> Signature:
        """The first signature, which for most models is the only one."""
        return self.signatures[0]


class Failure(Noun, kw_only=True, frozen=True):
    """A recipe without an artifact, and why."""

    recipe: RecipeName
    error: str
    message: str
    hint: str = ""


class Conversion(Result, kw_only=True, frozen=True):
    """The result of `convert`: the artifacts published, and the recipes that failed.

    `reused` names the recipes that were already up to date.
    """

    directory: str
    artifacts: tuple[Artifact, ...]
    failures: tuple[Failure, ...] = ()
    reused: tuple[RecipeName, ...] = ()
