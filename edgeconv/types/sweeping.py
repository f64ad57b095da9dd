"""What a sweep measured: many models, recipes, runtimes and data sets, cell by cell."""

from __future__ import annotations

from typing import Literal

import msgspec

from edgeconv.types.checks import Budget
from edgeconv.types.measurement import Report
from edgeconv.types.model import FrozenStruct, Result

CellState = Literal["done", "failed", "missing"]
# Whether each cell must keep the budget, or one cell of each model.
SweepGate = Literal["every-cell", "a-cell-per-model"]


class CellResult(FrozenStruct, kw_only=True, frozen=True):
    """What became of one cell: the report of its one artifact, or the reason of its failure.

    `key` is the hash of all that decides the result. `file` is the artifact's path from the
    directory of the sweep. `error` is the type of the failure.
    """

    format: Literal[1] = 1
    key: str
    report: Report | None = None
    file: str = ""
    error: str = ""
    reason: str = ""
    hint: str = ""


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
    edgeconv/system/store/checksums.py.
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
