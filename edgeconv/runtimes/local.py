"""Run the one-file runner in a supervised child, in this environment or another's Python."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from edgeconv.errors import ToolFailed, UsageError, WorkerCrashed
from edgeconv.workers import Allowance, Child, start

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

RUNNER = Path(__file__).with_name("runner.py")


Package = Literal["ai_edge_litert", "tflite_runtime", "tensorflow"]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime: the package that has the interpreter, and the Python that has the package."""

    package: Package = "ai_edge_litert"
    python: str = sys.executable


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How to time: invokes before it, timed invokes at most, timed seconds at most."""

    warmup: int = 10
    repeats: int = 200
    seconds: float = 1.0


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What the runner said; see runner.py. Outputs are files, read by `outputs`."""

    runtime: str
    version: str
    error: str = ""
    output_names: tuple[str, ...] = ()
    load_us: float = 0.0
    first_us: float | None = None
    samples_us: tuple[float, ...] = ()
    model_memory_bytes: int | None = None


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
            raise ToolFailed(f"{self.child.label} {run.version} failed: {run.error}")
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
    timing: Timing | None = None,
    threads: int = 1,
    target: Target = Target(),
    allowance: Allowance = Allowance(),
) -> Running:
    """Start running `model` on the stored samples in `samples` (see edgeconv.data).

    With `timing` the run is timed on the first batch, without it has all the outputs.

    Raises `UsageError` where the target's Python is not there.
    """
    if shutil.which(target.python) is None:
        raise UsageError(f"there is no Python at {target.python}", hint="--python FILE")
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=scratch))
    job = {
        "model": str(model.absolute()),
        "runtime": target.package,
        "signature": signature,
        "inputs": _input_files(samples),
        "batch": batch,
        "outputs": None if timing else str(directory),
        "threads": threads,
        "warmup": timing.warmup if timing else 0,
        "repeats": timing.repeats if timing else 0,
        "seconds": timing.seconds if timing else 0.0,
        "answer": str(directory / "answer.json"),
    }
    (directory / "job.json").write_bytes(msgspec.json.encode(job))
    child = start(
        [target.python, str(RUNNER), str(directory / "job.json")],
        label=f"running {model.name} in {target.package}",
        cwd=directory,
        allowance=allowance,
    )
    return Running(child, directory)


def _input_files(samples: Path) -> Mapping[str, str]:
    names = msgspec.json.decode((samples / "samples.json").read_bytes())["names"]
    return {name: os.fspath(samples / f"{index}.npy") for index, name in enumerate(names)}
