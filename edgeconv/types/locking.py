"""The lock: the accepted state that the gate compares with."""

from __future__ import annotations

from typing import Literal

from edgeconv.types.checks import AcceptedDrop, UnprovenLimit
from edgeconv.types.conversion import Grade, RecipeName
from edgeconv.types.measurement import Accuracy, Measurement
from edgeconv.types.model import FrozenStruct


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
