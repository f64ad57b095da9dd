"""The texts that name an NPU: ethos-u55-128, ethos-u65-256?system=NAME&memory=NAME."""

from __future__ import annotations

import re

from edgeconv.types import NpuChoice
from edgeconv.types.errors import UsageError, unknown_name

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
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


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
        if not _NAME.fullmatch(value):
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
