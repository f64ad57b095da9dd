"""The stages of a conversion, between a plan and its published artifacts.

    prepare ─► make ─► examine

`ladder` has the ways to try it, `attempt` goes up it; `prepare` has the float32 .tflite,
the samples and the trained model's own outputs;
`make` quantises by each recipe; `examine` runs what was made and compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from edgeconv.errors import EdgeconvError
from edgeconv.store import keep_log
from edgeconv.tasks import start_task
from edgeconv.workers import Allowance

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.plan import Plan
    from edgeconv.sandbox import Access
    from edgeconv.store import Cache
    from edgeconv.tasks import Task

Answer = TypeVar("Answer")


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """How to run, which changes no result: threads, what a child may use, the cache.

    `allow_code`: a SOURCE may name a function of the user's, which runs in a child. `trusted` are
    the content hashes of models that are loaded although the scan refuses them.
    """

    threads: int = 2
    allowance: Allowance = Allowance()
    use_cache: bool = True
    allow_code: bool = False
    trusted: tuple[str, ...] = ()


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
        except EdgeconvError as error:
            kept = keep_log(task.child.log, f"{self.plan.model.name}-{self.plan.float_key[:8]}")
            if kept is None:
                raise
            message = f"{error.message}\n  the whole log: {kept}"
            raise error.saying(message) from error
