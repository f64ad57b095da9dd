"""The models of a configuration as jobs of the gate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.gate.accepting import parse_accepted
from edgeconv.gate.flow import Checking
from edgeconv.gate.jobs import ModelJob
from edgeconv.model.source import artifact_of_file
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.config import lock
from edgeconv.requests.config.chosen import Chosen
from edgeconv.requests.config.lock import FILE_NAME
from edgeconv.system.store import also_reading
from edgeconv.types import Conversion
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.requests.check import CheckRequest
    from edgeconv.requests.config import Config
    from edgeconv.requests.config.file import ModelTable
    from edgeconv.types import Budget


class Project:
    """The models of a configuration, how they are checked, and the path of the lock.

    Raises `InputRefused` for a lock that cannot be read, `UsageError` for a wrong configuration or
    unknown losses to accept.
    """

    def __init__(self, request: CheckRequest, on_progress: Callable[[str], None]) -> None:
        self._chosen = Chosen(request)
        self.config: Config = self._chosen.config
        self._versions = request.versions
        accepted_drops = parse_accepted(
            request.accept_drops, self.config.models, updates=request.update
        )
        default = self.config.folder / FILE_NAME
        self.lock = (
            Path(request.lock) if request.lock else self._chosen.within_project(default, "the lock")
        )
        if not request.update:
            also_reading([self.lock])
        is_there = self.lock.exists() or self.lock.is_symlink()
        accepted = lock.read(self.lock) if is_there else None
        self.checking = Checking(
            statistics=request.statistics,
            execution=request.execution.execution,
            locked=accepted.models if accepted else {},
            has_lock=accepted is not None,
            accepting=request.update,
            accepted_drops=accepted_drops,
            on_progress=on_progress,
        )

    def jobs(self, names: Sequence[str]) -> tuple[ModelJob, ...]:
        """The jobs of these models, of all models without names. Raises `UsageError`."""
        return tuple(self._job(model) for model in self._chosen.models(names))

    def _job(self, model: ModelTable) -> ModelJob:
        ready = self._ready_made(model)
        # The job replaces these models by the converted files.
        measuring = {"models": (model.source,)}
        request = self._chosen.request(BenchRequest, "bench", model, measuring)
        return ModelJob(
            name=model.name,
            source=model.source,
            budget=_budget_of(model.budget, ready) if ready else model.budget,
            converting=None if ready else self._chosen.converting(model),
            ready=ready,
            measuring=request,
            versions=self._versions or request.measuring.versions,
            checkpoint=model.checkpoint,
            slices=model.slices,
            report_directory=self._chosen.directory(model, "bench"),
        )

    def _ready_made(self, model: ModelTable) -> Conversion | None:
        """The source of a model, where it is a quantized .tflite; else None.

        Raises `UsageError` for options that would convert it.
        """
        if not model.source.lower().endswith(".tflite"):
            return None
        try:
            artifact = artifact_of_file(model.source)
        except InputRefused:
            return None  # The conversion refuses it, with the reason.
        if artifact.recipe.name in ("float32", "float16"):
            return None
        table = ("model", model.name, "convert")
        if self.config.written.has(*table):
            raise self.config.written.error(
                table,
                f"model {model.name!r} is quantized already, so it is not converted",
                "remove this table, or name the float model as its source",
            )
        return Conversion(directory=str(Path(model.source).parent), artifacts=(artifact,))


def _budget_of(budget: Budget, ready: Conversion) -> Budget:
    recipes = {artifact.recipe.name for artifact in ready.artifacts}
    fitting = {name: limits for name, limits in budget.recipe.items() if name in recipes}
    return replace(budget, recipe=fitting)
