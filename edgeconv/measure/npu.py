"""What an NPU would compute of each file, next to what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from edgeconv.plugins import npu_compiler
from edgeconv.types import NpuEstimate
from edgeconv.types.errors import InputRefused, ToolFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.measure.model_files import ModelFile
    from edgeconv.types import Measurement, Measuring, NpuChoice

Estimates = dict[str, tuple[NpuEstimate, ...]]


def compiler_version(measuring: Measuring) -> str:
    """The compiler whose estimates a bench has, with its version; "" for one without an NPU.

    Raises `ToolFailed` where it is not installed.
    """
    if not measuring.npus:
        return ""
    version: str = npu_compiler().compiler()
    return version


def npu_estimates(run: BenchRun, model_files: Sequence[ModelFile]) -> Estimates:
    """The estimates of each file for each of `run.measuring.npus`, by the hash of the file.

    A file that Vela cannot compile has the reason in its `error`. Raises `ToolFailed` where Vela is
    not installed.
    """
    version = compiler_version(run.measuring)
    return {
        file.sha256: tuple(_estimate(run, file, npu, version) for npu in run.measuring.npus)
        for file in model_files
        if version
    }


def with_npu(rows: Iterable[Measurement], estimates: Estimates) -> tuple[Measurement, ...]:
    """The rows, each with the estimates of its file."""
    return tuple(structs.replace(row, npu=estimates.get(row.sha256, ())) for row in rows)


def _estimate(run: BenchRun, file: ModelFile, npu: NpuChoice, version: str) -> NpuEstimate:
    run.on_progress(f"{file.name} on {npu}")
    allowance = run.execution.allowance
    try:
        compiled = npu_compiler().compile_for(
            npu, file.file, scratch=run.scratch, allowance=allowance
        )
    except (InputRefused, ToolFailed) as error:
        return NpuEstimate(npu=str(npu), compiler=version, error=error.message)
    estimate: NpuEstimate = compiled.estimate
    return estimate
