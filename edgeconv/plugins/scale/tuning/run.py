"""One search at work: what its result depends on, and where its files go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from edgeconv.conversion.plan import REVISION
from edgeconv.model.source import opening_key
from edgeconv.plugins import npu_compiler
from edgeconv.requests.recipes import recipe_names
from edgeconv.system.store import hash_of, tool_versions
from edgeconv.types import QAT
from edgeconv.types.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edgeconv.requests.tune import TuneRequest
    from edgeconv.types import SourceModel

# Counts up when kept trials are to be evaluated again.
_REVISION = 2


@dataclass(frozen=True)
class TuneRun:
    """A request with its model identified.

    `identities` are the hashes of the samples, and of those that calibrate ("" for no others).
    `started_s` is on the clock of `time.monotonic`.
    """

    request: TuneRequest
    model: SourceModel
    directory: Path
    identities: tuple[str, str]
    on_progress: Callable[[str], None]
    started_s: float

    @property
    def end_s(self) -> float:
        """When the time is up, on the clock of `time.monotonic`."""
        return self.started_s + self.request.time_limit_s

    @property
    def key(self) -> str:
        """The key of the result, which the limits decide as well."""
        return self._key(self.request)

    @property
    def result_file(self) -> Path:
        """Where the result goes."""
        return self.directory / f"{self.model.name}.tuning.json"

    @property
    def recipe_file(self) -> Path:
        """Where the recipe goes."""
        return self.directory / f"{self.model.name}.recipe.toml"

    @property
    def calibration_file(self) -> Path:
        """Where calibration samples go that are taken from the search samples."""
        return self.directory / f"{self.model.name}.calibration.npz"

    @property
    def work(self) -> Path:
        """Where the trials are until the search is finished."""
        return self.directory / f".{self.model.name}.tuning"

    def trials_directory(self) -> Path:
        """Where trials are kept that another run can use again; it is made if need be.

        Neither the limits nor the budget decide what a trial is.
        """
        request = msgspec.structs.replace(
            self.request, max_drop=0.0, objective="size", recipes=(), trials=1, time_limit_s=1.0
        )
        directory = self.work / self._key(request)[:24]
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def _key(self, request: TuneRequest) -> str:
        model = (self.model.sha256, opening_key(self.model))
        content = (str(request.data), str(request.calibration or ""), self.identities)
        tools = (tool_versions(), npu_compiler().compiler() if request.npu else "")
        return hash_of((REVISION, _REVISION), model, content, request.settings(), tools)


def refuse_options(request: TuneRequest) -> None:
    """Raise `UsageError` for option values that are impossible or make no sense."""
    if not 0 <= request.max_drop < 1:
        raise UsageError(
            f"--max-drop {request.max_drop:g} is not in 0 to 1",
            hint="it is a fraction: 0.005 is half a point of accuracy",
        )
    if (request.objective == "npu-latency") != (request.npu is not None):
        raise UsageError(
            "--objective npu-latency and --npu NAME belong together",
            hint="--objective npu-latency --npu ethos-u55-128",
        )
    if not request.time_limit_s > 0:
        raise UsageError(f"--time-limit-s {request.time_limit_s:g}: a time above 0 is needed")
    counts = {"trials": request.trials, "batch": request.batch, "samples": request.samples}
    for name, count in counts.items():
        if count is not None and count < 1:
            raise UsageError(f"--{name} {count}: at least 1 is needed")
    if request.recipes and QAT in recipe_names(request.recipes):
        raise UsageError(
            "qat is training, which a search does not do",
            hint="remove it; if nothing else meets the budget, the command for it is shown",
        )
