"""What every runtime is to `bench`.

Each is a module of `edgeconv.plugins.RUNTIMES` with one function:

    open_runtime(choice, settings) -> AbstractContextManager[Runtime]

It finds the device, the browser or the Python, sees that a model runs there at all, and lets
go of it at the end. It raises `UsageError` for a choice that cannot be, and `ToolFailed` where
the place does not answer; both say what to do next. With `RUNS_HERE_ALONE = True` it runs on this
machine, from edgeconv's own environments, so that a project may choose it; else
`files_named(choice)`, where there is one, gives the files that say what it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from edgeconv.types import Accelerator, Allowance

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.types import Environment, Timing

    Arrays = Mapping[str, NDArray[np.generic]]


class RuntimeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What `--runtime` says: NAME, NAME==VERSION or NAME:PLACE."""

    name: str
    version: str = ""
    place: str = ""


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All that runtimes can be told beside the choice; each takes what it knows.

    `python` is the Python that has the runtime, here or on the other machine, "" for the usual
    one. `binary` is the benchmark_model that is put on a device. `reads` are the directories of
    models that a process here is to load one after the other.
    """

    scratch: Path
    threads: int = 1
    accelerator: Accelerator = "interpreter"
    python: str = ""
    binary: str = ""
    allowance: Allowance = Allowance()
    reads: tuple[Path, ...] = ()
    on_progress: Callable[[str], None] = lambda _: None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A .tflite to run: the signature, None for the only one, and the samples of one invoke."""

    file: Path
    signature: str | None = None
    batch: int = 1


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """What one process said of one model; times in microseconds.

    `runtime` and `version` are what the runtime calls itself. `warmup` is how many invokes were
    needed until the times were stable, None where the runtime does not say. `memory_bytes` is
    the growth of the peak resident set from just before the model was loaded. `log` is what the
    process printed, where that is worth keeping.
    """

    runtime: str
    version: str
    load_us: float
    first_us: float
    samples_us: tuple[float, ...]
    warmup: int | None = None
    memory_bytes: int | None = None
    log: str = ""


class RuntimeSession(Protocol):
    """A model loaded in a process that stays, for its outputs."""

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, (n, *shape), of samples (n, *sample_shape) by input.

        n is a multiple of the model's batch. Floats go in and come out where the model is
        quantised. Raises `ToolFailed` where the model, its process or its place fails.
        """
        ...

    def close(self) -> None:
        """End the process."""
        ...


class Runtime(Protocol):
    """A place where models run, opened."""

    environment: Environment
    # How many sessions may work at the same time; 0 where there are no outputs to be had.
    sessions: int

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time the model on its first batch of `inputs` in a fresh process. `ToolFailed`."""
        ...

    def start(self, model: Model) -> RuntimeSession:
        """Load the model for its outputs. Raises `ToolFailed`."""
        ...
