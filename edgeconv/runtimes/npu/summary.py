"""What Vela writes: a table of one line, and why operators stay on the processor."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from edgeconv.errors import ToolFailed
from edgeconv.tflite.flatbuffer import is_custom, operator_name, operators_of, read
from edgeconv.tflite.work import macs
from edgeconv.types import NpuEstimate, NpuLeft

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

# The custom operator that holds a part of the graph for the NPU.
NPU_OPERATOR = "ethos-u"
_KIBIBYTE = 1024
_REASON = re.compile(r"^Warning \(supported operators\) operator: (\w+),.*\nReason: (.+)$", re.M)


def estimate_of(
    npu: str, compiler: str, table: str, printed: str, before: bytes, after: bytes
) -> NpuEstimate:
    """The estimate for a file, `before` and `after` Vela compiled it, with what Vela wrote.

    Raises `ToolFailed` where `table` is not Vela's summary, `InputRefused` for a malformed file.
    """
    row = summary_row(table)
    original, compiled = read(before, where="the model"), read(after, where="Vela's file")
    left = [each for _, each in operators_of(compiled) if not _is_npu(compiled, each)]
    if any(_is_npu(original, each) for _, each in operators_of(original)):
        raise ToolFailed(
            "it is already compiled for an NPU",
            hint="give the file that it was compiled from",
        )
    work, kept = _work(original), _work(compiled)
    operators = sum(1 for _ in operators_of(original))
    on_npu = max(0, operators - len(left))
    seconds = _number(row, "inference_time")
    return NpuEstimate(
        npu=npu,
        compiler=compiler,
        system=row["system_config"],
        memory=row["memory_mode"],
        clock_hz=_number(row, "core_clock"),
        operators=operators,
        on_npu=on_npu,
        macs=work,
        macs_on_npu=max(0, work - kept),
        sram_bytes=_bytes(row, "sram"),
        dram_bytes=_bytes(row, "dram"),
        flash_bytes=_bytes(row, "on_chip_flash", "off_chip_flash"),
        latency_us=seconds * 1e6 if on_npu and seconds else None,
        left=_counted(compiled, left, printed),
    )


def summary_row(table: str) -> dict[str, str]:
    """The one line of Vela's summary, by heading. Raises `ToolFailed` where it is another table."""
    rows = list(csv.DictReader(io.StringIO(table)))
    known = {"system_config", "memory_mode", "inference_time", "sram_memory_used"}
    if len(rows) != 1 or not known <= rows[0].keys() or None in rows[0].values():
        raise ToolFailed(
            "Vela's summary does not have the form that Vela 5.2 writes",
            hint="pip install 'ethos-u-vela==5.2.0'",
        )
    return rows[0]


def reasons(printed: str) -> dict[str, str]:
    """Why operators are not for the NPU, the first reason for each kind of operator."""
    known: dict[str, str] = {}
    for operator, reason in _REASON.findall(printed):
        # The name of a tensor follows in brackets.
        known.setdefault(operator, reason.partition(" (")[0].strip())
    return known


def _is_npu(model: ModelT, operator: OperatorT) -> bool:
    return is_custom(model, operator) and operator_name(model, operator) == NPU_OPERATOR


def _work(model: ModelT) -> int:
    return sum(macs(model, graph, operator) for graph, operator in operators_of(model))


def _counted(model: ModelT, left: list[OperatorT], printed: str) -> tuple[NpuLeft, ...]:
    known = reasons(printed)
    counts = Counter(operator_name(model, operator) for operator in left)
    return tuple(
        NpuLeft(operator=name, count=count, reason=known.get(name, ""))
        for name, count in sorted(counts.items())
    )


def _number(row: Mapping[str, str], name: str) -> float | None:
    """A number of the table, None for one that is missing or not finite."""
    try:
        number = float(row.get(name) or "nan")
    except ValueError as error:
        raise ToolFailed(f"Vela's summary has {row[name]!r} as {name}") from error
    return number if math.isfinite(number) else None


def _bytes(row: Mapping[str, str], *kinds: str) -> int | None:
    """The memory of some kinds together, which the table has in KiB."""
    sizes = [_number(row, f"{kind}_memory_used") for kind in kinds]
    known = [size for size in sizes if size is not None]
    return round(sum(known) * _KIBIBYTE) if known else None
