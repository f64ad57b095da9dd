"""What editors and type checkers know of edgeconv; tests/unit/requests/test_stub.py writes it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias

from edgeconv.model.source import load as load
from edgeconv.types import (
    Acceleration as Acceleration,
    AcceptedDrop as AcceptedDrop,
    Accuracy as Accuracy,
    Agreement as Agreement,
    Allowance as Allowance,
    Artifact as Artifact,
    Budget as Budget,
    Built as Built,
    CalibrationRecord as CalibrationRecord,
    CellResult as CellResult,
    Check as Check,
    Checked as Checked,
    ClassDrop as ClassDrop,
    Comparison as Comparison,
    Conditions as Conditions,
    Confirmation as Confirmation,
    Conversion as Conversion,
    DataIdentity as DataIdentity,
    DataSource as DataSource,
    Debugged as Debugged,
    DebuggedLayer as DebuggedLayer,
    Diagnosis as Diagnosis,
    Difference as Difference,
    Distance as Distance,
    Distribution as Distribution,
    Embedded as Embedded,
    EmbeddedFile as EmbeddedFile,
    Environment as Environment,
    Epoch as Epoch,
    Evidence as Evidence,
    Execution as Execution,
    Failure as Failure,
    FileState as FileState,
    Finding as Finding,
    FlipCount as FlipCount,
    FloatOperators as FloatOperators,
    GateStatistics as GateStatistics,
    GraphSummary as GraphSummary,
    InputRange as InputRange,
    Inspection as Inspection,
    LadderStep as LadderStep,
    LastCheck as LastCheck,
    Latency as Latency,
    LayerError as LayerError,
    LayerFix as LayerFix,
    LayerRule as LayerRule,
    Limit as Limit,
    Limits as Limits,
    Link as Link,
    Lock as Lock,
    LockedModel as LockedModel,
    LockedStage as LockedStage,
    Loss as Loss,
    Measurement as Measurement,
    Measuring as Measuring,
    MethodTrial as MethodTrial,
    MetricChoice as MetricChoice,
    ModelDifference as ModelDifference,
    NpuChoice as NpuChoice,
    NpuEstimate as NpuEstimate,
    NpuLeft as NpuLeft,
    NumberChange as NumberChange,
    OldestRuntime as OldestRuntime,
    Opening as Opening,
    OperatorChange as OperatorChange,
    OperatorCount as OperatorCount,
    OperatorTime as OperatorTime,
    OperatorsLimit as OperatorsLimit,
    OutputError as OutputError,
    PacedLatency as PacedLatency,
    PostTraining as PostTraining,
    Preprocessing as Preprocessing,
    Profile as Profile,
    PublishedArtifact as PublishedArtifact,
    Qat as Qat,
    QatRecord as QatRecord,
    Recipe as Recipe,
    Report as Report,
    RuntimeChoice as RuntimeChoice,
    RuntimeLimit as RuntimeLimit,
    RuntimeNeed as RuntimeNeed,
    RuntimeVersions as RuntimeVersions,
    ScalePart as ScalePart,
    Scan as Scan,
    ScanFinding as ScanFinding,
    Sensitivity as Sensitivity,
    SharedScale as SharedScale,
    Signature as Signature,
    SourceModel as SourceModel,
    StageState as StageState,
    Stamp as Stamp,
    Steps as Steps,
    Suspicion as Suspicion,
    SweepCell as SweepCell,
    Swept as Swept,
    TargetCheck as TargetCheck,
    TargetRuntime as TargetRuntime,
    TensorChange as TensorChange,
    TensorSpec as TensorSpec,
    Timing as Timing,
    Training as Training,
    TrainingRecord as TrainingRecord,
    TreatedLayer as TreatedLayer,
    Trial as Trial,
    Tuning as Tuning,
    TuningTrial as TuningTrial,
    UnprovenLimit as UnprovenLimit,
    Validated as Validated,
    Verdict as Verdict,
    Verification as Verification,
    VersionResult as VersionResult,
)
from edgeconv.types.errors import EdgeconvError as EdgeconvError

class KerasModel(Protocol):
    """A Keras 3 or tf_keras model in memory."""

    name: Any
    def save(self, filepath: Any, /) -> Any: ...
    def export(self, filepath: Any, /) -> Any: ...

class Array(Protocol):
    """An array of NumPy, or what gives one: a tensor, a column or a table of pandas."""

    def __array__(self) -> Any: ...

# A path, or a model in memory.
Model: TypeAlias = str | PathLike[str] | KerasModel
# A SOURCE; arrays, those of several inputs by name; (samples, labels); batches of all these.
Samples: TypeAlias = (
    str | PathLike[str] | DataSource | Array | Mapping[str, Array] | tuple[Any, Any] | Iterable[Any]
)
__version__: str

def bench(
    models: Model | Sequence[Model], *, data: Samples | None = None, preprocess: str | Steps |
    None = None, samples: int | None = None, baseline: Model | None = None, tag: str = '',
    custom_objects: str | Sequence[str] | None = None, signature: str | None = None, training:
    str | PathLike[str] | None = None, out: str | PathLike[str] | None = None, runtime: str |
    RuntimeChoice | Sequence[str | RuntimeChoice] | None = None, runtimes: str | RuntimeVersions
    | None = None, npu: str | NpuChoice | Sequence[str | NpuChoice] | None = None, accelerator:
    Literal['interpreter', 'compiled', 'webgpu'] = 'interpreter', interpreter_threads: int = 1,
    python: str = '', binary: str = '', rounds: int = 3, warmup: int = 10, repeats: int = 200,
    seconds: float = 1.0, warmup_seconds: float = 2.0, every: str | None = None, cold: int |
    None = None, metric: str | MetricChoice | Sequence[str | MetricChoice] | None = None,
    output: str | None = None, profile: bool = False, layers: bool = False, title: str = '',
    threads: int | None = None, timeout_s: float = 3600.0, memory_limit_mib: int = 0, no_cache:
    bool = False, trust_model: str | Sequence[str] | None = None, sandbox: Literal['auto',
    'required', 'off'] | None = None, opening: Opening | None = None, measuring: Measuring |
    None = None, execution: Execution | None = None, allow_code: bool = False, on_progress:
    Callable[[str], None] | None = None,
) -> Report:
    """Measure .tflite files, and the trained model they came from, on the same samples."""

def build(
    *, model: str | Sequence[str] | None = None, depfile: str | PathLike[str] | None = None,
    depfile_target: str = '', threads: int | None = None, timeout_s: float = 3600.0,
    memory_limit_mib: int = 0, no_cache: bool = False, trust_model: str | Sequence[str] | None =
    None, sandbox: Literal['auto', 'required', 'off'] | None = None, config: str | None = None,
    allow: Sequence[str] | None = None, allow_code: bool = False, on_progress: Callable[[str],
    None] | None = None,
) -> tuple[Built, ...]:
    """Convert and embed each model of the request where anything changed."""

def check(
    report: str | PathLike[str] | Report | None = None, *, model: str | Sequence[str] | None =
    None, update: bool = False, accept_drop: str | Sequence[str] | None = None, lock: str |
    PathLike[str] | None = None, runtimes: str | RuntimeVersions | None = None, confidence:
    float = 0.95, method: Literal['auto', 'mcnemar', 'bootstrap'] = 'auto', seed: int = 0,
    resamples: int = 10000, inconclusive: Literal['error', 'warn'] = 'error', output: str |
    PathLike[str] | Sequence[str | PathLike[str]] | None = None, track: str | PathLike[str] |
    Sequence[str | PathLike[str]] | None = None, threads: int | None = None, timeout_s: float =
    3600.0, memory_limit_mib: int = 0, no_cache: bool = False, trust_model: str | Sequence[str]
    | None = None, sandbox: Literal['auto', 'required', 'off'] | None = None, config: str | None
    = None, allow: Sequence[str] | None = None, budget: Budget | Mapping[str, Any] | None =
    None, statistics: GateStatistics | None = None, allow_code: bool = False, on_progress:
    Callable[[str], None] | None = None,
) -> Checked:
    """Convert, measure and check models against budget and lock; or check a report."""

def compare(
    before: str | PathLike[str] | Report, after: str | PathLike[str] | Report, *, on_progress:
    Callable[[str], None] | None = None,
) -> Difference:
    """What changed between two reports or report.json, or two .tflite files."""

def convert(
    model: Model, to: str | Recipe | Sequence[str | Recipe], *, out: str | PathLike[str] | None
    = None, signature: str | Sequence[str] | None = None, calibration: Samples | Mapping[str,
    Samples] | None = None, samples: int | None = None, preprocess: str | Steps = 'none',
    training: Samples | None = None, io: Literal['float32', 'int8', 'uint8', 'int16'] |
    Sequence[Literal['float32', 'int8', 'uint8', 'int16']] | None = None, batch: int | None =
    None, shape: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None = None,
    target_runtime: str | TargetRuntime = 'litert', allow_select_ops: bool = False, state: str |
    Sequence[str] | None = None, fuse_lstm: bool = False, engine: Literal['auto', 'litert',
    'tflite'] = 'auto', calibration_range: Literal['minmax', 'ema', 'percentile', 'mse', 'kl',
    'auto'] | None = None, methods: str | Sequence[str] | None = None, layer: str | LayerRule |
    Sequence[str | LayerRule] | None = None, full_integer: bool = False, min_snr_db: float |
    None = None, allow_suspect_calibration: bool = False, qat_target: Literal['labels', 'model']
    = 'labels', qat_epochs: int = 5, qat_learning_rate: float = 0.0001, qat_batch: int = 32,
    qat_seed: int = 0, qat_layers: str | Sequence[str] = '', qat_warmup_steps: int = 20,
    qat_freeze_batch_norm: str = '1', qat_validation_fraction: float = 0.1, qat_patience: int |
    None = None, strategy: Literal['none', 'mirrored', 'central-storage', 'multiworker',
    'parameter-server', 'tpu'] = 'none', workers: int | None = None, servers: int | None = None,
    devices: str | Sequence[str] | None = None, cross_device_ops: Literal['auto', 'nccl',
    'hierarchical-copy', 'reduction-to-one'] = 'auto', communication: Literal['auto', 'ring',
    'nccl'] = 'auto', tpu: str = '', gpu_memory_growth: bool = False, gpu_memory_limit_mib: int
    | None = None, connect_timeout_s: float = 300.0, tag: str = '', custom_objects: str |
    Sequence[str] | None = None, threads: int | None = None, timeout_s: float = 3600.0,
    memory_limit_mib: int = 0, no_cache: bool = False, trust_model: str | Sequence[str] | None =
    None, sandbox: Literal['auto', 'required', 'off'] | None = None, qat: Qat | None = None,
    opening: Opening | None = None, execution: Execution | None = None, allow_code: bool =
    False, on_progress: Callable[[str], None] | None = None,
) -> Conversion:
    """Convert a model by the recipes of the request, and publish what passes verification."""

def debug(
    model: Model, calibration: Samples, *, to: str | Recipe = 'int8', preprocess: str | Steps =
    'none', samples: int | None = None, signature: str | None = None, calibration_range:
    Literal['minmax', 'ema', 'percentile', 'mse', 'kl', 'auto'] | None = None, methods: str |
    Sequence[str] | None = None, layer: str | LayerRule | Sequence[str | LayerRule] | None =
    None, tag: str = '', custom_objects: str | Sequence[str] | None = None, threads: int | None
    = None, timeout_s: float = 3600.0, memory_limit_mib: int = 0, no_cache: bool = False,
    trust_model: str | Sequence[str] | None = None, sandbox: Literal['auto', 'required', 'off']
    | None = None, opening: Opening | None = None, execution: Execution | None = None,
    allow_code: bool = False, on_progress: Callable[[str], None] | None = None,
) -> Debugged:
    """Quantize a model by one recipe, and measure what each layer loses and which rules help."""

def doctor(
    model: Model, data: Samples, *, preprocess: str | Steps | None = None, samples: int | None =
    None, signature: str | None = None, output: str | None = None, tag: str = '',
    custom_objects: str | Sequence[str] | None = None, threads: int | None = None, timeout_s:
    float = 3600.0, memory_limit_mib: int = 0, no_cache: bool = False, trust_model: str |
    Sequence[str] | None = None, sandbox: Literal['auto', 'required', 'off'] | None = None,
    opening: Opening | None = None, execution: Execution | None = None, allow_code: bool =
    False, on_progress: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Try the plausible preprocessings of labeled samples, and find which the model works with."""

def embed(
    artifact: Model, target: str, out: str | PathLike[str], *, recipe: str = '', symbol: str =
    '', signature: str = '', data: Samples | None = None, vectors: int = 2, labels: str |
    PathLike[str] = '', option: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] |
    None = None, depfile: str | PathLike[str] | None = None, depfile_target: str = '',
    require_check: bool = False, remake: bool = False, timeout_s: float = 600.0,
    memory_limit_mib: int = 0, sandbox: Literal['auto', 'required', 'off'] | None = None,
    allowance: Allowance | None = None, allow_code: bool = False, on_progress: Callable[[str],
    None] | None = None,
) -> Embedded:
    """Write what a target needs of a published .tflite into a directory."""

def inspect(
    model: Model, *, tag: str = '', sandbox: Literal['auto', 'required', 'off'] | None = None,
    opening: Opening | None = None, on_progress: Callable[[str], None] | None = None,
) -> Inspection:
    """The verb `inspect`: signatures, operators or layers, and weights. Raises `InputRefused`."""

def qat(
    model: Model, training: Samples | None, *, out: str | PathLike[str] | None = None, to: str |
    Recipe | Sequence[str | Recipe] = 'qat', signature: str | Sequence[str] | None = None,
    calibration: Samples | Mapping[str, Samples] | None = None, samples: int | None = None,
    preprocess: str | Steps = 'none', io: Literal['float32', 'int8', 'uint8', 'int16'] |
    Sequence[Literal['float32', 'int8', 'uint8', 'int16']] | None = None, batch: int | None =
    None, shape: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None = None,
    target_runtime: str | TargetRuntime = 'litert', allow_select_ops: bool = False, state: str |
    Sequence[str] | None = None, fuse_lstm: bool = False, engine: Literal['auto', 'litert',
    'tflite'] = 'auto', calibration_range: Literal['minmax', 'ema', 'percentile', 'mse', 'kl',
    'auto'] | None = None, methods: str | Sequence[str] | None = None, layer: str | LayerRule |
    Sequence[str | LayerRule] | None = None, full_integer: bool = False, min_snr_db: float |
    None = None, allow_suspect_calibration: bool = False, qat_target: Literal['labels', 'model']
    = 'labels', qat_epochs: int = 5, qat_learning_rate: float = 0.0001, qat_batch: int = 32,
    qat_seed: int = 0, qat_layers: str | Sequence[str] = '', qat_warmup_steps: int = 20,
    qat_freeze_batch_norm: str = '1', qat_validation_fraction: float = 0.1, qat_patience: int |
    None = None, strategy: Literal['none', 'mirrored', 'central-storage', 'multiworker',
    'parameter-server', 'tpu'] = 'none', workers: int | None = None, servers: int | None = None,
    devices: str | Sequence[str] | None = None, cross_device_ops: Literal['auto', 'nccl',
    'hierarchical-copy', 'reduction-to-one'] = 'auto', communication: Literal['auto', 'ring',
    'nccl'] = 'auto', tpu: str = '', gpu_memory_growth: bool = False, gpu_memory_limit_mib: int
    | None = None, connect_timeout_s: float = 300.0, tag: str = '', custom_objects: str |
    Sequence[str] | None = None, threads: int | None = None, timeout_s: float = 3600.0,
    memory_limit_mib: int = 0, no_cache: bool = False, trust_model: str | Sequence[str] | None =
    None, sandbox: Literal['auto', 'required', 'off'] | None = None, qat: Qat | None = None,
    opening: Opening | None = None, execution: Execution | None = None, allow_code: bool =
    False, on_progress: Callable[[str], None] | None = None,
) -> Conversion:
    """Train a model on with quantization, and publish the int8 file that it becomes."""

def report(
    files: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None, *, out: str |
    PathLike[str] | None = None, format: Literal['html', 'text', 'markdown', 'json', 'csv'] |
    Sequence[Literal['html', 'text', 'markdown', 'json', 'csv']] | None = None, side_by_side:
    bool = False, title: str = '', budget: Budget | Mapping[str, Any] | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> tuple[Report, ...]:
    """One report of all files; with `side_by_side`, one for each group of comparable files."""

def scan(
    path: Model, *, custom_objects: str | Sequence[str] | None = None, reads_layers: bool =
    False, sandbox: Literal['auto', 'required', 'off'] | None = None, on_progress:
    Callable[[str], None] | None = None,
) -> Scan:
    """What a model would access outside of itself when it is loaded and run."""

def sweep(
    file: str | PathLike[str], *, out: str | PathLike[str] | None = None, jobs: int | None =
    None, on: str | None = None, status: bool = False, resume: bool = False, retry_failed: bool
    = False, threads: int = 1, timeout_s: float = 3600.0, memory_limit_mib: int = 0, no_cache:
    bool = False, trust_model: str | Sequence[str] | None = None, sandbox: Literal['auto',
    'required', 'off'] | None = None, allow: Sequence[str] | None = None, execution: Execution |
    None = None, allow_code: bool = False, on_progress: Callable[[str], None] | None = None,
) -> Swept:
    """Measure every cell that has no result yet, and write one report of all."""

def train(
    module: str, *, data: str | PathLike[str] | None = None, strategy: Literal['none',
    'mirrored', 'central-storage', 'multiworker', 'parameter-server', 'tpu'] = 'mirrored',
    workers: int | None = None, servers: int | None = None, devices: str | Sequence[str] | None
    = None, cross_device_ops: Literal['auto', 'nccl', 'hierarchical-copy', 'reduction-to-one'] =
    'auto', communication: Literal['auto', 'ring', 'nccl'] = 'auto', tpu: str = '',
    gpu_memory_growth: bool = False, gpu_memory_limit_mib: int | None = None, connect_timeout_s:
    float = 300.0, loop: Literal['fit', 'custom'] = 'fit', epochs: int | None = None,
    steps_per_epoch: int | None = None, global_batch: int | None = None, learning_rate: float |
    None = None, seed: int = 0, validation_fraction: float = 0.0, patience: int | None = None,
    checkpoint_steps: int | None = None, custom_objects: str | Sequence[str] | None = None, out:
    str | PathLike[str] | None = None, checkpoint_dir: str | PathLike[str] | None = None,
    tensorboard_dir: str | PathLike[str] | None = None, on: str | None = None, timeout_s: float
    = ..., memory_limit_mib: int = 0, sandbox: Literal['auto', 'required', 'off'] | None = None,
    training: Training | None = None, allowance: Allowance | None = None, on_progress:
    Callable[[str], None] | None = None,
) -> TrainingRecord | None:
    """Train a baseline, evaluate it and export it as the next version of a SavedModel."""

def tune(
    model: Model, data: Samples, max_drop: float, *, out: str | PathLike[str] | None = None,
    calibration: Samples | None = None, preprocess: str | Steps = 'none', objective:
    Literal['size', 'latency', 'npu-latency'] = 'size', npu: str | NpuChoice | None = None, to:
    str | Sequence[str] = '', metric: str | MetricChoice | None = None, output: str = '',
    runtime: str | RuntimeChoice = 'litert', signature: str = '', batch: int | None = None,
    samples: int | None = None, full_integer: bool = False, trials: int = 40, time_limit_s:
    float = 480.0, allow_suspect_calibration: bool = False, tag: str = '', custom_objects: str |
    Sequence[str] | None = None, threads: int | None = None, timeout_s: float = 3600.0,
    memory_limit_mib: int = 0, no_cache: bool = False, trust_model: str | Sequence[str] | None =
    None, sandbox: Literal['auto', 'required', 'off'] | None = None, opening: Opening | None =
    None, execution: Execution | None = None, allow_code: bool = False, on_progress:
    Callable[[str], None] | None = None,
) -> Tuning:
    """Search the cheapest artifact of a model that loses no more than the budget."""

def verify(
    *paths: str | PathLike[str], source: str | PathLike[str] = '', require: Literal['artifact',
    'manifest', 'source', 'verdict', 'report', 'lock', 'embedding'] |
    Sequence[Literal['artifact', 'manifest', 'source', 'verdict', 'report', 'lock',
    'embedding']] | None = None, on_progress: Callable[[str], None] | None = None,
) -> Evidence:
    """Verify that published files, their verdicts, reports, locks and embeddings belong together."""
