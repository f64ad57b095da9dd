"""Run the one-file runner in supervised children, in this Python or another."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.processes.sandbox import Access
from edgeconv.runtimes.conversation import Package, Runner
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.store import tool_versions
from edgeconv.types import Allowance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.conversation import RunnerSession
    from edgeconv.runtimes.interface import Arrays, Timed
    from edgeconv.types import Environment, Timing

RUNNER = Path(__file__).with_name("runner.py")


class RuntimePython(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime in Python: the package with the interpreter, and the Python that has it."""

    package: Package = "ai_edge_litert"
    python: str = sys.executable


def start_run(
    model: Path,
    samples: Path,
    *,
    scratch: Path,
    signature: str | None,
    batch: int = 1,
    threads: int = 1,
    target: RuntimePython = RuntimePython(),
    allowance: Allowance = Allowance(),
) -> StoredRun:
    """Start running `model` on the stored samples in `samples` (see edgeconv.data).

    Raises `UsageError` where the target's Python does not exist.
    """
    runner = _runner(target, RuntimeSettings(scratch=scratch, threads=threads, allowance=allowance))
    return StoredRun(runner, Model(file=model, signature=signature, batch=batch), samples)


class RunResult(NamedTuple):
    """The runtime of a run, and every output (samples, *shape) by name."""

    runtime: str
    version: str
    load_us: float
    outputs: dict[str, NDArray[np.generic]]


class StoredRun:
    """A model running on stored samples. The context manager ends the process."""

    def __init__(self, runner: Runner, model: Model, samples: Path) -> None:
        from edgeconv.data.handover import sample_files

        files = {name: str(path.absolute()) for name, path in sample_files(samples).items()}
        self._talk = runner.opened(model, samples.absolute())
        self._failure: ToolFailed | None = None
        try:
            self._talk.tell(runner.request("load", str(model.file.absolute()), model))
            self._talk.tell({"do": "run", "runtime": runner.package, "files": files})
        except ToolFailed as error:
            # For `result`, which the caller waits for.
            self._failure = error

    def __enter__(self) -> StoredRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def result(self) -> RunResult:
        """Wait for the outputs. Raises `ToolFailed` where the model does not load or run."""
        if self._failure is not None:
            raise self._failure
        loaded, _ = self._talk.hear()
        _, outputs = self._talk.hear()
        self.close()
        return RunResult(loaded["runtime"], loaded["version"], loaded["load_us"], outputs)

    def close(self) -> None:
        """End the process."""
        self._talk.close()


def _runner(target: RuntimePython, settings: RuntimeSettings) -> Runner:
    if shutil.which(target.python) is None:
        raise UsageError(
            f"there is no Python at {target.python}", hint="name another with --python FILE"
        )
    return Runner(
        command=(target.python, str(RUNNER)),
        package=target.package,
        label=target.package,
        scratch=settings.scratch,
        access=Access(reads=settings.reads),
        threads=settings.threads,
        accelerator=settings.accelerator,
        allowance=settings.allowance,
        shares=True,
    )


class LocalRuntime:
    """A `Runtime` in a Python of this machine.

    Raises `UsageError` where there is no such Python, `ToolFailed` where it lacks the runtime.
    """

    def __init__(
        self, target: RuntimePython, settings: RuntimeSettings, *, has_times: bool = True
    ) -> None:
        self.has_times = has_times
        self._runner = _runner(target, settings)
        self.environment = _environment(self._runner, target)
        self.sessions = usable_cores()
        # Whether it is the LiteRT that edgeconv itself uses.
        self.is_present_litert = target == RuntimePython()

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time the model on its first batch in a new process. Raises `ToolFailed`."""
        return self._runner.time(str(model.file.absolute()), model, inputs, timing)

    def start(self, model: Model) -> RunnerSession:
        """Load the model for its outputs. Raises `ToolFailed`."""
        return self._runner.start(str(model.file.absolute()), model)

    def load(self, session: RunnerSession, model: Model) -> None:
        """Load another model, in the directories `reads`, in a session. Raises `ToolFailed`."""
        self._runner.load(session, str(model.file.absolute()), model)


def _environment(runner: Runner, target: RuntimePython) -> Environment:
    environment = runner.facts().environment()
    if target.python != sys.executable:
        return environment
    return msgspec.structs.replace(environment, tools={**tool_versions(), **environment.tools})


def usable_cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
