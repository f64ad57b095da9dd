"""How to measure."""

from __future__ import annotations

import re
from typing import Literal

from edgeconv.types.errors import UsageError, unknown_name
from edgeconv.types.model import FrozenStruct

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
    objects that are bytes, and an array (n, ...) or None, or arrays by output where these have
    labels. It returns one number a sample. With the attribute `higher_is_better = False` less is
    better.
    """

    name: str
    module: str = ""

    def __str__(self) -> str:
        return f"{self.module}:{self.name}" if self.module else self.name


TOP1, MAE = MetricChoice("top1"), MetricChoice("mae")


class Measuring(FrozenStruct, frozen=True, kw_only=True):
    """How to measure: `rounds` processes per model in turn, each timed as `timing` says.

    `runtimes`: where; without one that runs .tflite files, LiteRT does. `versions`: those that
    every file is run in too, to see where it is right. `npus`: those that every file is compiled
    for, which gives estimates and no answers. `accelerator`, `python` and `binary` are for
    the runtimes that know them. `threads` is the interpreter's. `metrics`: none takes top1, where
    there are labels, or mae, by what these are. `output`: the one that labels are for, None for the
    only one, or for each that has labels of its own. `profile` and `layers`: the time of each
    operator, and the error of each layer, too. `every`: the period in seconds at which invokes are
    timed too; `cold`: the number of fresh processes in which load and first invoke are. Without
    `is_timed` every model is run only to see that it does, in one round, and there are no times and
    no memory.
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


class NpuChoice(FrozenStruct, frozen=True, kw_only=True):
    """An NPU of Arm's Ethos-U series, such as "ethos-u55-128", in a chip.

    `system` and `memory` name the system configuration and the memory mode of Vela's file of
    configurations, "" for those that Vela takes for this NPU.
    """

    accelerator: str
    system: str = ""
    memory: str = ""

    def __str__(self) -> str:
        named = {"system": self.system, "memory": self.memory}
        options = "&".join(f"{name}={value}" for name, value in named.items() if value)
        return f"{self.accelerator}?{options}" if options else self.accelerator


class NpuLeft(FrozenStruct, frozen=True, kw_only=True):
    """Operators of one kind that stay on the processor; `reason` is the compiler's first, or ""."""

    operator: str
    count: int
    reason: str = ""


class NpuEstimate(FrozenStruct, frozen=True, kw_only=True):
    """What Vela says of one file on one NPU.

    `npu` is the NPU as it was chosen; `system`, `memory` and `clock_hz` are of the configuration
    that was compiled for. `operators` are those of the file, and `on_npu` those of them that its
    compiled form computes on the NPU. `macs` are the multiplications of one invoke, with their
    additions, and `macs_on_npu` those of the operators on the NPU. `sram_bytes`, `dram_bytes` and
    `flash_bytes` are what the part on the NPU takes. `latency_us` is its time, without the
    operators that stay on the processor: None where the NPU computes none. `left` are those
    operators. `compiler` is Vela with its version. `error` is set, and the rest is empty, where it
    could not compile the file.
    """

    npu: str
    compiler: str
    system: str = ""
    memory: str = ""
    clock_hz: float | None = None
    operators: int = 0
    on_npu: int = 0
    macs: int = 0
    macs_on_npu: int = 0
    sram_bytes: int | None = None
    dram_bytes: int | None = None
    flash_bytes: int | None = None
    latency_us: float | None = None
    left: tuple[NpuLeft, ...] = ()
    error: str = ""

    @property
    def operator_share(self) -> float | None:
        """The share of the operators that is on the NPU, 0 to 1; None without any."""
        return self.on_npu / self.operators if self.operators else None

    @property
    def work_share(self) -> float | None:
        """The share of the multiplications that is on the NPU, 0 to 1; None without any."""
        return self.macs_on_npu / self.macs if self.macs else None

    @property
    def whole_latency_us(self) -> float | None:
        """The time of an invoke, None where multiplications stay on the processor."""
        return self.latency_us if self.macs_on_npu == self.macs else None


# What Vela 5.2 compiles for, by the number of multiplications in a cycle.
ACCELERATORS = (
    *(f"ethos-u55-{macs}" for macs in (32, 64, 128, 256)),
    *(f"ethos-u65-{macs}" for macs in (256, 512)),
    *(f"ethos-u85-{macs}" for macs in (128, 256, 512, 1024, 2048)),
)
_OPTIONS = ("system", "memory")
# Vela's own defaults, by series: the system configuration and the memory mode of Arm/vela.ini.
_DEFAULTS = {
    "ethos-u55": ("Ethos_U55_High_End_Embedded", "Shared_Sram"),
    "ethos-u65": ("Ethos_U65_Client_Server", "Dedicated_Sram_384KB"),
    "ethos-u85": ("Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram_384KB"),
}
# What follows --system-config on a command line, and is a section of a file there.
_NAME = r"[A-Za-z0-9][\w.-]*"


def parse_npu(text: str) -> NpuChoice:
    """The NPU in NAME or NAME?system=NAME&memory=NAME. Raises `UsageError`."""
    accelerator, mark, written = text.strip().partition("?")
    if accelerator not in ACCELERATORS:
        raise unknown_name("NPU", accelerator, ACCELERATORS)
    options = {}
    for part in written.split("&") if mark else ():
        name, _, value = part.partition("=")
        if name not in _OPTIONS:
            raise unknown_name("option of an NPU", name, _OPTIONS)
        if not re.fullmatch(_NAME, value):
            raise UsageError(
                f"the option {name} of {accelerator} is {value!r}, which is not a name that Vela "
                "has",
                hint="`vela --list-configs Arm/vela.ini` lists them, as in "
                f"{accelerator}?memory=Shared_Sram",
            )
        _refuse_other_series(accelerator, name, value)
        options[name] = value
    return NpuChoice(accelerator=accelerator, **options)


def _refuse_other_series(accelerator: str, name: str, value: str) -> None:
    """Vela takes the chips of another NPU without a word."""
    series = accelerator.rpartition("-")[0]
    own = series.replace("ethos-u", "Ethos_U")
    if name == "system" and value.startswith("Ethos_U") and not value.startswith(own):
        raise UsageError(
            f"the system configuration {value} is for a chip with an NPU other than {accelerator}",
            hint=f"give one that begins with {own}, such as {_DEFAULTS[series][0]}",
        )


def configuration(npu: NpuChoice) -> tuple[str, str]:
    """The system configuration and the memory mode that a choice means."""
    system, memory = _DEFAULTS[npu.accelerator.rpartition("-")[0]]
    return npu.system or system, npu.memory or memory
