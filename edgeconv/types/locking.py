"""What a team accepted: the state that the gate compares with."""

from __future__ import annotations

from typing import Literal

from edgeconv.types.checks import AcceptedDrop
from edgeconv.types.conversion import RecipeName
from edgeconv.types.measurement import Accuracy, Measurement
from edgeconv.types.model import Noun


class LockedStage(Noun, kw_only=True, frozen=True):
    """A model as it was accepted: the trained one, or an artifact; see `Measurement`.

    `accuracy` has its per-sample results, so that the next one can be paired with it.
    """

    name: str
    role: Literal["baseline", "artifact"]
    recipe: RecipeName | None = None
    sha256: str
    size_bytes: int
    gzip_size_bytes: int | None = None
    arena_bytes: int | None = None
    latency_ratio: float | None = None
    peak_memory_bytes: int | None = None
    accuracy: Accuracy | None = None


class LockedModel(Noun, kw_only=True, frozen=True):
    """One model of the configuration as it was accepted, and all that it was made from.

    `inputs` are what went in, by name: hashes of the source, the calibration and test data, and the
    options that are not at their default, as `convert --engine`;
    `tools` and `machine` say what it was made and measured with. `test_sha256` and
    `preprocessing` identify the test samples. `accepted` are the losses that were accepted by
    name, and have not been made up for since.
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
        """What is locked of a measured model: by its name, else the first of its recipe.

        The runtime is part of the name where there are several, and no reason not to compare.
        """
        named = [one for one in self.stages if (one.name, one.role) == (row.name, row.role)]
        alike = [one for one in self.stages if row.recipe and one.recipe == row.recipe]
        return next(iter(named or alike), None)


class Lock(Noun, kw_only=True, frozen=True):
    """The accepted state of every model, by its name in the configuration."""

    models: dict[str, LockedModel] = {}
