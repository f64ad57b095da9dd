"""The nouns: frozen, typed values that every verb takes and returns.

Each is a `msgspec.Struct`, so it validates when decoded and goes to JSON as it
is. Units are in the names (`_bytes`, `_us`), shares and accuracies are
fractions, and a dimension of -1 is dynamic.
"""

from edgeconv.nouns.conversion import (
    FULL_INTEGER,
    MAX_SNR_DB,
    RECIPE_NAMES,
    Artifact,
    CalibrationRange,
    CalibrationRecord,
    Conversion,
    Engine,
    Failure,
    IoType,
    OutputError,
    Recipe,
    RecipeName,
    Verification,
)
from edgeconv.nouns.measurement import (
    Accuracy,
    Budget,
    Environment,
    Finding,
    Latency,
    Limits,
    Measurement,
    Report,
    TrainingRecord,
    Verdict,
)
from edgeconv.nouns.model import (
    GraphSummary,
    Inspection,
    Noun,
    OperatorCount,
    Signature,
    SourceKind,
    SourceModel,
    TensorSpec,
)
from edgeconv.nouns.samples import (
    DataIdentity,
    Preprocessing,
)

__all__ = [
    "Accuracy",
    "Artifact",
    "Budget",
    "CalibrationRange",
    "CalibrationRecord",
    "Conversion",
    "DataIdentity",
    "Engine",
    "Environment",
    "FULL_INTEGER",
    "Failure",
    "Finding",
    "GraphSummary",
    "Inspection",
    "IoType",
    "Latency",
    "Limits",
    "MAX_SNR_DB",
    "Measurement",
    "Noun",
    "OperatorCount",
    "OutputError",
    "Preprocessing",
    "RECIPE_NAMES",
    "Recipe",
    "RecipeName",
    "Report",
    "Signature",
    "SourceKind",
    "SourceModel",
    "TensorSpec",
    "TrainingRecord",
    "Verdict",
    "Verification",
]
