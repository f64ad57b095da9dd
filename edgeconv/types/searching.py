"""What `sweep` and `tune` found: cells, and trials."""

from typing import Literal

import msgspec

from edgeconv.types.checks import Budget
from edgeconv.types.conversion import PostTraining, Recipe
from edgeconv.types.measurement import Report
from edgeconv.types.measuring import NpuEstimate
from edgeconv.types.model import FrozenStruct, Result
from edgeconv.types.samples import DataIdentity

CellState = Literal["done", "failed", "missing"]
# Whether each cell must keep the budget, or one cell of each model.
SweepGate = Literal["every-cell", "a-cell-per-model"]


class CellResult(FrozenStruct, kw_only=True, frozen=True):
    """What became of one cell: the report of its one artifact, or the reason of its failure.

    `key` is the hash of all that decides the result. `file` is the artifact's path from the
    directory of the sweep. `error` is the type of the failure, and `code` the hash of the code of
    edgeconv that failed.
    """

    format: Literal[1] = 1
    key: str
    report: Report | None = None
    file: str = ""
    error: str = ""
    reason: str = ""
    hint: str = ""
    code: str = ""


class SweepCell(FrozenStruct, kw_only=True, frozen=True):
    """One combination of a sweep, and its numbers; None where one was not measured.

    `model` is the path from the folder of the sweep's file, and `data` the name of a data set, ""
    without any. `file` is the artifact's path from the directory of the results. `drop` is against
    the trained model, in the unit of `metric`, `snr_db` that of the worst output. `on_front`: no
    other cell of the model, data set and runtime is smaller (faster, with times) and not
    worse. `error` is the type of a failure. `change` is what differs from the last sweep, "" for
    nothing.
    """

    key: str
    model: str
    recipe: str
    runtime: str
    data: str
    state: CellState
    error: str = ""
    reason: str = ""
    hint: str = ""
    file: str = ""
    sha256: str = ""
    size_bytes: int | None = None
    latency_us: float | None = None
    metric: str = ""
    value: float | None = None
    drop: float | None = None
    drop_interval: tuple[float, float] | None = None
    snr_db: float | None = None
    on_front: bool = False
    change: str = ""

    @property
    def name(self) -> tuple[str, str, str, str]:
        """What tells it from the other cells of the sweep."""
        return self.model, self.data, self.recipe, self.runtime


class Swept(Result, kw_only=True, frozen=True):
    """All cells of a sweep, worst first, and a report for each model and data set.

    `budgets` are the limits of models that have their own, by the titles of their reports.
    `removed` are the cells of the last sweep that this one does not have. `directory` is where the
    results are, and is not in the file. `checksum` is in the file only; see
    edgeconv/system/store/hashes.py.
    """

    sweep: Literal[1] = 1
    title: str
    cells: tuple[SweepCell, ...]
    reports: tuple[Report, ...] = ()
    removed: tuple[str, ...] = ()
    budget: Budget = Budget()
    budgets: dict[str, Budget] = {}
    gate: SweepGate = "every-cell"
    directory: str = ""
    checksum: str | msgspec.UnsetType = msgspec.UNSET

    def count(self, state: CellState) -> int:
        """How many cells are in a state."""
        return sum(cell.state == state for cell in self.cells)


Objective = Literal["size", "latency", "npu-latency"]


class Loss(FrozenStruct, kw_only=True, frozen=True):
    """What is lost to the float32 model on `samples` of the data, in the metric's own unit.

    `value` is the metric, `drop` how much worse than float32 that is, and `interval` the 95 %
    interval of the drop, paired by sample. `variance` is that of one sample's part in the drop.
    `fixed` and `broken` count the answers that became right and wrong, None where the metric is
    not one of right or wrong.
    """

    value: float
    drop: float
    samples: int
    variance: float
    interval: tuple[float, float] | None = None
    fixed: int | None = None
    broken: int | None = None


class TuningTrial(FrozenStruct, kw_only=True, frozen=True):
    """One recipe that was converted, and evaluated on the search samples.

    `name` is the recipe's, with its differences from the default. `error` says why its conversion
    failed, "" if it did not. `refused`: it failed its verification, as `error` says, and was
    evaluated all the same, since a mixed recipe may start from it; it is never published. `chance`
    is the probability that its drop on the fresh samples is within the budget. `latency_us` is the
    median time, None where the objective is another, and `latency_interval_us` its 95 % interval.
    `npu` is what is estimated on the NPU of the objective npu-latency.
    `post_training` is what it was quantized with, and `seconds` what it took.
    """

    name: str
    recipe: Recipe
    error: str = ""
    refused: bool = False
    size_bytes: int = 0
    sha256: str = ""
    latency_us: float | None = None
    latency_interval_us: tuple[float, float] | None = None
    npu: NpuEstimate | None = None
    loss: Loss | None = None
    chance: float = 0.0
    post_training: PostTraining | None = None
    seconds: float = 0.0

    @property
    def is_uniform(self) -> bool:
        """Whether all layers have the same recipe."""
        return not self.recipe.layers

    def cost(self, objective: Objective) -> float:
        """What the objective makes small: bytes, or microseconds; infinite if not known."""
        known = self.size_bytes or None if objective == "size" else self.latency_us
        if objective == "npu-latency":
            known = self.npu.whole_latency_us if self.npu else None
        return float("inf") if self.error or known is None else float(known)


class Confirmation(FrozenStruct, kw_only=True, frozen=True):
    """A trial evaluated again, on samples that the search had never seen."""

    trial: str
    loss: Loss
    is_met: bool


class Tuning(Result, kw_only=True, frozen=True):
    """What a search tried, and the artifact that it recommends.

    `max_drop` is the budget, in the unit of `metric`. `on_agreement` says that there were no
    labels: the metric is then the share of the samples for which float32 and artifact say the
    same. `search` and `fresh` are the parts of `data`; `float_loss` is the float32 model on both,
    in this order, and `float_size_bytes` its size. `pareto` names the trials that no other betters
    in cost or drop beyond noise. `recommended` names the trial that was confirmed, and is "" where
    none was; `closest` is then the one that comes nearest to the budget. `artifact` and
    `recipe_file` are in `directory`; `allow` has the options that `convert` needs beside that file,
    where the samples are elsewhere. `stopped` is the limit that ended the search, "" where it came
    to its end. `advice` says what to do where quantization costs too much.
    """

    format: Literal[1] = 1
    key: str
    model: str
    directory: str
    objective: Objective
    max_drop: float
    metric: str
    on_agreement: bool
    runtime: str
    data: DataIdentity
    search: int
    fresh: int
    calibration: DataIdentity
    float_size_bytes: int
    float_loss: tuple[Loss, Loss]
    float_latency_us: float | None = None
    trials: tuple[TuningTrial, ...]
    confirmations: tuple[Confirmation, ...] = ()
    pareto: tuple[str, ...] = ()
    recommended: str = ""
    closest: str = ""
    artifact: str = ""
    recipe_file: str = ""
    allow: tuple[str, ...] = ()
    stopped: Literal["", "time", "trials"] = ""
    seconds: float = 0.0
    advice: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tools: dict[str, str] = {}

    @property
    def ok(self) -> bool:
        """Whether an artifact is within the budget on the fresh samples."""
        return bool(self.recommended)

    def trial(self, name: str) -> TuningTrial:
        """The trial of this name."""
        return next(trial for trial in self.trials if trial.name == name)
