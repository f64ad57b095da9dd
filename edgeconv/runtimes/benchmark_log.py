"""What TensorFlow Lite's benchmark_model prints.

It prints how long it took to load the model, a line of statistics of its warm-up and one of the
timed invokes, in microseconds, and a summary. Single times are not printed, except for a single
invoke. Older versions print no median and no memory.
"""

from __future__ import annotations

import re

import msgspec

from edgeconv.errors import ToolFailed

_STATISTICS = re.compile(r"(?:INFO: )?count=(\d+)\b(.*)")
_VALUE = re.compile(r"(\w+)=([-+.\de]+)")
_SUMMED_UP = re.compile(
    r"Inference timings in us: Init: ([.\de+]+), First inference: ([.\de+]+), "
    r"Warmup \(avg\): [.\de+]+, Inference \(avg\): [.\de+]+"
)
# Until 2019.
_SUMMED_UP_BEFORE = re.compile(r"Average inference timings in us: Warmup: .*?Init: ([.\de+]+),")
_MEMORY = re.compile(
    r"(?:Memory footprint delta from the start of the tool|Peak memory footprint) \(MB\): "
    r"init=[.\de+-]+ overall=([.\de+-]+)"
)
_COMPLAINT = re.compile(r"ERROR|FATAL|[Ff]ailed|not found|Permission denied|[Ss]egmentation|Abort")
_MOST_COMPLAINTS = 8


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of `count` invokes, in microseconds. `p5`, `median` and `p95` are None in older logs."""

    count: int
    first: float
    curr: float
    min: float
    max: float
    avg: float
    std: float = 0.0
    p5: float | None = None
    median: float | None = None
    p95: float | None = None


class BenchmarkLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one run of benchmark_model; `memory_bytes` is the process's growth, or None."""

    load_us: float
    first_us: float
    warm_up: Statistics
    timed: Statistics
    memory_bytes: int | None = None


def parse_log(text: str, what: str) -> BenchmarkLog:
    """The results in a log. Raises `ToolFailed`, which names `what` ran, where there are none."""
    lines = [match for line in text.splitlines() if (match := _STATISTICS.fullmatch(line.strip()))]
    summed_up = _SUMMED_UP.search(text) or _SUMMED_UP_BEFORE.search(text)
    if summed_up is None or len(lines) < 2 or lines[-1][1] == "0":
        raise ToolFailed(
            f"{what} failed: benchmark_model printed no times\n{complaints(text)}".rstrip()
        )
    # Without a warm-up, its statistics are of no invoke.
    warm_up, timed = (_statistics(match) for match in lines[:2])
    memory = _MEMORY.search(text)
    first_us = summed_up[2] if summed_up.re is _SUMMED_UP else warm_up.first
    return BenchmarkLog(
        load_us=float(summed_up[1]),
        first_us=float(first_us) if warm_up.count else timed.first,
        warm_up=warm_up,
        timed=timed,
        memory_bytes=max(0, round(float(memory[1]) * 2**20)) if memory else None,
    )


def _statistics(match: re.Match[str]) -> Statistics:
    values = {name: float(value) for name, value in _VALUE.findall(match[2])}
    if "first" not in values:
        # All were equal, or there was only one.
        same = values.get("curr", 0.0)
        values = {**dict.fromkeys(("first", "min", "max", "avg"), same), "curr": same, **values}
    return msgspec.convert({**values, "count": int(match[1])}, Statistics)


def complaints(text: str) -> str:
    """The lines of a log that look like errors, or else its last lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    wrong = [line for line in lines if _COMPLAINT.search(line)]
    return "\n".join(f"  | {line}" for line in (wrong or lines)[-_MOST_COMPLAINTS:])
