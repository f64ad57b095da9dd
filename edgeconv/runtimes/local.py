"""Run the one-file runner in supervised children, in this Python or another."""

from __future__ import annotations

import functools
import math
import shutil
import sys
import threading
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.runtimes.conversation import Package, Runner, VulkanDrivers, delegated
from edgeconv.runtimes.emulation import SCRIPT
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.store import tool_versions
from edgeconv.types import Allowance
from edgeconv.types.errors import ToolFailed, UsageError, WorkerTimedOut
from edgeconv.types.execution import usable_cores

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.conversation import Conversation, RunnerSession
    from edgeconv.runtimes.interface import Arrays, Delegated, Timed
    from edgeconv.system.processes.sandbox.policy import Profile
    from edgeconv.types import Environment, Timing

RUNNER = Path(__file__).with_name("runner.py")


class RuntimePython(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime in Python: the package with the interpreter, and the Python that has it.

    With `gpu` models run in its GPU delegate. One that is emulated is in the directory `root`,
    which `python` runs with `qemu`.
    """

    package: Package = "ai_edge_litert"
    python: str = sys.executable
    gpu: VulkanDrivers | None = None
    root: str = ""
    qemu: str = ""

    @property
    def command(self) -> tuple[str, ...]:
        """What starts runner.py there."""
        emulated = (str(SCRIPT), self.qemu, self.root) if self.root else ()
        return (self.python, *emulated, str(RUNNER))


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
    idle: IdleRunners | None = None,
    states: Mapping[str, str] = MappingProxyType({}),
    others: int = 0,
) -> StoredRun:
    """Start running `model` on the stored samples in `samples` (see edgeconv.data).

    One of the `idle` processes takes it where there is one, and is given back after the run.
    `states` has outputs that are fed back with the next sample, by input; without any, `others` is
    how many more interpreters have their share of the samples.

    Raises `UsageError` where the target's Python does not exist.
    """
    runner = runner_of(
        target, RuntimeSettings(scratch=scratch, threads=threads, allowance=allowance)
    )
    loaded = Model(file=model, signature=signature, batch=batch)
    return StoredRun(runner, loaded, samples, idle or IdleRunners(keeps=False), states, others)


class RunResult(NamedTuple):
    """The runtime of a run, and every output (samples, *shape) by name.

    `gpu` is what a GPU delegate took of the model.
    """

    runtime: str
    version: str
    load_us: float
    outputs: dict[str, NDArray[np.generic]]
    gpu: Delegated | None = None


class IdleRunners:
    """Processes that have ended a run and wait for the next one; they may read what is in `reads`.

    One that does not keep them, or was closed, ends each with its run. Any thread may take one.
    """

    def __init__(self, *reads: Path, keeps: bool = True) -> None:
        self._reads = tuple(path.absolute() for path in reads)
        self._keeps = keeps
        self._waiting: list[tuple[Runner, Conversation]] = []
        self._lock = threading.Lock()

    def take(self, runner: Runner, model: Model, *samples: Path) -> Conversation:
        """One of a runner's processes for a model, which waits already or is started."""
        with self._lock:
            fitting = (each for each in self._waiting if each[0] == runner)
            if (waiting := next(fitting, None)) is not None:
                self._waiting.remove(waiting)
                waiting[1].rename(runner.running(model))
                return waiting[1]
        return runner.opened(model, *(path.absolute() for path in samples), *self._reads)

    def give_back(self, runner: Runner, talk: Conversation) -> None:
        """Take in a process whose run went well."""
        if self._keeps:
            self._waiting.append((runner, talk))
        else:
            talk.close()

    def close(self) -> None:
        """End the processes that wait."""
        self._keeps = False
        while self._waiting:
            self._waiting.pop()[1].close()


class StoredRun:
    """A model running on stored samples. The context manager ends the process."""

    def __init__(
        self,
        runner: Runner,
        model: Model,
        samples: Path,
        idle: IdleRunners,
        states: Mapping[str, str] = MappingProxyType({}),
        others: int = 0,
    ) -> None:
        from edgeconv.data.samples import sample_files

        files = {name: str(path.absolute()) for name, path in sample_files(samples).items()}
        self._runner, self._idle = runner, idle
        self._talk = idle.take(runner, model, samples)
        self._is_over = False
        self._failure: ToolFailed | None = None
        try:
            self._talk.tell(runner.request("load", str(model.file.absolute()), model))
            request = {"do": "run", "runtime": runner.package, "files": files}
            self._talk.tell({**request, "states": dict(states), "others": others})
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
        self._is_over = True
        self._idle.give_back(self._runner, self._talk)
        return RunResult(
            loaded["runtime"], loaded["version"], loaded["load_us"], outputs, delegated(loaded)
        )

    def close(self) -> None:
        """End the process, unless the run is over."""
        if not self._is_over:
            self._is_over = True
            self._talk.close()


def runner_of(target: RuntimePython, settings: RuntimeSettings) -> Runner:
    """How runner.py is started there. Raises `UsageError` where there is no such Python."""
    if shutil.which(target.python) is None:
        raise UsageError(
            f"there is no Python at {target.python}", hint="name another with --python FILE"
        )
    return Runner(
        command=target.command,
        package=target.package,
        label=target.package,
        scratch=settings.scratch,
        access=_access(target),
        threads=settings.threads,
        accelerator="compiled" if target.gpu else settings.accelerator,
        allowance=settings.allowance,
        shares=True,
        gpu=target.gpu,
    )


def _access(target: RuntimePython) -> Access:
    """What a runtime may touch in addition to models: a GPU and its drivers, or an emulator."""
    if target.root:
        return Access(reads=(Path(target.root),), runs=(Path(target.qemu),))
    if target.gpu is None:
        return Access()
    profile: Profile = "gpu" if target.gpu.has_device else "confined"
    return Access(profile=profile, reads=target.gpu.reads())


class LocalRuntime:
    """A `Runtime` in a Python of this machine.

    Raises `UsageError` where there is no such Python, `ToolFailed` where it lacks the runtime.
    """

    def __init__(
        self,
        target: RuntimePython,
        settings: RuntimeSettings,
        *,
        has_times: bool = True,
        gpu: str = "",
        once_s: float = math.inf,
    ) -> None:
        """One that `has_times` not runs a model once to see that it does, for `once_s` at most."""
        self.has_times = self.has_pace = has_times
        self.gpu = gpu
        self._once_s = once_s
        self._runner = runner_of(target, settings)
        # Those that take one model after another.
        self.idle = IdleRunners(*settings.reads, keeps=bool(settings.reads))
        self.environment = _environment(self._runner, target)
        # A GPU has one queue, and SwiftShader takes all processors for itself.
        self.sessions = 1 if target.gpu else usable_cores()
        # Whether it is the LiteRT that edgeconv itself uses.
        self.is_present_litert = target == RuntimePython()
        self.is_emulated = bool(target.root)

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time the model on its first batch in a new process. Raises `ToolFailed`."""
        allowance = self._runner.allowance
        if allowance.timeout_s <= self._once_s:
            return self._runner.time(str(model.file.absolute()), model, inputs, timing)
        once = msgspec.structs.replace(allowance, timeout_s=self._once_s)
        runner = msgspec.structs.replace(self._runner, allowance=once)
        try:
            return runner.time(str(model.file.absolute()), model, inputs, timing)
        except WorkerTimedOut as error:
            raise WorkerTimedOut(
                f"{runner.running(model)}: an invoke did not end within {self._once_s:g} s",
                hint="a loop of the model may never end in these kernels: keep its layers unrolled "
                "(unroll=True), or use another runtime",
            ) from error

    def start(self, model: Model, idle: IdleRunners | None = None) -> RunnerSession:
        """Load the model for its outputs, in one of the `idle` processes where there is one.

        Raises `ToolFailed`.
        """
        idle = idle or self.idle
        talk = idle.take(self._runner, model)
        give_back = functools.partial(idle.give_back, self._runner, talk)
        return self._runner.load(talk, str(model.file.absolute()), model, give_back)


def _environment(runner: Runner, target: RuntimePython) -> Environment:
    environment = runner.facts().environment()
    if target.root or target.python != sys.executable:
        return environment
    return msgspec.structs.replace(environment, tools={**tool_versions(), **environment.tools})
