"""What was measured, and the lock: measurements that were accepted, to compare others with."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Literal

import msgspec

from edgeconv.types.checks import AcceptedDrop, UnprovenLimit, Verdict
from edgeconv.types.conversion import Artifact, Distance, Grade, RecipeName
from edgeconv.types.measuring import NpuEstimate
from edgeconv.types.model import FrozenStruct, Result
from edgeconv.types.samples import DataIdentity
from edgeconv.types.training import TrainingRecord

# The note of a report whose models were not timed.
UNTIMED = "latency and memory: not measured: no limit needs them"
_TABLE = "edgeconv.reporting.spreadsheet"


class Latency(FrozenStruct, kw_only=True, frozen=True):
    """Raw invoke times in fresh processes, batch `batch`, in microseconds.

    `rounds_us` holds one tuple of samples per process; the processes of all the
    artifacts were run in turn. `load_us` and `first_us` are kept apart, one a round, and
    `warmup` is how many invokes each round needed until the times were stable; empty where the
    runtime does its own warm-up. Percentiles are of the samples of all rounds; `p50_interval_us`
    is the 95 % confidence interval of the median.
    """

    rounds_us: tuple[tuple[float, ...], ...]
    load_us: tuple[float, ...]
    first_us: tuple[float, ...]
    threads: int
    batch: int
    p50_us: float
    p90_us: float
    p99_us: float
    p50_interval_us: tuple[float, float]
    warmup: tuple[int, ...] = ()


class PacedLatency(Latency, kw_only=True, frozen=True):
    """The times of invokes that began every `period_us` microseconds, with sleep in between.

    `distance_us` is the median distance between the beginnings of two invokes: the period, or more
    where an invoke takes longer.
    """

    period_us: float
    distance_us: float


class Accuracy(FrozenStruct, kw_only=True, frozen=True):
    """One metric over labeled samples, with what each of them contributed.

    `metric` is a name of `edgeconv.plugins.METRICS`, or a user's `module:function`. `correct`
    is one character a sample, "1" right and "0" wrong, for metrics that count right answers;
    for the others `per_sample` has one number a sample, of which `value` is the mean or what
    the metric computes of them. Both are in the order of the data set, so that two measurements
    of the same samples can be paired. `predicted` is the class of each sample, for metrics that
    have one. `output` is the one that was measured, where several have labels, else "". `drop` and
    `drop_interval` are those of a further metric, as `Measurement` has them of the first.
    """

    metric: str = "top1"
    output: str = ""
    value: float
    samples: int
    higher_is_better: bool = True
    correct: str = ""
    per_sample: tuple[float, ...] = ()
    predicted: tuple[int, ...] = ()
    drop: float | None = None
    drop_interval: tuple[float, float] | None = None

    @property
    def title(self) -> str:
        """The metric, after the output where several were measured: "age mae"."""
        return f"{self.output} {self.metric}".lstrip()


class Agreement(Distance, kw_only=True, frozen=True):
    """How far one output is that of the model called `reference`, on the same samples.

    `flips` counts the samples whose highest score is another one, None where the output is not a
    vector of scores. `cosine` is the mean over the samples of the cosine between both outputs.
    """

    reference: str
    samples: int
    flips: int | None
    cosine: float
    max_error: float


class OperatorTime(FrozenStruct, kw_only=True, frozen=True):
    """One operator of a graph, or one part that a delegate runs, and its time in microseconds.

    `layer` is its name (see docs/debug.md), `tensor` that of its first output tensor; `delegate` is
    "" where the runtime's own kernels run it. `mean_us` is the mean over the middle half of the
    runs, by their length.
    """

    index: int
    operator: str
    layer: str
    delegate: str
    mean_us: float
    tensor: str


class Profile(FrozenStruct, kw_only=True, frozen=True):
    """Where the time of an invoke goes, by the runtime's own profiling.

    `total_us` is the median time of the whole model, measured with it; what the operators do not
    add up to is the residual.
    """

    total_us: float
    operators: tuple[OperatorTime, ...]

    @property
    def residual_us(self) -> float:
        """`total_us` less the sum over the operators; below 0 where they add up to more."""
        return self.total_us - sum(operator.mean_us for operator in self.operators)


class LayerError(FrozenStruct, kw_only=True, frozen=True):
    """How far the output of one layer is from the float32 model's, over `samples` samples.

    `layer` and `tensor` are as in `OperatorTime`.
    """

    layer: str
    operator: str
    samples: int
    snr_db: float
    max_error: float
    tensor: str


class Acceleration(FrozenStruct, kw_only=True, frozen=True):
    """What a GPU delegate did with a file.

    `state`: it computes all of the graph ("full") or a part; its answers are other ones than those
    of the float32 model on the processor ("wrong"); it refuses the file; or the process ended
    ("crashed"). `device` is the GPU. `on_cpu` has the operators that stay on the processor, and of
    a refused file what it refuses. `reason` says why in words; `begins_at` is the layer from which
    on the values are others, where layers were measured.
    """

    state: Literal["full", "partial", "wrong", "refused", "crashed"]
    device: str = ""
    on_cpu: tuple[str, ...] = ()
    reason: str = ""
    begins_at: str = ""


class Measurement(FrozenStruct, kw_only=True, frozen=True):
    """What was measured of one model: an artifact, or the trained baseline.

    `accuracy_drop` is how much worse the accuracy is than the baseline's (baseline minus this model
    where higher is better, else this model minus baseline), and `accuracy_drop_interval` the 95 %
    interval of that, paired by sample; `latency_ratio` is this model over the float32 .tflite in
    the same runtime, and `latency_ratio_interval` its 95 % interval, by rounds, None for the
    float32 .tflite itself and for a lone round; `size_ratio` is this model over the baseline on
    disk; `fixed` and `broken` count the samples that changed from wrong to right and back.
    `accuracy` is the first metric, `metrics` the further ones. `agreement` compares outputs with
    the baseline's, or without one with the float32 artifact's. `peak_memory_bytes` is the growth of
    the peak resident set over the bare runtime; of a baseline in TensorFlow it is the whole
    process. `arena_bytes` is the memory that the tensors of the graph need, planned by their
    lifetimes. `batched_us` are raw times of calls of a baseline with `batched_size` samples.
    `layer_errors` are in the order of the graph; on a GPU they are against the same layers on the
    processor, by `layers_against`'s name. `acceleration` is what a GPU delegate did, and `kernels`
    the agreement of a GPU's or a device's outputs with those of the same file on the processor.
    `grade` is that of an artifact at its conversion, and `float_operators` how many compute in
    float in one of a full-integer recipe. `paced` is the latency of invokes that begin in a fixed
    period, and `cold` of fresh processes, each with one sample: its load and first invoke together.
    `group` is the directory's part of `name`, "" where names are unique without it. `runtime` has
    the version that ran, and `measured_in` is the runtime as the bench was given it. `npu` has what
    a compiler estimates for the file on each NPU; nothing was run there. None means that it was not
    measured, never that it was good. `error` is set, and the rest None, where the model did not
    run.
    """

    name: str
    role: Literal["baseline", "artifact"]
    runtime: str
    sha256: str
    size_bytes: int
    gzip_size_bytes: int | None = None
    recipe: RecipeName | None = None
    group: str = ""
    measured_in: str = ""
    latency: Latency | None = None
    paced: PacedLatency | None = None
    cold: Latency | None = None
    peak_memory_bytes: int | None = None
    arena_bytes: int | None = None
    accuracy: Accuracy | None = None
    metrics: tuple[Accuracy, ...] = ()
    agreement: tuple[Agreement, ...] = ()
    profile: Profile | None = None
    layer_errors: tuple[LayerError, ...] = ()
    layers_against: str = ""
    acceleration: Acceleration | None = None
    kernels: tuple[Agreement, ...] = ()
    batched_us: tuple[float, ...] = ()
    batched_size: int | None = None
    oldest_runtime: str = ""
    grade: Grade = ""
    float_operators: int | None = None
    size_ratio: float | None = None
    latency_ratio: float | None = None
    latency_ratio_interval: tuple[float, float] | None = None
    accuracy_drop: float | None = None
    accuracy_drop_interval: tuple[float, float] | None = None
    fixed: int | None = None
    broken: int | None = None
    npu: tuple[NpuEstimate, ...] = ()
    error: str = ""

    def float_latency(self, rows: Iterable[Measurement]) -> Latency | None:
        """The time of the float32 .tflite in the same runtime: of this directory, else of any."""
        floats = [
            row
            for row in rows
            if row.recipe == "float32" and row.latency and row.runtime == self.runtime
        ]
        floats.sort(key=lambda row: row.group != self.group)
        return floats[0].latency if floats else None


VersionState = Literal[
    "right", "wrong", "does not load", "does not run", "crashes", "not installable"
]


class VersionResult(FrozenStruct, kw_only=True, frozen=True):
    """One file in one version of a runtime.

    "right" and "wrong" are by the answers of the version that `is_reference`: the installed one,
    in which the file is measured, else the newest that runs it. `snr_db` is that of the worst
    output and `flips` counts the samples whose highest score is another one, both None where they
    are unknown. `detail` says why, where it is neither.
    """

    model: str
    runtime: str
    state: VersionState
    detail: str = ""
    is_reference: bool = False
    snr_db: float | None = None
    flips: int | None = None


class Comparison(FrozenStruct, kw_only=True, frozen=True):
    """Two artifacts by their accuracy on the same samples.

    `difference` is the accuracy of `model` minus that of `other`, `interval` its 95 % interval;
    `fixed` and `broken` count the samples that `model` alone has right, and wrong.
    """

    model: str
    other: str
    difference: float
    interval: tuple[float, float]
    fixed: int
    broken: int


class Conditions(FrozenStruct, kw_only=True, frozen=True):
    """How busy the machine was while it was measured on; None and "" where it cannot say.

    `load_before` and `load_after` are load averages over a minute; `steal` is the fraction of
    the processors' time that the host of a virtual machine took away, `busy` the fraction that
    other processes than the measured ones used; `governor` is the processors' frequency
    governor, `frequency_mhz` the lowest and the highest frequency seen.
    """

    load_before: float | None = None
    load_after: float | None = None
    steal: float | None = None
    busy: float | None = None
    governor: str = ""
    frequency_mhz: tuple[float, float] | None = None


class Environment(FrozenStruct, kw_only=True, frozen=True):
    """The machine and the versions that the measurements belong to.

    `host` is where it is, as `--runtime` names it: "" for the machine that edgeconv runs on.
    """

    machine: str
    cpu: str
    cores: int
    system: str
    python: str
    tools: dict[str, str]
    host: str = ""


class Report(Result, kw_only=True, frozen=True):
    """Measurements of one session, with the baseline that they are compared with.

    `environment` is of the machine that the artifacts ran on, `conditions` of the same one.
    `checkpoint` is the model that the baseline was exported from, where that was measured too.
    `labels` are those of the samples, in the order of the data set, where they are classes, and
    `class_names` their names, where they are known. `command` is what was typed to measure.
    `matrix` has every file in every version of a runtime, the oldest first.
    `checksum` is in the file only; see edgeconv/system/store/hashes.py.
    """

    format: Literal[2] = 2
    title: str
    environment: Environment
    data: DataIdentity | None
    baseline: Measurement | None
    measurements: tuple[Measurement, ...]
    comparisons: tuple[Comparison, ...] = ()
    matrix: tuple[VersionResult, ...] = ()
    checkpoint: Measurement | None = None
    training: TrainingRecord | None = None
    artifacts: tuple[Artifact, ...] = ()
    conditions: Conditions | None = None
    labels: tuple[int, ...] = ()
    class_names: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    verdict: Verdict | None = None
    notes: tuple[str, ...] = ()
    checksum: str | msgspec.UnsetType = msgspec.UNSET

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each model, as in report.csv; units are in the headings.

        Raises `UsageError` without pandas.
        """
        return import_module(_TABLE).to_pandas(self)


class LockedStage(FrozenStruct, kw_only=True, frozen=True):
    """A model as it was accepted: the trained one, or an artifact; see `Measurement`.

    `accuracy` has its per-sample results, so that the next one can be paired with it; they are
    those of the kernels of one runtime. `unproven` are the limits that were inconclusive.
    """

    name: str
    role: Literal["baseline", "artifact"]
    recipe: RecipeName | None = None
    measured_in: str | None = None
    sha256: str
    size_bytes: int
    gzip_size_bytes: int | None = None
    arena_bytes: int | None = None
    grade: Grade | None = None
    float_operators: int | None = None
    latency_ratio: float | None = None
    peak_memory_bytes: int | None = None
    accuracy: Accuracy | None = None
    unproven: tuple[UnprovenLimit, ...] = ()

    def is_measured_like(self, row: Measurement) -> bool:
        """Whether both ran in the same runtime, as far as that is known."""
        return not (self.measured_in and row.measured_in) or self.measured_in == row.measured_in


class LockedModel(FrozenStruct, kw_only=True, frozen=True):
    """One model of the configuration as it was accepted, and its inputs.

    `inputs` by name: hashes of the source, the calibration and test data, and the options that are
    not at their default, such as `convert --engine`. `tools` and `machine` converted and measured
    it. `test_sha256` and `preprocessing` identify the test samples. `accepted` are the accepted
    losses that have not been made up for since.
    """

    name: str
    inputs: dict[str, str]
    test_sha256: str
    test_samples: int
    preprocessing: str = ""
    tools: dict[str, str] = {}
    machine: dict[str, str] = {}
    stages: tuple[LockedStage, ...] = ()
    accepted: tuple[AcceptedDrop, ...] = ()

    def stage_of(self, row: Measurement) -> LockedStage | None:
        """The locked stage of a measured model: by its name, else the first of its recipe.

        Of several runtimes it is the one of the same runtime; one that the lock does not know is
        compared with the first.
        """
        named = [stage for stage in self.stages if (stage.name, stage.role) == (row.name, row.role)]
        alike = [stage for stage in self.stages if row.recipe and stage.recipe == row.recipe]
        there = [stage for stage in alike if stage.is_measured_like(row)]
        return next(iter(named or there or alike), None)


class Lock(FrozenStruct, kw_only=True, frozen=True):
    """The accepted state of every model, by its name in the configuration."""

    models: dict[str, LockedModel] = {}
