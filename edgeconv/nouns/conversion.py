"""What a conversion is asked for and what it gave."""

from __future__ import annotations

from typing import Literal

from edgeconv.nouns.model import Noun, OldestRuntime, OperatorCount, Signature, SourceKind
from edgeconv.nouns.samples import Preprocessing
from edgeconv.nouns.training import Qat, QatRecord

RecipeName = Literal["float32", "float16", "dynamic", "weight-only-int8", "int8", "int16x8", "qat"]
Engine = Literal["auto", "litert", "tflite"]
CalibrationRange = Literal["minmax", "ema"]
IoType = Literal["float32", "int8", "uint8", "int16"]

# Those that need no training, which are what `all` means.
RECIPE_NAMES: tuple[RecipeName, ...] = (
    "float32",
    "float16",
    "dynamic",
    "weight-only-int8",
    "int8",
    "int16x8",
)
MAX_SNR_DB = 200.0
QAT: RecipeName = "qat"
# Those whose ranges are found with samples.
CALIBRATED: frozenset[RecipeName] = frozenset({"int8", "int16x8"})
FULL_INTEGER: frozenset[RecipeName] = CALIBRATED | {QAT}


class Recipe(Noun, kw_only=True, frozen=True):
    """How one artifact is made from the float graph.

    `allow_float` names the operators that a full-integer artifact may leave in
    float; `("*",)` allows all. `min_snr_db` is the lowest signal-to-noise ratio of
    an output against the float model that is still published. `qat` is set where the model is
    trained on.
    """

    name: RecipeName
    engine: Engine = "auto"
    calibration_range: CalibrationRange = "minmax"
    input_type: IoType = "float32"
    output_type: IoType = "float32"
    allow_float: tuple[str, ...] = ()
    min_snr_db: float = 0.0
    qat: Qat | None = None

    @property
    def calibrates(self) -> bool:
        """Whether the ranges of activations are found with calibration samples."""
        return self.name in CALIBRATED

    @property
    def full_integer(self) -> bool:
        """Whether weights and activations are to be integers."""
        return self.name in FULL_INTEGER


class OutputError(Noun, kw_only=True, frozen=True):
    """How far one output is from its reference, over all the samples compared.

    `snr_db` is signal variance over error power in decibels, kept within ±200 (JSON has
    no infinity); equal outputs have 200. `argmax_agreement` is the fraction of samples with
    the same largest class, None where the output is not a vector of classes.
    """

    output: str
    snr_db: float
    max_abs_error: float
    rms_error: float
    rms_reference: float
    cosine: float
    argmax_agreement: float | None = None


class Verification(Noun, kw_only=True, frozen=True):
    """What was checked before an artifact was published, on `samples` held-back samples."""

    reference: str
    samples: int
    synthetic: bool
    runtime: str
    outputs: tuple[OutputError, ...]
    warnings: tuple[str, ...] = ()


class TargetCheck(Noun, kw_only=True, frozen=True):
    """An artifact's run on the runtime that it is for, in an environment of that runtime's own.

    `outputs` are against the same reference as in `Verification`; `cost` says what was given
    up so that it runs there, "" where nothing was.
    """

    runtime: str
    python: str
    outputs: tuple[OutputError, ...]
    cost: str = ""


class LadderStep(Noun, kw_only=True, frozen=True):
    """One attempt at a conversion: what was done, and why it failed; `failed` is "" if not."""

    attempt: str
    failed: str = ""


class CalibrationRecord(Noun, kw_only=True, frozen=True):
    """Which samples a signature of an artifact was calibrated with."""

    signature: str
    source: str
    samples: int
    sha256: str
    range: CalibrationRange


class Artifact(Noun, kw_only=True, frozen=True):
    """A published .tflite and everything that is known of it: its manifest.

    `file` is relative to the manifest. `key` is the content hash of all that went
    in, so an equal key means that there is nothing to do. `ladder` has the attempts where the
    first one did not do. `preprocessing` is by input name, "" for every input not named.
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
    qat: QatRecord | None = None
    ladder: tuple[LadderStep, ...] = ()
    notes: tuple[str, ...] = ()
    tools: dict[str, str] = {}

    @property
    def signature(self) -> Signature:
        """The first signature, which for most models is the only one."""
        return self.signatures[0]


class Failure(Noun, kw_only=True, frozen=True):
    """A recipe that gave nothing to publish, and why."""

    recipe: RecipeName
    error: str
    message: str


class Conversion(Noun, kw_only=True, frozen=True):
    """What one `convert` gave: the artifacts published, and the recipes that failed.

    `reused` names the recipes that were already up to date.
    """

    directory: str
    artifacts: tuple[Artifact, ...]
    failures: tuple[Failure, ...] = ()
    reused: tuple[RecipeName, ...] = ()
