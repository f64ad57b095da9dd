"""One conversion at work: its plan, where files on the way go, and the children it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING, Any, TypeVar

from edgeconv.errors import EdgeconvError, InternalError
from edgeconv.processes.tasks import start_task
from edgeconv.store import keep_log

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from edgeconv.conversion.plan import Plan
    from edgeconv.processes.tasks import Task
    from edgeconv.sandbox import Access
    from edgeconv.store import Cache
    from edgeconv.types import Execution

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Run:
    """One conversion at work: its plan, where files on the way go, and whom to tell."""

    plan: Plan
    cache: Cache
    execution: Execution
    scratch: Path
    on_progress: Callable[[str], None]

    def start(
        self,
        function: Callable[[Any], Answer],
        job: msgspec.Struct,
        label: str,
        *,
        access: Access,
    ) -> Task[Answer]:
        """Start a function of the package in a child, within the run's allowance."""
        return start_task(
            function,
            job,
            label=label,
            scratch=self.scratch,
            access=access,
            allowance=self.execution.allowance,
        )

    def result(self, task: Task[Answer]) -> Answer:
        """A child's answer; its whole log is kept where it ended in an error, which names it."""
        try:
            return task.result(self.on_progress)
        except InternalError:
            raise
        except EdgeconvError as error:
            kept = keep_log(task.child.log, f"{self.plan.model.name}-{self.plan.float_key[:8]}")
            if kept is None:
                raise
            message = f"{error.message}\n  the whole log: {kept}"
            raise error.saying(message) from error
