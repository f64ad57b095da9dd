"""The nouns: frozen, typed values that every verb takes and returns.

Each is a `msgspec.Struct`, so it validates when decoded and goes to JSON as it
is. Units are in the names (`_bytes`, `_us`), shares and accuracies are
fractions, and a dimension of -1 is dynamic.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SourceKind = Literal["saved_model", "keras", "hdf5", "tflite"]
RecipeName = Literal["float32", "float16", "dynamic", "weight-only-int8", "int8", "int16x8"]
Engine = Literal["auto", "litert", "tflite"]
CalibrationRange = Literal["minmax", "ema"]
IoType = Literal["float32", "int8", "uint8", "int16"]

RECIPE_NAMES: tuple[RecipeName, ...] = (
    "float32",
    "float16",
    "dynamic",
    "weight-only-int8",
    "int8",
    "int16x8",
)
MAX_SNR_DB = 200.0
FULL_INTEGER: frozenset[RecipeName] = frozenset({"int8", "int16x8"})


class Noun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of every noun."""


class TensorSpec(Noun, kw_only=True, frozen=True):
    """An input or output tensor: its name in the signature, shape and numpy dtype.

    `scale` and `zero_point` are empty for a float tensor, of length 1 for a
    per-tensor and of length C for a per-channel quantised one. Where a SavedModel leaves
    even the number of dimensions open, `rank_known` is false and `shape` is empty.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    rank_known: bool = True
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()


class Signature(Noun, kw_only=True, frozen=True):
    """A callable entry of a model: its key, and its inputs and outputs by name."""

    key: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class SourceModel(Noun, kw_only=True, frozen=True):
    """A model file as the user gave it, before anything ran.

    `path` is absolute; for a versioned parent it is the version directory that
    was chosen. `signatures` is empty for a Keras file, whose signature is only
    known once it is loaded.
    """

    path: str
    kind: SourceKind
    name: str
    sha256: str
    size_bytes: int
    signatures: tuple[Signature, ...] = ()
    notes: tuple[str, ...] = ()


class Recipe(Noun, kw_only=True, frozen=True):
    """How one artifact is made from the float graph.

    `allow_float` names the operators that a full-integer artifact may leave in
    float; `("*",)` allows all. `min_snr_db` is the lowest signal-to-noise ratio of
    an output against the float model that is still published.
    """

    name: RecipeName
    engine: Engine = "auto"
    calibration_range: CalibrationRange = "minmax"
    input_type: IoType = "float32"
    output_type: IoType = "float32"
    allow_float: tuple[str, ...] = ()
    min_snr_db: float = 0.0

    @property
    def full_integer(self) -> bool:
        """Whether weights and activations are to be integers."""
        return self.name in FULL_INTEGER


class OperatorCount(Noun, kw_only=True, frozen=True):
    """How often an operator occurs in a graph, at one version (0 where there are none)."""

    name: str
    version: int
    count: int


class GraphSummary(Noun, kw_only=True, frozen=True):
    """What a .tflite holds, read without running it.

    `quantized_weight_share` is the fraction of constant-weight bytes, counted as
    the float32 bytes they stand for, that are stored as integers of 8 bits or
    less; `float16_weight_share` likewise for float16. `weight_bytes` counts the same
    weights as stored. `float_operators` are those that compute on float32,
    `custom_operators` those the built-in runtime lacks.
    """

    signatures: tuple[Signature, ...]
    operators: tuple[OperatorCount, ...]
    weight_bytes: int
    quantized_weight_share: float
    float16_weight_share: float
    float_operators: tuple[str, ...] = ()
    custom_operators: tuple[str, ...] = ()
    description: str = ""


class Inspection(Noun, kw_only=True, frozen=True):
    """What is in a model file, read without running it.

    `operators` are those of the graph; for a Keras file they are its layers by class. The
    rest is known of a .tflite only: the fields of `GraphSummary`, None elsewhere.
    """

    model: SourceModel
    operators: tuple[OperatorCount, ...]
    weight_bytes: int | None = None
    quantized_weight_share: float | None = None
    float16_weight_share: float | None = None
    float_operators: tuple[str, ...] | None = None
    custom_operators: tuple[str, ...] | None = None
    description: str = ""


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


class CalibrationRecord(Noun, kw_only=True, frozen=True):
    """Which samples an artifact was calibrated with."""

    source: str
    samples: int
    sha256: str
    range: CalibrationRange


class Artifact(Noun, kw_only=True, frozen=True):
    """A published .tflite and everything that is known of it: its manifest.

    `file` is relative to the manifest. `key` is the content hash of all that went
    in, so an equal key means that there is nothing to do.
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
    signature: Signature
    operators: tuple[OperatorCount, ...]
    quantized_weight_share: float
    float16_weight_share: float
    float_operators: tuple[str, ...]
    verification: Verification
    calibration: CalibrationRecord | None = None
    notes: tuple[str, ...] = ()
    tools: dict[str, str] = {}


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


class Latency(Noun, kw_only=True, frozen=True):
    """Raw invoke times in a fresh process, batch `batch`, in microseconds.

    `rounds_us` holds one tuple of samples per process; the processes of all the
    artifacts were run in turn. `load_us` and `first_us` are kept apart, one a round.
    """

    rounds_us: tuple[tuple[float, ...], ...]
    load_us: tuple[float, ...]
    first_us: tuple[float, ...]
    threads: int
    batch: int
    p50_us: float
    p90_us: float


class Accuracy(Noun, kw_only=True, frozen=True):
    """Top-1 accuracy over labelled samples, with the answer to each of them.

    `correct` is one character a sample, "1" right and "0" wrong, in the order of
    the data set, so that two measurements of the same samples can be paired.
    """

    metric: Literal["top1"] = "top1"
    value: float
    samples: int
    correct: str


class Measurement(Noun, kw_only=True, frozen=True):
    """What was measured of one model: an artifact, or the trained baseline.

    `accuracy_drop` is baseline minus this model, `latency_ratio` this model over the
    float32 .tflite, `size_ratio` this model over the baseline on disk; `fixed` and `broken`
    count the samples that changed from wrong to right and back. `peak_memory_bytes` is the
    growth of the peak resident set over the bare runtime; of a baseline in TensorFlow it is
    the whole process.
    None means that it was not measured, never that it was good. `error` is set, and
    the rest None, where the model did not run.
    """

    name: str
    role: Literal["baseline", "artifact"]
    runtime: str
    sha256: str
    size_bytes: int
    gzip_size_bytes: int | None = None
    recipe: RecipeName | None = None
    latency: Latency | None = None
    peak_memory_bytes: int | None = None
    accuracy: Accuracy | None = None
    size_ratio: float | None = None
    latency_ratio: float | None = None
    accuracy_drop: float | None = None
    fixed: int | None = None
    broken: int | None = None
    error: str = ""


class DataIdentity(Noun, kw_only=True, frozen=True):
    """Which samples were used: where from, how many, and the hash of their content."""

    source: str
    samples: int
    sha256: str


class Environment(Noun, kw_only=True, frozen=True):
    """The machine and the versions that the measurements belong to."""

    machine: str
    cpu: str
    cores: int
    system: str
    python: str
    tools: dict[str, str]


class TrainingRecord(Noun, kw_only=True, frozen=True):
    """How the baseline was trained.

    `metrics` is one entry an epoch, on the training samples; `test_metrics` the final
    ones, on the test samples. `seconds` is the time of the epochs alone.
    """

    model: str
    strategy: str
    replicas: int
    global_batch: int
    epochs: int
    seed: int
    seconds: float
    train_samples: int
    metrics: tuple[dict[str, float], ...]
    test_samples: int = 0
    test_metrics: dict[str, float] = {}
    saved_model: str


class Finding(Noun, kw_only=True, frozen=True):
    """One limit held against one number. A number that is missing or NaN never passes."""

    model: str
    limit: str
    allowed: float
    actual: float | None
    ok: bool


class Verdict(Noun, kw_only=True, frozen=True):
    """Every limit of a budget held against a report."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there is a finding, and every one holds."""
        return bool(self.findings) and all(finding.ok for finding in self.findings)


class Report(Noun, kw_only=True, frozen=True):
    """A set of measurements made together, beside the baseline they are judged by."""

    format: Literal[1] = 1
    title: str
    environment: Environment
    data: DataIdentity | None
    baseline: Measurement | None
    measurements: tuple[Measurement, ...]
    training: TrainingRecord | None = None
    artifacts: tuple[Artifact, ...] = ()
    verdict: Verdict | None = None
    notes: tuple[str, ...] = ()


class Limits(Noun, kw_only=True, frozen=True, rename="kebab", omit_defaults=True):
    """The limits a budget may set; all are inclusive maxima but `min-accuracy`."""

    max_size_bytes: float | None = None
    max_gzip_size_bytes: float | None = None
    max_size_ratio: float | None = None
    max_latency_p50_us: float | None = None
    max_latency_ratio: float | None = None
    max_peak_memory_bytes: float | None = None
    max_accuracy_drop: float | None = None
    min_accuracy: float | None = None


class Budget(Noun, kw_only=True, frozen=True):
    """Limits for every artifact, and further ones by recipe name.

    As TOML: a table `[budget]` for all, and `[budget.recipe.NAME]` for one recipe.
    """

    every: Limits = Limits()
    recipe: dict[str, Limits] = {}
