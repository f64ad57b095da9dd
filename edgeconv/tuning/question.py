"""One question to a search: what the answer depends on, and where everything goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from edgeconv.source import opening_key
from edgeconv.store import hash_of, tool_versions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edgeconv.tuning.asked import Limits, Wanted
    from edgeconv.types import Execution, SourceModel


@dataclass(frozen=True)
class TuneRun:
    """What one search is asked, with the hashes of the samples and of those that calibrate."""

    model: SourceModel
    wanted: Wanted
    limits: Limits
    directory: Path
    data: str
    identities: tuple[str, str]
    execution: Execution
    on_progress: Callable[[str], None]
    started_s: float

    @property
    def end_s(self) -> float:
        """When the time is up, on the clock of `time.monotonic`."""
        return self.started_s + self.limits.seconds

    @property
    def key(self) -> str:
        """The key of the result, which the limits decide as well."""
        question = (self.data, self.identities, self.wanted, self.limits)
        model = (self.model.sha256, opening_key(self.model))
        return hash_of(model, question, tool_versions())

    @property
    def record(self) -> Path:
        """Where the result goes."""
        return self.directory / f"{self.model.name}.tuning.json"

    @property
    def recipe_file(self) -> Path:
        """Where the recipe goes."""
        return self.directory / f"{self.model.name}.recipe.toml"

    @property
    def calibration_file(self) -> Path:
        """Where the samples go that calibrate, if no others were given."""
        return self.directory / f"{self.model.name}.calibration.npz"

    @property
    def work(self) -> Path:
        """Where the trials are until the search is done."""
        return self.directory / f".{self.model.name}.tuning"

    def made_place(self) -> Path:
        """The directory, made if need be, of the trials that depend on the same things.

        Those are neither the limits nor the budget.
        """
        wanted = msgspec.structs.replace(self.wanted, max_drop=0.0, objective="size", recipes=())
        model = (self.model.sha256, opening_key(self.model))
        key = hash_of(model, self.data, self.identities, wanted, tool_versions())
        place = self.work / key[:24]
        place.mkdir(parents=True, exist_ok=True)
        return place
