"""Whole processes in turn: wall seconds and the peak resident memory of all they start.

Memory is read on Linux only.
"""

import compileall
import contextlib
import datetime
import json
import os
import select
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import edgeconv
from edgeconv.measure.machine import environment

RESULTS = Path(__file__).parent / "results"
_SAMPLE_S = 0.02
# Reading the memory of many processes takes long: no more than this share of a core goes into it.
_SAMPLING_SHARE = 0.05


@dataclass
class Contender:
    """A command line to measure, and what to do before each run of it.

    Where `has_memory` is false nothing but its time is read, which leaves it all of the cores.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    before: Callable[[], None] = lambda: None
    has_memory: bool = True
    wall_s: list[float] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)
    pss_bytes: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Run it once; a command that fails ends the benchmark."""
        self.before()
        started = time.perf_counter()
        process = psutil.Popen(
            self.command,
            env=dict(self.environment),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        resident = proportional = 0
        wait_s = _SAMPLE_S if self.has_memory else None
        end = os.pidfd_open(process.pid)
        try:
            while not select.select([end], [], [], wait_s)[0]:
                sampling = time.process_time()
                now = _memory_bytes(process)
                resident, proportional = max(resident, now[0]), max(proportional, now[1])
                wait_s = max(_SAMPLE_S, (time.process_time() - sampling) / _SAMPLING_SHARE)
            wall = time.perf_counter() - started
        finally:
            os.close(end)
        process.wait()
        if process.returncode:
            raise SystemExit(f"{self.name} ended with exit code {process.returncode}")
        self.wall_s.append(wall)
        if self.has_memory:
            self.rss_bytes.append(resident)
            self.pss_bytes.append(proportional)

    def record(self) -> dict[str, object]:
        """Medians, and every single figure."""
        return {
            "median_wall_s": round(statistics.median(self.wall_s), 3),
            "median_peak_rss_mib": _mib(statistics.median(self.rss_bytes)),
            "median_peak_pss_mib": _mib(statistics.median(self.pss_bytes)),
            "wall_s": [round(value, 3) for value in self.wall_s],
            "peak_rss_mib": [_mib(value) for value in self.rss_bytes],
            "peak_pss_mib": [_mib(value) for value in self.pss_bytes],
        }


def _memory_bytes(process: psutil.Process) -> tuple[int, int]:
    """Resident memory of a process and all its descendants: sum of sets, and shared pages once."""
    resident = proportional = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                info = one.memory_full_info()
                resident += info.rss
                proportional += info.pss
    return resident, proportional


def _mib(value: float) -> float:
    return round(value / 2**20, 1)


def in_rounds(contenders: Sequence[Contender], repeats: int) -> None:
    """Run all of them once per round, so that a drift of the machine hits all alike.

    edgeconv is compiled to bytecode first, as pip does when it installs what it is compared with.
    """
    compileall.compile_dir(Path(edgeconv.__file__).parent, quiet=1)
    for number in range(repeats):
        for contender in contenders:
            print(f"round {number + 1}/{repeats}: {contender.name}", flush=True)
            contender.run()


def cpu_seconds() -> float:
    """CPU seconds of this process and of all that it has started, ended ones included."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def median_wall(contender: Contender) -> float:
    """The median wall time of a contender, in seconds."""
    return statistics.median(contender.wall_s)


def recorded(name: str) -> dict[str, Any]:
    """The result as it was recorded before; empty if not on this machine with these versions."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return {}
    before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    now = environment()
    return before if (before["cpu"], before["tools"]) == (now.cpu, now.tools) else {}


def write_result(name: str, content: Mapping[str, object]) -> Path:
    """Record a result with its date, machine and versions."""
    made_by = environment()
    record = {
        "benchmark": name,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "cpu": made_by.cpu,
        "cores": made_by.cores,
        "python": made_by.python,
        "tools": made_by.tools,
        **content,
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return path
