"""Run the one-file runner in supervised children, in this environment or another's Python."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import UsageError, WorkerCrashed
from edgeconv.processes.workers import Child, start
from edgeconv.runtimes.conversation import Package, Runner, failed
from edgeconv.sandbox import Access
from edgeconv.store import tool_versions
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.conversation import RunnerSession
    from edgeconv.runtimes.interface import Arrays, Model, Settings, Timed, Timing
    from edgeconv.types import Environment

RUNNER = Path(__file__).with_name("runner.py")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime: the package that has the interpreter, and the Python that has the package."""

    package: Package = "ai_edge_litert"
    python: str = sys.executable


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What the runner said; see runner.py. Outputs are files, read by `outputs`."""

    runtime: str
    version: str
    error: str = ""
    output_names: tuple[str, ...] = ()
    load_us: float = 0.0


class Running:
    """A runner at work. `result` blocks until it is done."""

    def __init__(self, child: Child, directory: Path) -> None:
        self.child = child
        self._directory = directory

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()

    def result(self) -> Run:
        """What it measured. Raises `ToolFailed` where the model does not load or run."""
        self.child.wait()
        answer = self._directory / "answer.json"
        if not answer.exists():
            raise WorkerCrashed(f"{self.child.label} ended without an answer\n{self.child.tail()}")
        run = msgspec.json.decode(answer.read_bytes(), type=Run)
        if run.error:
            raise failed(f"{self.child.label} {run.version}", run.error)
        return run

    def outputs(self, run: Run) -> dict[str, NDArray[np.generic]]:
        """Every output by name, as an array over all samples."""
        import numpy as np

        return {
            name: np.load(self._directory / f"{index}.npy")
            for index, name in enumerate(run.output_names)
        }


def start_run(
    model: Path,
    samples: Path,
    *,
    scratch: Path,
    signature: str | None,
    batch: int = 1,
    threads: int = 1,
    target: Target = Target(),
    allowance: Allowance = Allowance(),
) -> Running:
    """Start running `model` on the stored samples in `samples` (see edgeconv.data).

    Raises `UsageError` where the target's Python is not there.
    """
    _check_python(target)
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=scratch))
    job = {
        "do": "outputs",
        "model": str(model.absolute()),
        "runtime": target.package,
        "signature": signature,
        "inputs": _input_files(samples),
        "batch": batch,
        "outputs": str(directory),
        "threads": threads,
        "answer": str(directory / "answer.json"),
    }
    (directory / "job.json").write_bytes(msgspec.json.encode(job))
    child = start(
        [target.python, str(RUNNER), str(directory / "job.json")],
        label=f"running {model.name} in {target.package}",
        cwd=directory,
        access=Access(reads=(model.absolute(), samples.absolute())),
        allowance=allowance,
    )
    return Running(child, directory)


def _input_files(samples: Path) -> Mapping[str, str]:
    names = msgspec.json.decode((samples / "samples.json").read_bytes())["names"]
    return {name: os.fspath(samples / f"{index}.npy") for index, name in enumerate(names)}


def _check_python(target: Target) -> None:
    if shutil.which(target.python) is None:
        raise UsageError(f"there is no Python at {target.python}", hint="--python FILE")


class LocalRuntime:
    """A runtime in a Python of this machine; a `Runtime`, already seen to be there.

    Raises `UsageError` where there is no such Python, `ToolFailed` where it has no such runtime.
    """

    def __init__(self, target: Target, settings: Settings) -> None:
        _check_python(target)
        self._runner = Runner(
            command=(target.python, str(RUNNER), "serve"),
            package=target.package,
            label=target.package,
            scratch=settings.scratch,
            access=Access(),
            threads=settings.threads,
            accelerator=settings.accelerator,
            allowance=settings.allowance,
            shares=True,
        )
        self.environment = _environment(self._runner, target)
        self.sessions = usable_cores()
        # Whether what edgeconv itself finds out with LiteRT holds for this runtime.
        self.is_present_litert = target == Target()

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time the model on its first batch in a fresh process. Raises `ToolFailed`."""
        return self._runner.time(str(model.file.absolute()), model, inputs, timing)

    def start(self, model: Model) -> RunnerSession:
        """Load the model for its outputs. Raises `ToolFailed`."""
        return self._runner.start(str(model.file.absolute()), model)


def _environment(runner: Runner, target: Target) -> Environment:
    found = runner.facts().environment()
    if target.python != sys.executable:
        return found
    return msgspec.structs.replace(found, tools={**tool_versions(), **found.tools})


def usable_cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
