"""A child that stays, in which functions of this package are called one after another.

What a function keeps in memory, as with `functools.cache`, is there for the next call. Arguments
and answers are passed as by `system.processes.tasks`. A line on the child's stdin names the
function.
"""

from __future__ import annotations

import os
import sys
import tempfile
import weakref
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.system.processes.failures import report_faults
from edgeconv.system.processes.tasks import Answer, Task, answer_type, call, put_job
from edgeconv.system.processes.workers import Child, poll_until
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec

    from edgeconv.system.processes.sandbox import Access

_FINISHED = "finished"


class PersistentChild:
    """The child, in a new directory of `scratch`; `access` is what else it may touch.

    Each call may take the time of `allowance` while it is waited for; all calls share its memory.
    """

    def __init__(
        self,
        *,
        label: str,
        scratch: Path,
        access: Access,
        allowance: Allowance = Allowance(),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # The child may write nowhere else.
        self.directory = Path(tempfile.mkdtemp(prefix="standing-", dir=scratch))
        self.child = Child(
            [sys.executable, "-m", "edgeconv.system.processes.persistent"],
            label=label,
            cwd=self.directory,
            access=access,
            allowance=allowance,
            environment=environment,
        )
        self.child.rest()
        # The child ends when this object is collected, even if it was not closed.
        weakref.finalize(self, self.child.kill)
        self._calls = 0

    @property
    def is_at_work(self) -> bool:
        """Whether it can be called."""
        return not self.child.has_ended()

    def allow(self, allowance: Allowance) -> None:
        """Change the allowance."""
        self.child.allowance = allowance

    def start(self, function: Callable[[Any], Answer], job: msgspec.Struct) -> PendingCall[Answer]:
        """Call `function(job)` once the calls before it have ended.

        Wait for the results in the order of the calls. Where the child ends, that call and all
        later ones raise the reason.
        """
        directory = self.directory / f"call-{self._calls}"
        self._calls += 1
        directory.mkdir()
        self.child.tell(f"{put_job(function, job, directory)} {directory.name}")
        return PendingCall(self.child, directory, answer_type(function))

    def close(self) -> None:
        """End the process."""
        self.child.kill()


class PendingCall(Task[Answer]):
    """One call; its context manager does not end the child."""

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def is_finished(self) -> bool:
        """Whether there is an answer."""
        return (self._directory / _FINISHED).exists()

    def result(self, on_progress: Callable[[str], None] = lambda _: None) -> Answer:
        """The function's answer. Raises what it raised, or how the child died."""
        with self.child.waited_for():
            poll_until(
                lambda: self.is_finished or self.child.has_ended(), lambda: self.relay(on_progress)
            )
        self.relay(on_progress)
        if self.is_finished:
            return self._read_answer()
        self.child.kill()
        return self.answer()


def main() -> None:
    """Call the functions named on stdin until it closes."""
    report_faults()
    calls = os.fdopen(os.dup(0), "rb")
    # No function must read from it.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    # A function may change the working directory.
    here = Path.cwd()
    for line in calls:
        name, directory = line.decode().split()
        call(name, here / directory)
        (here / directory / _FINISHED).write_bytes(b"")


if __name__ == "__main__":
    # Run under its real name, as the modules of the functions know it.
    import_module("edgeconv.system.processes.persistent").main()
