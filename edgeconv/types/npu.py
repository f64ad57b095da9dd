"""What a compiler says of a model on an NPU: an estimate, never a measurement."""

from __future__ import annotations

from edgeconv.types.model import FrozenStruct


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
