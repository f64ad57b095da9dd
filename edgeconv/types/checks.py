"""Limits, and the verdicts on numbers that they limit."""

from typing import Literal, NamedTuple

import msgspec

from edgeconv.types.model import FrozenStruct, Result
from edgeconv.types.samples import DataIdentity

Severity = Literal["error", "warn"]
Outcome = Literal["passed", "failed", "inconclusive", "missing"]
Reference = Literal["", "baseline", "lock"]
Method = Literal["auto", "mcnemar", "bootstrap"]
StageName = Literal["checkpoint", "trained", "float32", "quantized"]
Value = float | str | tuple[str, ...]
# The limit of a finding where a model could not be checked at all.
NOT_CHECKED = "check"
# The limit that a file is right in every version of a runtime; it is no limit of the budget.
IN_VERSIONS = "runtimes"
# Differences of shares are "points"; "text" has no order.
LimitUnit = Literal[
    "number",
    "bytes",
    "us",
    "ratio",
    "share",
    "points",
    "db",
    "count",
    "release",
    "operators",
    "text",
]
# The metric, over that of the reference for "relative"; or that of the worst class or slice.
Drop = Literal["metric", "relative", "class", "slice", "flips"]


class Limit(FrozenStruct, kw_only=True, frozen=True):
    """A limit, and whether breaking it is an error or a warning."""

    limit: float
    severity: Severity = "error"


class RuntimeLimit(FrozenStruct, kw_only=True, frozen=True):
    """The TFLite runtime that the model must still run on, as "2.14.0"."""

    limit: str
    severity: Severity = "error"


class OperatorsLimit(FrozenStruct, kw_only=True, frozen=True):
    """The operators that the model may have."""

    limit: tuple[str, ...]
    severity: Severity = "error"


AnyLimit = Limit | RuntimeLimit | OperatorsLimit


class LimitKind(NamedTuple):
    """Everything that the configuration, the gate and the reports know of a limit but its value.

    `words` say what it limits, `advice` what to do where it is broken. `severity` is that of a
    limit that is a value alone. `needs_times`: only timing gives its number. `drop` is what drops
    from a reference, None for a number of the model alone. `in_metric`: the number is in the unit
    of the metric, where that is no share. `in_table`: the table of a report has its interval.
    `of_integers`: it is for full-integer recipes.
    """

    words: str = "A limit of the budget."
    unit: LimitUnit = "number"
    advice: str = (
        "The stages show where it was lost: in the trained model, or only in the quantized file. "
        "Then look at the calibration data, or choose a recipe that loses less, as int16x8 or qat."
    )
    is_minimum: bool = False
    severity: Severity = "error"
    needs_times: bool = False
    drop: Drop | None = None
    in_metric: bool = False
    in_table: bool = False
    of_integers: bool = False

    @property
    def is_fraction(self) -> bool:
        """Whether the number is between 0 and 1."""
        return self.unit in ("share", "points")

    @property
    def is_above_zero(self) -> bool:
        """Whether no model can keep a limit of 0: nothing is as small or as fast."""
        return self.unit in ("bytes", "us", "ratio")

    def limit(self, value: Value, severity: Severity | None = None) -> AnyLimit:
        """A limit of this kind."""
        severity = severity or self.severity
        if isinstance(value, str):
            return RuntimeLimit(limit=value, severity=severity)
        if isinstance(value, tuple):
            return OperatorsLimit(limit=value, severity=severity)
        return Limit(limit=value, severity=severity)


class Limits(FrozenStruct, kw_only=True, frozen=True, rename="kebab", omit_defaults=True):
    """The limits a budget may set, all inclusive.

    A broken one is an error by default; a broken limit of a time is a warning, since other work on
    a shared machine changes times. `max_accuracy_drop` is a difference of accuracies,
    `max_relative_accuracy_drop` that difference over the accuracy of the reference.
    `max_class_drop` and `max_slice_drop` hold for the worst class and the worst slice;
    `max_flip_rate` is the fraction of samples whose class changed. `min_output_snr_db` is the
    signal-to-noise ratio of the worst output against the reference's. `min_npu_operators` is the
    fraction of the operators on the NPU that has the fewest, as its compiler estimates it.
    """

    max_size_bytes: float | Limit | None = None
    max_gzip_size_bytes: float | Limit | None = None
    max_size_ratio: float | Limit | None = None
    max_latency_p50_us: float | Limit | None = None
    max_latency_ratio: float | Limit | None = None
    max_peak_memory_bytes: float | Limit | None = None
    max_arena_bytes: float | Limit | None = None
    max_accuracy_drop: float | Limit | None = None
    max_relative_accuracy_drop: float | Limit | None = None
    min_accuracy: float | Limit | None = None
    max_class_drop: float | Limit | None = None
    max_slice_drop: float | Limit | None = None
    max_flip_rate: float | Limit | None = None
    min_output_snr_db: float | Limit | None = None
    oldest_runtime: str | RuntimeLimit | None = None
    allowed_operators: tuple[str, ...] | OperatorsLimit | None = None
    min_npu_operators: float | Limit | None = None
    max_float_operators: float | Limit | None = None

    def by_name(self) -> dict[str, AnyLimit]:
        """The limits that are set, by their names in kebab case, in the order of the fields."""
        values = {name: getattr(self, field) for name, field in LIMIT_FIELDS.items()}
        return {
            name: value if isinstance(value, AnyLimit) else LIMIT_KINDS[name].limit(value)
            for name, value in values.items()
            if value is not None
        }


LIMIT_FIELDS = {field.encode_name: field.name for field in msgspec.structs.fields(Limits)}
_SMALLER = "Choose a recipe with smaller weights, or raise the limit."
_QUIET = "First measure again on a quiet machine; then look at the profile of `bench`."
_TENSORS = "Look at the largest tensors with `edgeconv inspect`."
# By name: the limits of the budget in the order of its fields, and those of other findings.
LIMIT_KINDS: dict[str, LimitKind] = {
    "max-size-bytes": LimitKind("Bytes of the file.", "bytes", _SMALLER),
    "max-gzip-size-bytes": LimitKind("Bytes of the file, packed with gzip.", "bytes", _SMALLER),
    "max-size-ratio": LimitKind(
        "The file's size over that of the trained model.", "ratio", _SMALLER
    ),
    "max-latency-p50-us": LimitKind(
        'Median microseconds of one run. A warning without severity = "error".',
        "us",
        _QUIET,
        severity="warn",
        needs_times=True,
        in_table=True,
    ),
    "max-latency-ratio": LimitKind(
        "Median time over that of the float32 .tflite in the same runtime. A warning without "
        'severity = "error".',
        "ratio",
        _QUIET,
        severity="warn",
        needs_times=True,
        in_table=True,
    ),
    "max-peak-memory-bytes": LimitKind(
        "Peak bytes of memory while the model runs.", "bytes", _TENSORS, needs_times=True
    ),
    "max-arena-bytes": LimitKind("Bytes of the arena that holds the tensors.", "bytes", _TENSORS),
    "max-accuracy-drop": LimitKind(
        "The accuracy drop from the reference, as a fraction of 1.",
        "points",
        drop="metric",
        in_metric=True,
        in_table=True,
    ),
    "max-relative-accuracy-drop": LimitKind(
        "The accuracy drop over the accuracy of the reference.", "share", drop="relative"
    ),
    "min-accuracy": LimitKind(
        "The accuracy, as a fraction of 1.", "share", is_minimum=True, in_metric=True
    ),
    "max-class-drop": LimitKind(
        "The accuracy drop of the worst class.", "points", drop="class", in_metric=True
    ),
    "max-slice-drop": LimitKind(
        "The accuracy drop of the worst slice.", "points", drop="slice", in_metric=True
    ),
    "max-flip-rate": LimitKind(
        "The share of samples whose class differs from the reference.", "share", drop="flips"
    ),
    "min-output-snr-db": LimitKind(
        "The lowest signal-to-noise ratio of an output against the reference, in decibels.",
        "db",
        is_minimum=True,
    ),
    "oldest-runtime": LimitKind(
        "The oldest TFLite release, such as 2.14.0, that the model must run on.",
        "release",
        "Convert with --target-runtime, which looks for a form that runs there.",
    ),
    "allowed-operators": LimitKind(
        "The operators that the model may contain.",
        "operators",
        "Change the model, or allow the operator where the target supports it.",
    ),
    "min-npu-operators": LimitKind(
        "The share of the operators on the NPU, as its compiler estimates it.",
        "share",
        "`bench --npu` shows which operators stay on the processor, and why.",
        is_minimum=True,
    ),
    "max-float-operators": LimitKind(
        "The operators that compute in float in a file of int8, int16x8, int8x4 or qat.",
        "count",
        "Write what has an integer kernel instead; `convert` names the layers and why.",
        of_integers=True,
    ),
    IN_VERSIONS: LimitKind(
        "The versions of a runtime in which the file must load and answer right.",
        "text",
        "Leave out a version that no app ships, as in 'litert>=2.0,!=2.1.0', or convert "
        "with --target-runtime and the version, which looks for a form that runs there.",
    ),
    NOT_CHECKED: LimitKind(unit="text", advice="See the documentation of `edgeconv check`."),
}


class Budget(FrozenStruct, kw_only=True, frozen=True):
    """Limits for every artifact, and further ones by recipe and by runtime, which replace those.

    As TOML: a table `[budget]` for all, `[budget.recipe.NAME]` for one recipe, and
    `[budget.runtime.NAME]` for what runs in one runtime, as `[bench] runtime` names it.
    """

    every: Limits = Limits()
    recipe: dict[str, Limits] = {}
    runtime: dict[str, Limits] = {}

    def names(self) -> frozenset[str]:
        """The names of all limits that are set, for any recipe and runtime."""
        tables = (self.every, *self.recipe.values(), *self.runtime.values())
        return frozenset(name for limits in tables for name in limits.by_name())

    def limits(self, recipe: str | None, runtime: str = "") -> dict[str, AnyLimit]:
        """The limits for an artifact of this recipe in this runtime, by name."""
        return (
            self.every.by_name()
            | self.recipe.get(recipe or "", Limits()).by_name()
            | self.runtime.get(runtime, Limits()).by_name()
        )


class GateStatistics(FrozenStruct, kw_only=True, frozen=True):
    """How accuracy drops are tested, which depend on chance.

    A drop fails when its lower bound at `confidence` (one-sided) is above the limit, passes when
    its upper bound is not, and is inconclusive between, which is `inconclusive`. All limits of a
    check that may fail it share the chance of failing wrongly that `confidence` leaves over.
    `method` "mcnemar" is exact, for metrics that count right answers; "bootstrap" draws
    `resamples` times from the paired samples with `seed`; "auto" takes the one that fits the
    metric. See docs/gate-statistics.md.
    """

    confidence: float = 0.95
    method: Method = "auto"
    seed: int = 0
    resamples: int = 10_000
    inconclusive: Severity = "error"


class Finding(FrozenStruct, kw_only=True, frozen=True):
    """The check of one number against one limit. A number that is missing or NaN never passes.

    `reference` is what a drop is measured from: the trained baseline, or the lock. `subject` is
    the class, slice, output or operator of the number, "" for the model. `severity` is that of an
    outcome other than "passed". `interval` (low, high) is the 95 % interval of the number; of
    classes or slices it holds for all of them together. The outcome is that of a test at the limit:
    by `method`, over `samples`, at `confidence`, which all findings of the check share.
    `samples_needed` would be enough to decide, where `samples` are not. `reason` says why a number
    is missing, and other remarks. `metric` is set where the number is in the unit of a metric that
    is not a share of right answers. A drop is between the values `before` (the reference's) and
    `after` (the model's). `runtime` is what the model runs in, as it is named for the bench, ""
    for the only one. `line` is that of the limit in the configuration, from 1.
    """

    model: str
    limit: str
    allowed: Value
    actual: Value | None
    outcome: Outcome
    severity: Severity = "error"
    reference: Reference = ""
    subject: str = ""
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    method: str = ""
    samples: int | None = None
    samples_needed: int | None = None
    reason: str = ""
    metric: str = ""
    before: float | None = None
    after: float | None = None
    recipe: str = ""
    runtime: str = ""
    line: int | None = None

    @property
    def kind(self) -> LimitKind:
        """See `limit_kind`."""
        return limit_kind(self.limit)

    @property
    def ok(self) -> bool:
        """Whether the limit holds, or is there for a warning only."""
        return self.outcome == "passed" or self.severity == "warn"


class Verdict(Result, kw_only=True, frozen=True):
    """The findings of all limits of a budget on a report."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there is a finding, and every one holds."""
        return bool(self.findings) and all(finding.ok for finding in self.findings)


class ClassDrop(FrozenStruct, kw_only=True, frozen=True):
    """The accuracy of one class, or one slice, compared with the reference's.

    `interval` is the 95 % interval of `drop`, for all classes (or slices) of the model together.
    """

    model: str
    kind: Literal["class", "slice"]
    reference: Reference
    name: str
    samples: int
    before: float
    after: float
    drop: float
    interval: tuple[float, float]


class StageState(FrozenStruct, kw_only=True, frozen=True):
    """One stage from the checkpoint to the quantized file, compared with the lock.

    `changed`: other bytes than locked, None where it is not in the lock. `before` and `after` are
    values of `metric`, locked and now; `drop` is the difference, `interval` its 95 % interval.
    `own_drop` is the drop from the stage before it, now. `moved`: more than chance explains.
    `sha256` is of the current bytes. Where the locked samples were others, `drop` is not known.
    """

    stage: StageName
    model: str
    changed: bool | None
    metric: str = ""
    before: float | None = None
    after: float | None = None
    drop: float | None = None
    interval: tuple[float, float] | None = None
    own_drop: float | None = None
    own_interval: tuple[float, float] | None = None
    moved: bool | None = None
    sha256: str = ""


class AcceptedDrop(FrozenStruct, kw_only=True, frozen=True):
    """A loss that a team accepted by its name, with --accept-drop.

    `stage` is the name of the locked stage; it broke the `limits` against the previous lock.
    `before` and `after` are values of `metric`. `date` is in UTC, such as 2026-11-22; `command` is
    what was typed.
    """

    stage: str
    limits: tuple[str, ...]
    metric: str
    before: float
    after: float
    date: str
    command: str


class UnprovenLimit(FrozenStruct, kw_only=True, frozen=True):
    """A limit that was accepted although the samples were too few to prove that it holds.

    `subject` is the class or slice; `actual` was measured.
    """

    limit: str
    subject: str = ""
    allowed: float
    actual: float


class Check(Result, kw_only=True, frozen=True):
    """The gate's result for one model of the configuration.

    `stages` are in the order of the flow; `changes` are sentences on what differs from the lock
    (the source, calibration data, a tool's version). `classes` has the classes and slices that
    dropped, worst first. `is_locked`: there is a lock to compare with; `unlocked` says what is
    missing where there should be ("no lock"). `accepted` are the losses that the lock has accepted.
    `data` are the test samples. `reused`: nothing had changed, so nothing was measured again.
    """

    name: str
    verdict: Verdict
    statistics: GateStatistics = GateStatistics()
    stages: tuple[StageState, ...] = ()
    changes: tuple[str, ...] = ()
    classes: tuple[ClassDrop, ...] = ()
    summary: str = ""
    notes: tuple[str, ...] = ()
    is_locked: bool = False
    unlocked: str = ""
    accepted: tuple[AcceptedDrop, ...] = ()
    data: DataIdentity | None = None
    reused: bool = False


class Checked(Result, kw_only=True, frozen=True):
    """The checks of all models of a configuration; `config` is its file, as it was named."""

    format: Literal[1] = 1
    config: str = ""
    checks: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is a check, and every one holds."""
        return bool(self.checks) and all(check.verdict.ok for check in self.checks)


class LastCheck(FrozenStruct, kw_only=True, frozen=True):
    """The verdict of the last check of a published file: MODEL.verdict.json next to it.

    `model` is the name in the configuration, `sha256` that of the checked bytes, `date` when they
    first got this verdict (UTC, ISO 8601). `outcome` is the worst of the limits that fail the
    check; `findings` are all broken limits of the file and of the trained model. `is_locked`: it
    was compared with a lock too. `passed` are the limits that hold, and `report_sha256` is the hash
    of the checked report.json: () and "" without a report. `checksum` is
    in the file only; see edgeconv/system/store/hashes.py.
    """

    format: Literal[1] = 1
    model: str
    sha256: str
    outcome: Outcome
    date: str
    is_locked: bool = False
    findings: tuple[Finding, ...] = ()
    data: DataIdentity | None = None
    edgeconv: str = ""
    passed: tuple[Finding, ...] = ()
    report_sha256: str = ""
    checksum: str | msgspec.UnsetType = msgspec.UNSET


def limit_kind(name: str) -> LimitKind:
    """The kind of the limit of a finding. A newer edgeconv may have limits unknown here."""
    return LIMIT_KINDS.get(name, LimitKind())
