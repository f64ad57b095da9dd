"""The values: frozen, typed values that every verb takes and returns.

Each is a `msgspec.Struct`, so it validates when decoded and goes to JSON as it
is. Units are in the names (`_bytes`, `_us`), shares and accuracies are
fractions, and a dimension of -1 is dynamic.
"""

from edgeconv.types.building import Built as Built, FileState as FileState, Stamp as Stamp
from edgeconv.types.checks import (
    IN_VERSIONS as IN_VERSIONS,
    LIMIT_FIELDS as LIMIT_FIELDS,
    LIMIT_KINDS as LIMIT_KINDS,
    NOT_CHECKED as NOT_CHECKED,
    AcceptedDrop as AcceptedDrop,
    AnyLimit as AnyLimit,
    Budget as Budget,
    Check as Check,
    Checked as Checked,
    ClassDrop as ClassDrop,
    Drop as Drop,
    Finding as Finding,
    GateStatistics as GateStatistics,
    LastCheck as LastCheck,
    Limit as Limit,
    LimitKind as LimitKind,
    Limits as Limits,
    LimitUnit as LimitUnit,
    Method as Method,
    OperatorsLimit as OperatorsLimit,
    Outcome as Outcome,
    Reference as Reference,
    RuntimeLimit as RuntimeLimit,
    Severity as Severity,
    StageName as StageName,
    StageState as StageState,
    UnprovenLimit as UnprovenLimit,
    Value as Value,
    Verdict as Verdict,
    limit_kind as limit_kind,
)
from edgeconv.types.conversion import (
    CALIBRATED as CALIBRATED,
    EVERY_RECIPE as EVERY_RECIPE,
    FOUR_BIT as FOUR_BIT,
    FULL_INTEGER as FULL_INTEGER,
    MAX_SNR_DB as MAX_SNR_DB,
    QAT as QAT,
    RECIPE_NAMES as RECIPE_NAMES,
    ROUNDING as ROUNDING,
    Artifact as Artifact,
    CalibrationRange as CalibrationRange,
    CalibrationRecord as CalibrationRecord,
    Closeness as Closeness,
    Conversion as Conversion,
    Distance as Distance,
    Engine as Engine,
    Failure as Failure,
    InputRange as InputRange,
    IoType as IoType,
    FloatOperators as FloatOperators,
    Grade as Grade,
    OutputKind as OutputKind,
    LadderStep as LadderStep,
    LayerRule as LayerRule,
    Methods as Methods,
    MethodTrial as MethodTrial,
    OutputError as OutputError,
    PostTraining as PostTraining,
    PostTrainingMethod as PostTrainingMethod,
    Precision as Precision,
    PublishedArtifact as PublishedArtifact,
    Recipe as Recipe,
    RecipeName as RecipeName,
    ScalePart as ScalePart,
    SharedScale as SharedScale,
    Suspicion as Suspicion,
    TargetCheck as TargetCheck,
    Verification as Verification,
)
from edgeconv.types.diagnosis import Diagnosis as Diagnosis, Trial as Trial
from edgeconv.types.difference import (
    Difference as Difference,
    FlipCount as FlipCount,
    ModelDifference as ModelDifference,
    NumberChange as NumberChange,
    OperatorChange as OperatorChange,
    TensorChange as TensorChange,
)
from edgeconv.types.embedding import Embedded as Embedded, EmbeddedFile as EmbeddedFile
from edgeconv.types.evidence import (
    LINK_NAMES as LINK_NAMES,
    Evidence as Evidence,
    Link as Link,
    LinkName as LinkName,
    LinkState as LinkState,
)
from edgeconv.types.execution import (
    DEFAULT_TIMEOUT_S as DEFAULT_TIMEOUT_S,
    Allowance as Allowance,
    Execution as Execution,
)
from edgeconv.types.locking import (
    Lock as Lock,
    LockedModel as LockedModel,
    LockedStage as LockedStage,
)
from edgeconv.types.measurement import (
    Acceleration as Acceleration,
    Accuracy as Accuracy,
    Agreement as Agreement,
    Comparison as Comparison,
    Conditions as Conditions,
    Environment as Environment,
    Latency as Latency,
    LayerError as LayerError,
    Measurement as Measurement,
    OperatorTime as OperatorTime,
    PacedLatency as PacedLatency,
    Profile as Profile,
    Report as Report,
    VersionResult as VersionResult,
)
from edgeconv.types.measuring import (
    TOP1 as TOP1,
    Accelerator as Accelerator,
    Measuring as Measuring,
    MetricChoice as MetricChoice,
    RuntimeChoice as RuntimeChoice,
    RuntimeVersions as RuntimeVersions,
    Timing as Timing,
)
from edgeconv.types.model import (
    FrozenStruct as FrozenStruct,
    GraphSummary as GraphSummary,
    Inspection as Inspection,
    OldestRuntime as OldestRuntime,
    Opening as Opening,
    OperatorCount as OperatorCount,
    RuntimeNeed as RuntimeNeed,
    Signature as Signature,
    SourceKind as SourceKind,
    SourceModel as SourceModel,
    TargetRuntime as TargetRuntime,
    TensorSpec as TensorSpec,
)
from edgeconv.types.npu import (
    NpuChoice as NpuChoice,
    NpuEstimate as NpuEstimate,
    NpuLeft as NpuLeft,
)
from edgeconv.types.samples import (
    DataIdentity as DataIdentity,
    DataSource as DataSource,
    Preprocessing as Preprocessing,
    Steps as Steps,
)
from edgeconv.types.scanning import Scan as Scan, ScanFinding as ScanFinding
from edgeconv.types.sensitivity import (
    Debugged as Debugged,
    DebuggedLayer as DebuggedLayer,
    LayerFix as LayerFix,
    Sensitivity as Sensitivity,
)
from edgeconv.types.sweeping import (
    CellResult as CellResult,
    CellState as CellState,
    SweepCell as SweepCell,
    SweepGate as SweepGate,
    Swept as Swept,
)
from edgeconv.types.training import (
    CHECKPOINT_KEPT as CHECKPOINT_KEPT,
    CONNECTED as CONNECTED,
    LOCAL_STRATEGIES as LOCAL_STRATEGIES,
    STRATEGY_NAMES as STRATEGY_NAMES,
    Communication as Communication,
    CrossDeviceOps as CrossDeviceOps,
    Distribution as Distribution,
    Epoch as Epoch,
    LayerTreatment as LayerTreatment,
    LoopName as LoopName,
    Qat as Qat,
    QatRecord as QatRecord,
    QatTarget as QatTarget,
    StrategyName as StrategyName,
    Training as Training,
    TrainingRecord as TrainingRecord,
    TreatedLayer as TreatedLayer,
    Validated as Validated,
)
from edgeconv.types.tuning import (
    Confirmation as Confirmation,
    Loss as Loss,
    Objective as Objective,
    Tuning as Tuning,
    TuningTrial as TuningTrial,
)
