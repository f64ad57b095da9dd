"""Arm's compiler Vela, which reads foreign bytes and may crash: in a confined child only.

It is called as its command is, and its tables are read; nothing else of it is used.
"""

from __future__ import annotations

from importlib import metadata, util
from pathlib import Path

import msgspec

from edgeconv.errors import InputRefused, ToolFailed
from edgeconv.processes.sandbox import Access
from edgeconv.processes.tasks import start_task, task_directory
from edgeconv.runtimes.gpu_delegate import printed
from edgeconv.runtimes.npu.choice import configuration
from edgeconv.runtimes.npu.summary import estimate_of
from edgeconv.tflite import with_weights_inside
from edgeconv.tflite.flatbuffer import read
from edgeconv.types import Allowance, NpuChoice, NpuEstimate

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
