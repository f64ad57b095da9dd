"""The models of a configuration, for a program that holds them to limits of its own."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.cli.configured import context_of, read_config
from edgeconv.cli.jobs import Jobs, checking_of
from edgeconv.config import find_config
from edgeconv.config.reach import Granted
from edgeconv.errors import ToolFailed, UsageError
from edgeconv.store import cache_directory, owned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.gate.jobs import Job
    from edgeconv.types import Budget, Check, Report


class Project:
    """The models of a configuration: `named`, else that of `folder`.

    Each is converted and measured when it is first asked for.
    """

    def __init__(self, folder: Path, named: Path | None = None, *, allow_code: bool) -> None:
        file = (named or _found(folder)).absolute()
        self._folder = file.parent
        if not self._folder.is_dir():
            raise UsageError(f"the configuration {file} does not exist", hint="check the path")
        with self._inside():
            config = read_config(Path(file.name))
            context = context_of(config, "check", [], granted=Granted(any_code=allow_code))
            self._jobs = Jobs(context, lambda _: None)
            self._checking, _ = checking_of(context, self._jobs, lambda _: None)

    def job(self, model: str) -> Job:
        """The job of a model. Raises `UsageError` for an unknown one."""
        with self._inside():
            return self._jobs.named([model])[0]

    def report(self, job: Job) -> Report:
        """What was measured of the model."""
        with self._inside():
            return self._checking.report(job)

    def recipes(self, job: Job) -> list[str]:
        """The recipes that the model is converted by."""
        rows = (row for row in self.report(job).measurements if row.role == "artifact")
        return [row.recipe for row in rows if row.recipe]

    def check(self, job: Job, budget: Budget) -> Check:
        """The model held against these limits."""
        with self._inside():
            return self._checking.check(replace(job, budget=budget))

    def file(self, job: Job, recipe: str) -> Path:
        """The published file. Raises `ToolFailed` where there is none."""
        with self._inside():
            done = job.convert()
            directory = Path(done.directory).absolute()
        for one in done.artifacts:
            if one.recipe.name == recipe:
                return directory / one.file
        failed = (one.message for one in done.failures if one.recipe == recipe)
        raise ToolFailed(f"{job.name} was not converted to {recipe}: {'; '.join(failed)}")

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        """In the folder of the configuration, as `edgeconv check` is run there.

        Other processes wait, as those of pytest-xdist: measured at once, they would disturb each
        other.
        """
        before = Path.cwd()
        with owned(cache_directory() / "projects", passing=True):
            os.chdir(self._folder)
            try:
                yield
            finally:
                os.chdir(before)


def _found(folder: Path) -> Path:
    found = find_config(folder)
    if found is None:
        raise UsageError(
            f"there is no edgeconv.toml in {folder}, and no pyproject.toml with [tool.edgeconv]",
            hint="write one with `edgeconv init MODEL`, or name another",
        )
    return found
