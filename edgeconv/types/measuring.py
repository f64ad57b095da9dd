"""How to measure."""

from __future__ import annotations

from typing import Literal

from edgeconv.types.model import FrozenStruct
from edgeconv.types.npu import NpuChoice

Accelerator = Literal["interpreter", "compiled", "webgpu"]


class Timing(FrozenStruct, frozen=True, kw_only=True):
    """How to time a model: invokes before it at least, timed invokes and seconds at most.

    The warm-up goes on, for `warmup_seconds` at most, until the times are stable. With
    `every_seconds` above 0 a timed invoke begins that long after the one before, or later, and the
    process sleeps in between.
    """

    warmup: int = 10
    warmup_seconds: float = 2.0
    repeats: int = 200
    seconds: float = 1.0
    every_seconds: float = 0.0


class RuntimeChoice(FrozenStruct, frozen=True, kw_only=True):
    """A runtime: NAME, NAME==VERSION or NAME:LOCATION, with the options that LOCATION ends in."""

    name: str
    version: str = ""
    location: str = ""
    options: dict[str, str] = {}

    def __str__(self) -> str:
        if self.version:
            return f"{self.name}=={self.version}"
        options = "&".join(f"{name}={value}" for name, value in self.options.items())
        parts = "?".join(part for part in (self.location, options) if part)
        return f"{self.name}:{parts}" if parts else self.name


class RuntimeVersions(FrozenStruct, frozen=True, kw_only=True):
    """The versions of a runtime that a PEP 440 specifier, such as ">=2.0", matches."""

    name: str
    specifier: str

    def __str__(self) -> str:
        return f"{self.name}{self.specifier}"


class MetricChoice(FrozenStruct, frozen=True):
    """A metric: a name of `edgeconv.plugins.METRICS`, or a function of the user's in a module.

    The function is called with (outputs, labels): arrays (n, ...) by output name, strings as
    objects that are bytes, and an array (n, ...) or None. It returns one number a sample. With the
    attribute `higher_is_better = False` less is better.
    """

    name: str
    module: str = ""

    def __str__(self) -> str:
        return f"{self.module}:{self.name}" if self.module else self.name


TOP1 = MetricChoice("top1")


class Measuring(FrozenStruct, frozen=True, kw_only=True):
    """How to measure: `rounds` processes per model in turn, each timed as `timing` says.

    `runtimes`: where; without one that runs .tflite files, LiteRT does. `versions`: those that
    every file is run in too, to see where it is right. `npus`: those that every file is compiled
    for, which gives estimates and no answers. `accelerator`, `python` and `binary` are for
    the runtimes that know them. `threads` is the interpreter's. `metrics`: none takes top1, where
    there are labels. `output`: the one that labels are for, None for the only one. `profile` and
    `layers`: the time of each operator, and the error of each layer, too. `every`: the
    period in seconds at which invokes are timed too; `cold`: the number of fresh processes in which
    load and first invoke are. Without `is_timed` every model is run only to see that it does, in
    one round, and there are no times and no memory.
    """

    rounds: int = 3
    timing: Timing = Timing()
    every: float | None = None
    cold: int | None = None
    is_timed: bool = True
    runtimes: tuple[RuntimeChoice, ...] = ()
    versions: RuntimeVersions | None = None
    npus: tuple[NpuChoice, ...] = ()
    accelerator: Accelerator = "interpreter"
    python: str = ""
    binary: str = ""
    threads: int = 1
    metrics: tuple[MetricChoice, ...] = ()
    output: str | None = None
    profile: bool = False
    layers: bool = False
    title: str = ""
