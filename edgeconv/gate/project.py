"""The models of a configuration as jobs for the gate: what `convert` and `bench` are to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.config import lock
from edgeconv.config.chosen import Chosen
from edgeconv.config.lock import FILE_NAME
from edgeconv.errors import InputRefused
from edgeconv.gate.accepting import parse_accepted, refuse_without_update
from edgeconv.gate.flow import Checking
from edgeconv.gate.jobs import ModelJob
from edgeconv.requests.bench import BenchRequest
from edgeconv.source import artifact_of_file
from edgeconv.types import Conversion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.config import Config
    from edgeconv.config.file import ModelTable
    from edgeconv.requests.check import CheckRequest
    from edgeconv.types import Budget


class Project:
    """The models of a configuration, how they are judged and run, and the place of the lock.

    Raises `InputRefused` for a lock that cannot be read, `UsageError` for a configuration that
    cannot be, or for losses to be accepted that there cannot be.
    """

    def __init__(self, asked: CheckRequest, on_progress: Callable[[str], None]) -> None:
        refuse_without_update(asked.accept_drops, updates=asked.update)
        self._chosen = Chosen(asked)
        self.config: Config = self._chosen.config
        self.lock = self._lock_place(asked.lock)
        is_there = self.lock.exists() or self.lock.is_symlink()
        accepted = lock.read(self.lock) if is_there else None
        self.checking = Checking(
            statistics=asked.statistics,
            execution=asked.execution.execution,
            locked=accepted.models if accepted else {},
            has_lock=accepted is not None,
            accepting=asked.update,
            accepted_drops=parse_accepted(asked.accept_drops, self.config.models),
            on_progress=on_progress,
        )

    def jobs(self, names: Sequence[str]) -> tuple[ModelJob, ...]:
        """The jobs of these models, of all where none is named. Raises `UsageError`."""
        return tuple(self._job(model) for model in self._chosen.models(names))

    def _lock_place(self, given: str | None) -> Path:
        """Where the lock is: as `given`, or beside the configuration."""
        beside = self.config.folder / FILE_NAME
        return Path(given) if given else self._chosen.within_project(beside, "the lock")

    def _job(self, model: ModelTable) -> ModelJob:
        ready = self._ready_made(model)
        # The files are known when they are made.
        measuring = {"models": (model.source,)}
        return ModelJob(
            name=model.name,
            source=model.source,
            budget=_of_recipe(model.budget, ready) if ready else model.budget,
            converting=None if ready else self._chosen.converting(model),
            ready=ready,
            measuring=self._chosen.request(BenchRequest, "bench", model, measuring),
            checkpoint=model.checkpoint,
            slices=model.slices,
            report_directory=self._chosen.directory(model, "bench"),
        )

    def _ready_made(self, model: ModelTable) -> Conversion | None:
        """The source of a model itself, where it is quantized already; None for any other.

        Raises `UsageError` for options that would convert it.
        """
        if not model.source.lower().endswith(".tflite"):
            return None
        try:
            found = artifact_of_file(model.source)
        except InputRefused:
            return None  # The conversion says what is wrong with it.
        if found.recipe.name in ("float32", "float16"):
            return None
        own = ("model", model.name, "convert")
        if self.config.written.has(*own):
            raise self.config.written.error(
                own,
                f"model {model.name!r} is quantized already, so nothing is converted",
                "remove this table, or name the float model as its source",
            )
        return Conversion(directory=str(Path(model.source).parent), artifacts=(found,))


def _of_recipe(budget: Budget, ready: Conversion) -> Budget:
    """The limits for what is there, without those of recipes that nothing is converted to."""
    made = {one.recipe.name for one in ready.artifacts}
    fitting = {name: limits for name, limits in budget.recipe.items() if name in made}
    return replace(budget, recipe=fitting)
