"""Arm's compiler Vela, which reads foreign bytes and may crash: in a confined child only.

It is called as its command is, and its tables are read; nothing else of it is used.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Mapping
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.model.tflite import with_weights_inside
from edgeconv.model.tflite.flatbuffer import is_custom, operator_name, operators_of, read
from edgeconv.model.tflite.layers import macs
from edgeconv.runtimes.gpu_delegate import printed
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task, task_directory
from edgeconv.types import Allowance, NpuChoice, NpuEstimate, NpuLeft
from edgeconv.types.errors import InputRefused, ToolFailed
from edgeconv.types.measuring import configuration

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT


_DISTRIBUTION = "ethos-u-vela"
_CONFIGURATIONS = "Arm/vela.ini"
_TIMEOUT_S = 600.0
_MEMORY_BYTES = 4 << 30
_COMPILED = "model_vela.tflite"
_MOST_CHARACTERS = 400


class VelaJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the child compiles: a file, for an NPU."""

    model: str
    npu: NpuChoice


class NpuFile(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate for a file, and the file that runs on the NPU."""

    estimate: NpuEstimate
    content: bytes


def refuse_missing() -> None:
    """Raise `ToolFailed` where Vela is not installed."""
    if util.find_spec("ethosu") is None:
        raise ToolFailed(
            f"estimates for an NPU need Arm's compiler Vela: {_DISTRIBUTION} is not installed",
            hint="pip install 'edgeconv[ethos-u]'",
        )


def compiler() -> str:
    """Vela with its version. Raises `ToolFailed` where it is not installed."""
    refuse_missing()
    return f"{_DISTRIBUTION} {metadata.version(_DISTRIBUTION)}"


def compile_for(
    npu: NpuChoice, model: Path, *, scratch: Path, allowance: Allowance = Allowance()
) -> NpuFile:
    """Compile a .tflite for an NPU, in a child.

    Within `allowance`, it has ten minutes and 4 GiB at most. Raises `ToolFailed`, also where Vela
    ends without an answer or is not installed, and `InputRefused` for a malformed file.
    """
    refuse_missing()
    limits = Allowance(
        timeout_s=min(allowance.timeout_s, _TIMEOUT_S),
        memory_bytes=min(allowance.memory_bytes or _MEMORY_BYTES, _MEMORY_BYTES),
    )
    with start_task(
        run_vela,
        VelaJob(model=str(model.absolute()), npu=npu),
        label=f"compiling {model.name} for {npu}",
        scratch=scratch,
        access=Access(reads=(model.absolute(),)),
        allowance=limits,
    ) as task:
        estimate = task.result()
        return NpuFile(estimate=estimate, content=(task.directory / _COMPILED).read_bytes())


def run_vela(job: VelaJob) -> NpuEstimate:
    """Compile a file, in a child, into its directory. Raises as `compile_for`."""
    directory = task_directory()
    model = directory / "model.tflite"
    content = Path(job.model).read_bytes()
    read(content, where=job.model)
    # Vela takes weights that are outside of the flatbuffer for none.
    model.write_bytes(with_weights_inside(content))
    with printed() as log:
        _call([*_arguments(job.npu), "--output-dir", str(directory), str(model)])
        reasons = log()
    tables = sorted(directory.glob("model_summary_*.csv"))
    if len(tables) != 1:
        raise ToolFailed("Vela wrote no summary")
    return estimate_of(
        str(job.npu),
        compiler(),
        tables[0].read_text(encoding="utf-8"),
        reasons,
        model.read_bytes(),
        (directory / _COMPILED).read_bytes(),
    )


def _arguments(npu: NpuChoice) -> list[str]:
    system, memory = configuration(npu)
    chip = ["--config", _CONFIGURATIONS, "--system-config", system, "--memory-mode", memory]
    return ["--accelerator-config", npu.accelerator, *chip]


def _call(arguments: list[str]) -> None:
    """Vela's command. Raises `ToolFailed` with what it says, `InputRefused` for its input."""
    from ethosu.vela.errors import InputFileError, VelaError
    from ethosu.vela.vela import main

    try:
        code = main(arguments)
    except InputFileError as error:
        raise InputRefused(f"Vela cannot read it: {_short(error)}") from error
    except SystemExit as error:
        code = error.code
    except (VelaError, ArithmeticError, LookupError, OSError, RuntimeError, ValueError) as error:
        raise ToolFailed(f"Vela cannot compile it: {_short(error)}") from error
    if code:
        raise ToolFailed(f"Vela ended with exit code {code}")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:_MOST_CHARACTERS] or type(error).__name__


# What Vela writes: a table of one line, and why operators stay on the processor.

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
            "it is already compiled for an NPU", hint="give the file that it was compiled from"
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
