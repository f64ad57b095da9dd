"""The interface of a runtime.

Each runtime is a module of `edgeconv.plugins.RUNTIMES` with one function:

    open_runtime(choice, settings) -> AbstractContextManager[Runtime]

It finds the device, the browser or the Python, checks that a model runs there, and closes it at the
end. It raises `UsageError` for an impossible choice, and `ToolFailed` if the runtime does not
answer. With `RUNS_HERE_ALONE = True` it runs on this machine, from edgeconv's own environments, and
a project may choose it. Otherwise `files_named(choice)`, if there is one, gives the files that
decide which programs it starts. With `HAS_VERSIONS = True` a version can be chosen. `OPTIONS` are
the options that a location may end in, as in `host?key=value&key=value`; with
`HAS_LOCATION = False` there is nothing before them. `COMPARES_WITH` has, by accelerator, the
runtime whose answers to the same files its own are compared with: `bench` opens that too, without
an accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from edgeconv.types import Accelerator, Allowance, Environment, Timing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Inputs or outputs by name.
Arrays: TypeAlias = "Mapping[str, NDArray[np.generic]]"


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of all runtimes; each uses those that apply to it.

    `python` is the Python that has the runtime, here or on the other machine, "" for the default.
    `binary` is the benchmark_model for a device. `reads` are directories of models that a process
    here loads one after another.
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


class Delegated(msgspec.Struct, frozen=True, kw_only=True):
    """What a GPU delegate took of a model, as it printed it.

    `device` is the GPU; a program computes what it would on the processor where it `is_software`.
    Where the delegate did not take all (`is_full`), `on_gpu` and `on_cpu` are numbers of operators,
    and `left` has a line for each kind that it does not support: its name, a colon and why.
    """

    device: str
    is_software: bool
    is_full: bool
    on_gpu: int | None = None
    on_cpu: int | None = None
    left: tuple[str, ...] = ()


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one model in one process, in microseconds.

    `runtime` and `version` are the runtime's own names. `warmup` is the number of invokes until the
    times were stable, None if it is unknown. `starts_us` are when the timed invokes began, from
    the first one on, empty if the runtime does not tell. `memory_bytes` is the growth of the
    peak resident set from just before the model was loaded, `arena_bytes` what the model took of
    its arena; None if the runtime does not tell. `gpu` is what a GPU delegate took. `log` is
    what the process printed, where it is kept.
    """

    runtime: str
    version: str
    load_us: float
    first_us: float
    samples_us: tuple[float, ...]
    starts_us: tuple[float, ...] = ()
    warmup: int | None = None
    memory_bytes: int | None = None
    arena_bytes: int | None = None
    gpu: Delegated | None = None
    log: str = ""


class RuntimeSession(Protocol):
    """A model that stays loaded in a process, for its outputs."""

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, (n, *shape), of samples (n, *sample_shape) by input.

        n is a multiple of the model's batch. Quantized inputs and outputs are float32. Raises
        `ToolFailed` where the model, its process or its machine fails.
        """
        ...

    def close(self) -> None:
        """End the process."""
        ...


class Runtime(Protocol):
    """An opened runtime."""

    environment: Environment
    # Whether its times hold for the device that it stands for.
    has_times: bool
    # The GPU that it computes on, "" for a processor.
    gpu: str
    # Whether it can time invokes in a fixed period, and starts a new process for each timing.
    has_pace: bool
    # How many sessions may work at the same time; 0 if it gives no outputs.
    sessions: int

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time the model on its first batch of `inputs` in a new process. Raises `ToolFailed`."""
        ...

    def start(self, model: Model) -> RuntimeSession:
        """Load the model for its outputs. Raises `ToolFailed`."""
        ...
