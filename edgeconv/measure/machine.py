"""The machine that a measurement belongs to, and how busy it is meanwhile.

Linux has that in files, which may be missing in a container or on another system: what is unknown
is None or "".
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from edgeconv.plugins import npu_compiler
from edgeconv.system.store import tool_versions
from edgeconv.types import Conditions, Environment, Measuring

_PROC = Path("/proc")
_CPUS = Path("/sys/devices/system/cpu")

# Beyond these a median moves by more than most differences between models.
BUSY = 0.1
STEAL = 0.02
_STEADY_GOVERNORS = ("performance", "")


def compiler_version(measuring: Measuring) -> str:
    """The compiler whose estimates a bench has, with its version; "" for one without an NPU.

    Raises `ToolFailed` where it is not installed.
    """
    if not measuring.npus:
        return ""
    version: str = npu_compiler().compiler()
    return version


class LoadMonitor:
    """The load of the machine from entering to leaving; then it is in `conditions`.

    The time of this process and of children that it has waited for counts as measuring, all else
    as other processes: start and end what is measured inside. `proc` and `cpus` are the system's
    directories.
    """

    conditions = Conditions()

    def __init__(self, proc: Path = _PROC, cpus: Path = _CPUS) -> None:
        self._proc = proc
        self._cpus = cpus

    def __enter__(self) -> LoadMonitor:
        self._load = _load(self._proc)
        self._frequencies = _frequencies_mhz(self._cpus, self._proc)
        self._begin = _cpu_seconds(self._proc)
        return self

    def __exit__(self, *_: object) -> None:
        steal, busy = _shares(self._begin, _cpu_seconds(self._proc))
        frequencies = [*self._frequencies, *_frequencies_mhz(self._cpus, self._proc)]
        self.conditions = Conditions(
            load_before=self._load,
            load_after=_load(self._proc),
            steal=steal,
            busy=busy,
            governor=_governor(self._cpus),
            frequency_mhz=(min(frequencies), max(frequencies)) if frequencies else None,
        )


def load_warnings(conditions: Conditions) -> tuple[str, ...]:
    """What may have distorted the times, one sentence each."""
    return tuple(_load_warnings(conditions))


def _load_warnings(conditions: Conditions) -> Iterator[str]:
    if conditions.busy is not None and conditions.busy > BUSY:
        yield (
            f"other processes used {conditions.busy:.0%} of the processors while the times were "
            "taken: they are likely too long, and differ from run to run"
        )
    if conditions.steal is not None and conditions.steal > STEAL:
        yield (
            f"the host of this virtual machine took {conditions.steal:.0%} of the processors' "
            "time: the times are too long, especially the slow ones"
        )
    if conditions.governor not in _STEADY_GOVERNORS:
        yield (
            f"the processors' frequency governor is {conditions.governor!r}: the clock follows the "
            "load, and so do the times; 'performance' is steadier"
        )


class _CpuSeconds(NamedTuple):
    """Processor seconds of all processors so far, without guests."""

    total: float
    idle: float
    steal: float
    own: float


def _cpu_seconds(proc: Path) -> _CpuSeconds | None:
    """None if the system does not have it.

    The fields of the first line of /proc/stat are in proc(5): user, nice, system, idle, iowait,
    irq, softirq, steal; the guests' time, which follows, is included in the first two.
    """
    try:
        line = (proc / "stat").read_text(encoding="ascii").splitlines()[0]
        ticks = [int(field) for field in line.split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    if len(ticks) < 8:
        return None
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    seconds = [tick / os.sysconf("SC_CLK_TCK") for tick in ticks]
    return _CpuSeconds(sum(seconds), seconds[3] + seconds[4], seconds[7], own)


def _shares(
    begin: _CpuSeconds | None, end: _CpuSeconds | None
) -> tuple[float | None, float | None]:
    """The fractions of all processors' time (stolen, used by others) in between."""
    if begin is None or end is None or end.total <= begin.total:
        return None, None
    total = end.total - begin.total
    steal = end.steal - begin.steal
    others = total - (end.idle - begin.idle) - steal - (end.own - begin.own)
    # Ticks and a process's own clock are rounded differently.
    return max(0.0, steal / total), min(1.0, max(0.0, others / total))


def _load(proc: Path) -> float | None:
    try:
        return float((proc / "loadavg").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _governor(cpus: Path) -> str:
    """The governors of all processors, each once, such as "performance"."""
    governors = set()
    for file in sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")):
        with contextlib.suppress(OSError):
            governors.add(file.read_text(encoding="ascii").strip())
    return ", ".join(sorted(governors))


def _frequencies_mhz(cpus: Path, proc: Path) -> list[float]:
    """The clock of each processor now; a virtual machine often has it in /proc/cpuinfo only."""
    frequencies = []
    for file in sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq")):
        with contextlib.suppress(OSError, ValueError):
            frequencies.append(int(file.read_text(encoding="ascii")) / 1000)
    return frequencies or _cpuinfo_mhz(proc)


def _cpuinfo_mhz(proc: Path) -> list[float]:
    try:
        lines = (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    except (OSError, ValueError):
        return []


def environment() -> Environment:
    """This machine, and the versions of the tools on it."""
    return Environment(
        machine=platform.machine(),
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        tools=tool_versions(),
    )


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                return value.strip()
    return platform.processor() or "unknown"
