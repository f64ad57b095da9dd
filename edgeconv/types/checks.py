"""Limits, numbers held against them, and what the gate says of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from edgeconv.types.model import Noun, Result
from edgeconv.types.samples import DataIdentity

Severity = Literal["error", "warn"]
Outcome = Literal["passed", "failed", "inconclusive", "missing"]
Reference = Literal["", "baseline", "lock"]
Method = Literal["auto", "mcnemar", "bootstrap"]
StageName = Literal["checkpoint", "trained", "float32", "quantized"]
Value = float | str | tuple[str, ...]
# In the place of a limit, where a model could not be judged at all.
NOT_CHECKED = "check"
# The limits on numbers that only timing gives.
NEED_TIMES = frozenset({"max-latency-p50-us", "max-latency-ratio", "max-peak-memory-bytes"})


class Limit(Noun, kw_only=True, frozen=True):
    """A limit, and whether breaking it is an error or a warning."""

    limit: float
    severity: Severity = "error"


class RuntimeLimit(Noun, kw_only=True, frozen=True):
    """The TFLite runtime that the model must still run on, as "2.14.0"."""

    limit: str
    severity: Severity = "error"


class OperatorsLimit(Noun, kw_only=True, frozen=True):
    """The operators that the model may have."""

    limit: tuple[str, ...]
    severity: Severity = "error"


AnyLimit = Limit | RuntimeLimit | OperatorsLimit


class Limits(Noun, kw_only=True, frozen=True, rename="kebab", omit_defaults=True):
    """The limits a budget may set; all are inclusive, and maxima but where they say `min`.

    A value alone is an error where it is broken, but a time, which is a warning: other work on a
    shared machine changes it. `max_accuracy_drop` is a difference of accuracies,
    `max_relative_accuracy_drop` that difference over the accuracy of the reference.
    `max_class_drop` and `max_slice_drop` hold for the worst class and the worst slice;
    `max_flip_rate` is the fraction of samples whose class changed. `min_output_snr_db` is the
    signal-to-noise ratio of the worst output against the reference's.
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

    def given(self) -> dict[str, AnyLimit]:
        """The limits that are set, by their names in kebab case, in the order of the noun."""
        found = {}
        for field in msgspec.structs.fields(Limits):
            value = getattr(self, field.name)
            if value is not None:
                found[field.encode_name] = _severe(field.encode_name, value)
        return found


class Budget(Noun, kw_only=True, frozen=True):
    """Limits for every artifact, and further ones by recipe name, which replace those.

    As TOML: a table `[budget]` for all, and `[budget.recipe.NAME]` for one recipe.
    """

    every: Limits = Limits()
    recipe: dict[str, Limits] = {}

    def names(self) -> frozenset[str]:
        """The names of all limits that are set, for whatever recipe."""
        return frozenset(
            name for one in (self.every, *self.recipe.values()) for name in one.given()
        )

    def limits(self, recipe: str | None) -> dict[str, AnyLimit]:
        """All that is set for an artifact of this recipe, by name."""
        return self.every.given() | self.recipe.get(recipe or "", Limits()).given()


class GateStatistics(Noun, kw_only=True, frozen=True):
    """How numbers that are left to chance are judged.

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


class Finding(Noun, kw_only=True, frozen=True):
    """One limit held against one number. A number that is missing or NaN never passes.

    `reference` is what a drop is measured from: the trained baseline, or the lock. `subject` is
    the class, slice, output or operator the number is of, "" for the model. `severity` is what
    an outcome other than "passed" means. `interval` (low, high) is the 95 % interval of the number,
    the one that every report has of it; of a class or slice it holds for all of them together. The
    outcome is that of a test at the limit: by `method`, over `samples`, at `confidence`, which what
    fails shares with all findings of the check. `samples_needed` would be enough to tell, where
    they are not; of a class or slice both are its own samples. `reason` says why a number is
    missing, and what else there is to say. `metric` is set where the number is in the unit of a
    metric that is no share of right answers. `before` and `after` are the values of the metric
    that a drop is between: the reference's, and the model's. `recipe` is that of the model.
    `line` is where the limit is in the configuration, from 1.
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
    line: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the limit holds, or is there for a warning only."""
        return self.outcome == "passed" or self.severity == "warn"


class Verdict(Result, kw_only=True, frozen=True):
    """Every limit of a budget held against a report."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there is a finding, and every one holds."""
        return bool(self.findings) and all(finding.ok for finding in self.findings)


class ClassDrop(Noun, kw_only=True, frozen=True):
    """The accuracy of one class, or one slice, beside that of the reference.

    `drop` is how much worse it is; `interval` is its 95 % interval, for all classes (or slices) of
    the model together.
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


class StageState(Noun, kw_only=True, frozen=True):
    """One stage from the checkpoint to the quantised file, beside what is locked of it.

    `changed`: other bytes than locked, None where it is not in the lock. `before` and `after` are
    values of `metric`, locked and now. `drop` is how much worse it became, `interval` the 95 %
    interval of that. `own_drop` is how much worse it is than the stage before it, now.
    `moved`: worse or better than chance explains. `sha256` is that of its bytes now. Where the
    locked samples were others, `before` is known and `drop` is not.
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


class AcceptedDrop(Noun, kw_only=True, frozen=True):
    """A loss that a team accepted by its name, with --accept-drop.

    `stage` is the name of the locked stage, `limits` are those that it broke beside the lock before
    this one. `before` and `after` are values of `metric`. `date` is of UTC, as 2026-11-22;
    `command` is what was typed.
    """

    stage: str
    limits: tuple[str, ...]
    metric: str
    before: float
    after: float
    date: str
    command: str


class Check(Result, kw_only=True, frozen=True):
    """What the gate says of one model of the configuration.

    `stages` are in the order of the flow; `changes` name what is other than locked (the source,
    calibration data, a tool's version), a sentence each. `classes` has the classes and slices
    that dropped, worst first. `is_locked`: whether there is a lock to compare with. `accepted`
    are the losses that the lock has accepted by name. `data` are the test samples. `reused`:
    nothing had changed, so nothing was measured again.
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
    accepted: tuple[AcceptedDrop, ...] = ()
    data: DataIdentity | None = None
    reused: bool = False


class Checked(Noun, kw_only=True, frozen=True):
    """The checks of all models of one configuration; `config` is the file, as it was named."""

    format: Literal[1] = 1
    config: str = ""
    checks: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is a check, and every one holds."""
        return bool(self.checks) and all(check.verdict.ok for check in self.checks)


class LastCheck(Noun, kw_only=True, frozen=True):
    """What the last check said of one published file, as MODEL.verdict.json has it beside the file.

    `model` is the name in the configuration, `sha256` that of the bytes that were judged, `date`
    when they first got this verdict (UTC, ISO 8601). `outcome` is the worst of those limits that
    fail the check; `findings` are all that do not hold, of the file and of the trained model.
    `is_locked`: whether it was held beside a lock too. `passed` are the limits that hold, with what
    was measured, and `report_sha256` is the hash of the report.json that was judged: () and ""
    where an older edgeconv wrote it, or where there is no report. `checksum` is in the file only;
    see edgeconv/store/checksums.py.
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


def _severe(name: str, value: Value | AnyLimit) -> AnyLimit:
    """The limit, with the severity that a value alone stands for."""
    severity: Severity = "warn" if "latency" in name else "error"
    if isinstance(value, str):
        return RuntimeLimit(limit=value, severity=severity)
    if isinstance(value, tuple):
        return OperatorsLimit(limit=value, severity=severity)
    if isinstance(value, int | float):
        return Limit(limit=value, severity=severity)
    return value
