"""Recipes, and the results of conversions."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec

from edgeconv.types.errors import ToolFailed, unknown_name
from edgeconv.types.model import (
    FrozenStruct,
    OldestRuntime,
    Opening,
    OperatorCount,
    Result,
    Signature,
    SourceKind,
)
from edgeconv.types.samples import Preprocessing
from edgeconv.types.training import Qat, QatRecord

# Opens a model in an interpreter of this process.
_RUNNING = "edgeconv.runtimes.in_process"
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
# "auto" alone: those that are needed, and make the error on held-back calibration samples smaller.
Methods = tuple[Literal["equalization", "rounding", "bias-correction", "auto"], ...]
Closeness = Literal["", "close", "borderline", "far", "coarse"]
# `no kernel`: nor has anything equal one; `rule`: for the layer, typed or found; `neighbor`: it is
# next to such an operator; `engine`: its kernel was not used.
FloatReason = Literal["no kernel", "rule", "neighbor", "engine"]
# How close an output is, in its own terms (statistics/grades.py); "" where nothing was compared.
# `unproven`: close on too few samples to tell.
Grade = Literal["", "close", "unproven", "usable", "poor"]
# Fewer samples prove nothing: not that a file is close, nor that answers are right by chance, nor a
# kappa of more.
LEAST_SAMPLES = 8
# Rows of probabilities; scores of classes; probabilities, each by itself; whole numbers and texts.
OutputKind = Literal["", "classes", "scores", "probabilities", "labels", "numbers"]
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


class LayerRule(FrozenStruct, kw_only=True, frozen=True):
    """The precision of some layers, where it differs from the recipe's.

    `pattern` is an operator's name such as "CONV_2D", or a layer's name: the short one, as `debug`
    shows it, or that of its output tensor; * and ? stand for any text and any character. "float32"
    and "float16" compute in float, the latter with weights stored in float16; "int16x8" and "int8"
    are activations of 16 and 8 bits with weights of 8, and "int4" weights of 4 bits. "int4-block32"
    has a scale for every 32 of them instead of one for a channel: FULLY_CONNECTED layers of the
    recipe dynamic take that, where the number of their inputs divides by 32.
    """

    pattern: str
    precision: Precision


class Recipe(FrozenStruct, kw_only=True, frozen=True):
    """How one artifact is made from the float graph.

    `only_integers` refuses a full-integer artifact in which an operator computes in float.
    `min_snr_db` is the lowest signal-to-noise ratio of an output against the float model that is
    still published, None for no limit. `methods` are the post-training
    ones that are applied, and `layers` the layers of another precision. `qat` is set where the
    model is trained on.
    """

    name: RecipeName
    engine: Engine = "auto"
    calibration_range: CalibrationRange = "minmax"
    input_type: IoType = "float32"
    output_type: IoType = "float32"
    only_integers: bool = False
    min_snr_db: float | None = None
    methods: Methods = ()
    layers: tuple[LayerRule, ...] = ()
    qat: Qat | None = None

    @property
    def has_ranges(self) -> bool:
        """Whether the ranges of activations are found with calibration samples."""
        return self.name in CALIBRATED

    @property
    def calibrates(self) -> bool:
        """Whether calibration samples are used, for ranges or for methods."""
        return self.has_ranges or bool(self.methods)

    @property
    def needs_samples(self) -> bool:
        """Whether there is nothing without calibration samples; "auto" tries nothing then."""
        return self.has_ranges or bool(set(self.methods) - {"auto"})

    @property
    def has_four_bits(self) -> bool:
        """Whether the weights are to have 4 bits where a kernel takes that."""
        return self.name in FOUR_BIT

    @property
    def full_integer(self) -> bool:
        """Whether weights and activations are to be integers wherever there is a kernel."""
        return self.name in FULL_INTEGER


class Distance(FrozenStruct, kw_only=True, frozen=True):
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

    `argmax_agreement` is the fraction of rows with the same largest class, or of equal labels, None
    where the output is neither. `probability_error` is the largest of probabilities; of more than
    4,096 in a sample, that of all but one in a thousand. `step` is the output's quantization step
    in its own unit, 0 where it has none. `samples` is 0 in manifests that do not have it yet.
    `snr_interval_db` is the 95 % interval of `snr_db` for other samples of the same kind; None
    where it is not known.
    """

    max_abs_error: float
    rms_error: float
    rms_reference: float
    cosine: float
    argmax_agreement: float | None = None
    step: float = 0.0
    samples: int = 0
    snr_interval_db: tuple[float, float] | None = None
    probability_error: float | None = None
    kind: OutputKind = ""
    grade: Grade = ""

    @property
    def is_within_step(self) -> bool:
        """Whether no value is further off than the output's quantization step, but for rounding."""
        return 0 < self.max_abs_error <= self.step * (1 + ROUNDING)


class Verification(FrozenStruct, kw_only=True, frozen=True):
    """The verification of an artifact before it was published, on `samples` held-back samples.
    `grade` is that of the worst output, `advice` says what would make it better, "" for nothing.
    """

    reference: str
    samples: int
    synthetic: bool
    runtime: str
    outputs: tuple[OutputError, ...]
    grade: Grade = ""
    advice: str = ""
    warnings: tuple[str, ...] = ()


class TargetCheck(FrozenStruct, kw_only=True, frozen=True):
    """An artifact's run on its target runtime, in an environment of that runtime.

    `runtime` is a package and its version, or "gpu" and the device. `outputs` are against the same
    reference as in `Verification`; `cost` says what had to be given up to run there, "" for
    nothing.
    """

    runtime: str
    python: str
    outputs: tuple[OutputError, ...]
    cost: str = ""


class FloatOperators(FrozenStruct, kw_only=True, frozen=True):
    """Operators of one kind that compute in float in a full-integer artifact, and why.

    `layers` are the short names of the first few of `count`.
    """

    name: str
    count: int
    layers: tuple[str, ...]
    reason: FloatReason


class LadderStep(FrozenStruct, kw_only=True, frozen=True):
    """One attempt at a conversion: what was done, and why it failed; `failed` is "" if not."""

    attempt: str
    failed: str = ""


class MethodTrial(FrozenStruct, kw_only=True, frozen=True):
    """What one choice of ranges and methods gave on held-back calibration samples.

    `snr_db` is the lowest of all outputs against the float32 model, in decibels; `agreement` the
    lowest share of answers with the same largest class, None where no output has classes.
    `failed` says why there was no file; then `snr_db` is -200.
    """

    calibration_range: CalibrationRange
    methods: tuple[PostTrainingMethod, ...]
    snr_db: float
    agreement: float | None = None
    failed: str = ""


# The note of a file whose calibration samples are all that verified it.
OVERLAPPING = "verified on calibration samples: the source has no others to hold back"
# Begins the note on the outputs that are states.
FED_BACK = "outputs are fed back as inputs: "
# Begins a note of a file whose "auto" stood for nothing.
NOT_TRIED = "no post-training methods were tried"


class PostTraining(FrozenStruct, kw_only=True, frozen=True):
    """The ranges and methods by which an artifact was quantized.

    `trials` are those among which `auto` chose, the plain file first, on `held_back` calibration
    samples that took no part in them; none where nothing was left to choose. The artifact itself
    was then made with all calibration samples. `closeness` to the float model is that of the trial
    taken, "" where it is not known: "borderline" is close, but not beyond the noise of so few
    samples; "coarse" is within a step of the outputs' own integers, which are too coarse for such
    small outputs. `is_less_sure`: softmax and sigmoid were compared as if the model were less sure
    of its samples, which shows more of their error. `four_bit` names the layers whose weights have
    4 bits, and `eight_bit` those of a 4-bit recipe that keep 8, since that costs next to nothing.
    `spared` names those that are kept in a higher precision since no method made the file close.
    """

    calibration_range: CalibrationRange
    methods: tuple[PostTrainingMethod, ...]
    trials: tuple[MethodTrial, ...] = ()
    held_back: int = 0
    closeness: Closeness = ""
    is_less_sure: bool = False
    four_bit: tuple[str, ...] = ()
    eight_bit: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()


class InputRange(FrozenStruct, kw_only=True, frozen=True):
    """The values of an input over all calibration samples, in the input's own unit.

    `is_whole` says that all are whole numbers, and `is_scaled` that the model scales these itself.
    """

    name: str
    low: float
    high: float
    mean: float
    deviation: float
    is_whole: bool = False
    is_scaled: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def text(self) -> str:
        """The range and scale in words."""
        kind = ", whole numbers" if self.is_whole else ""
        kind += " that the model scales itself" if self.is_scaled else ""
        return (
            f"{self.name!r}: {self.low:.4g} to {self.high:.4g}, mean {self.mean:.3g}, deviation "
            f"{self.deviation:.3g}{kind}"
        )


class Suspicion(FrozenStruct, frozen=True):
    """Why calibration samples may be wrong; `is_certain` says that they cannot be right."""

    reason: str
    is_certain: bool = False


class ScalePart(FrozenStruct, kw_only=True, frozen=True):
    """One part of an output: the range of its values, and its error in two files.

    `snr_db` is its signal-to-noise ratio where all parts share one scale, and `own_snr_db` where
    rules give each its own, in decibels; None where no rules do.
    """

    span: tuple[float, float]
    snr_db: float
    own_snr_db: float | None = None


class SharedScale(FrozenStruct, kw_only=True, frozen=True):
    """An output whose parts share one scale although their ranges differ by more than 4 times.

    `layers` names those that join the parts, as the boxes and the scores of a detector. `rules`
    give each part its own scale, as was measured on calibration samples; () if none was found.
    `applied`: the artifact was made with them.
    """

    signature: str
    output: str
    layers: tuple[str, ...]
    parts: tuple[ScalePart, ...]
    rules: tuple[LayerRule, ...] = ()
    applied: bool = False


class CalibrationRecord(FrozenStruct, kw_only=True, frozen=True):
    """Which samples a signature of an artifact was calibrated with.

    `inputs` are the ranges of its inputs of numbers; none in manifests that do not have them yet.
    `distance` is how far the statistics of the model's normalization layers are from what the
    samples give there, 0 for samples like those of the training; None where it has no such layers.
    `suspicions` say why the samples may be wrong.
    """

    signature: str
    source: str
    samples: int
    sha256: str
    range: CalibrationRange
    inputs: tuple[InputRange, ...] = ()
    distance: float | None = None
    suspicions: tuple[Suspicion, ...] = ()


class Artifact(FrozenStruct, kw_only=True, frozen=True):
    """A published .tflite, as its manifest describes it.

    `file` is relative to the manifest. `key` is the content hash of all that went
    in, so an equal key means that there is nothing to do. `ladder` has the attempts where the
    first one failed. `opening` is how the source was opened. `preprocessing` is by input name,
    "" for every input not named. `source_path` is the model's path in the project, or
    its name if it is elsewhere. `left_in_float` and `integer_share` are of full-integer recipes:
    what computes in float, and the share of the work in integers, which is multiplications, or
    output values where there are none. `notes` are about the use of the file, `details` about how
    it was made. `checksum` is in the file only; see system/store/hashes.py.
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
    left_in_float: tuple[FloatOperators, ...] = ()
    integer_share: float | None = None
    verification: Verification
    calibration: tuple[CalibrationRecord, ...] = ()
    preprocessing: dict[str, Preprocessing] = {}
    oldest_runtime: OldestRuntime | None = None
    target: TargetCheck | None = None
    post_training: PostTraining | None = None
    shared_scales: tuple[SharedScale, ...] = ()
    qat: QatRecord | None = None
    ladder: tuple[LadderStep, ...] = ()
    notes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
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

    @property
    def has_own_states(self) -> bool:
        """Whether it was verified on consecutive samples, with its own states."""
        return any(note.startswith(FED_BACK) for note in self.notes)


class PublishedArtifact(Artifact, kw_only=True, frozen=True):
    """An artifact where it is published, in `directory`; it is taken wherever a path is."""

    directory: str

    @property
    def path(self) -> Path:
        """The .tflite."""
        return Path(self.directory, self.file)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"{self.recipe.name}: {self.path}, {self.size_bytes:,} bytes"

    def interpreter(self, threads: int = 1) -> Any:
        """LiteRT's interpreter of the file, in this process, its tensors allocated.

        Raises `ToolFailed` where it does not take the model, as one with operators of TensorFlow.
        """
        opened: Any = import_module(_RUNNING)
        interpreter = opened.open_interpreter(self.path.read_bytes(), threads=threads)
        with opened.runtime_errors():
            interpreter.allocate_tensors()
        return interpreter


class Failure(FrozenStruct, kw_only=True, frozen=True):
    """A recipe without an artifact, and why."""

    recipe: RecipeName
    error: str
    message: str
    hint: str = ""


class Conversion(Result, kw_only=True, frozen=True):
    """The result of `convert`: the artifacts published, and the recipes that failed.

    `reused` names the recipes that were already up to date. `choosing_s` is what trials of methods
    took in this run, in seconds. `notes` are about what was in the directory before.
    """

    directory: str
    artifacts: tuple[Artifact, ...]
    failures: tuple[Failure, ...] = ()
    reused: tuple[RecipeName, ...] = ()
    choosing_s: float = 0.0
    notes: tuple[str, ...] = ()

    def __fspath__(self) -> str:
        return self.directory

    def __iter__(self) -> Iterator[RecipeName]:
        """The recipes that were made, as a dictionary gives its keys."""
        return (artifact.recipe.name for artifact in self.artifacts)

    def __getitem__(self, recipe: str) -> PublishedArtifact:
        """The artifact of a recipe. Raises `ToolFailed` where it was not made, `UsageError`."""
        for artifact in self.artifacts:
            if artifact.recipe.name == recipe:
                return PublishedArtifact(directory=self.directory, **_fields(artifact))
        for failure in self.failures:
            if failure.recipe == recipe:
                message = f"{recipe} was not made: {failure.message}"
                raise ToolFailed(message, hint=failure.hint)
        raise unknown_name("recipe of this conversion", str(recipe), self)


def _fields(artifact: Artifact) -> dict[str, Any]:
    return {name: getattr(artifact, name) for name in artifact.__struct_fields__}
