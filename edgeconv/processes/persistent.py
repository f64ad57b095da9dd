"""A child that stays: functions of this package are called in it, one after the other.

What a function keeps in memory, as by `functools.cache`, is there for the next call. The functions,
and how they get their arguments and give their answers, are those of `edgeconv.processes.tasks`;
which one is to be called next is a line on the child's stdin.
"""

from __future__ import annotations

import os
import sys
import tempfile
import weakref
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.processes.failures import report_faults
from edgeconv.processes.tasks import Answer, Task, answer_type, call, put_job
from edgeconv.processes.workers import Child, poll_until
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec

    from edgeconv.processes.sandbox import Access

_DONE = "done"


class PersistentChild:
    """The child, in a new directory of `scratch`; `access` says what else it may touch.

    Each call may take the time of `allowance`, counted while its answer is waited for; all of
    them together may take its memory.
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
        # The only place that the child may write to.
        self.directory = Path(tempfile.mkdtemp(prefix="standing-", dir=scratch))
        self.child = Child(
            [sys.executable, "-m", "edgeconv.processes.persistent"],
            label=label,
            cwd=self.directory,
            access=access,
            allowance=allowance,
            environment=environment,
        )
        self.child.rest()
        # It ends with whoever could still call it, also where nobody closes it.
        weakref.finalize(self, self.child.kill)
        self._calls = 0

    @property
    def is_at_work(self) -> bool:
        """Whether it can be called."""
        return not self.child.has_ended()

    def allow(self, allowance: Allowance) -> None:
        """From now on a call may take this time, and all of them together this memory."""
        self.child.allowance = allowance

    def start(self, function: Callable[[Any], Answer], job: msgspec.Struct) -> PendingCall[Answer]:
        """Call `function(job)` once the calls before it have ended.

        The result is to be waited for in the order of the calls. Where the child ends, that call
        and all after it have no answer, and raise why.
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
    """One call; leaving it as a context manager leaves the child at work."""

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def is_done(self) -> bool:
        """Whether there is an answer."""
        return (self._directory / _DONE).exists()

    def result(self, on_progress: Callable[[str], None] = lambda _: None) -> Answer:
        """The function's answer. Raises what it raised, or how the child died."""
        with self.child.waited_for():
            poll_until(
                lambda: self.is_done or self.child.has_ended(), lambda: self.relay(on_progress)
            )
        self.relay(on_progress)
        if self.is_done:
            return self._told()
        self.child.kill()
        return self.answer()


def main() -> None:
    """Call what is named on stdin until that ends."""
    report_faults()
    calls = os.fdopen(os.dup(0), "rb")
    # What is read from there is for nobody else.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    # A function may change the working directory.
    here = Path.cwd()
    for line in calls:
        name, directory = line.decode().split()
        call(name, here / directory)
        (here / directory / _DONE).write_bytes(b"")


if __name__ == "__main__":
    # Run under its real name, as the modules of the functions know it.
    import_module("edgeconv.processes.persistent").main()
