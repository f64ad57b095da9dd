"""How to measure, and one measuring at work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from edgeconv.runtimes.local import Running, Target, Timing, start_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edgeconv.data import Samples
    from edgeconv.stages import Execution


class Measuring(msgspec.Struct, frozen=True, kw_only=True):
    """How to measure: `rounds` processes per model in turn, each timed as `timing` says.

    `threads` is the interpreter's; `output` the output that labels are for, None for the
    only one; `target` the runtime to measure on.
    """

    rounds: int = 3
    timing: Timing = Timing()
    target: Target = Target()
    threads: int = 1
    output: str | None = None
    title: str = ""


@dataclass(frozen=True)
class Bench:
    """One measuring at work: the samples, where they are stored, and whom to tell."""

    samples: Samples
    stored: Path
    batch: int
    measuring: Measuring
    execution: Execution
    scratch: Path
    on_progress: Callable[[str], None]


def start_model(run: Bench, file: Path, signature: str, timing: Timing | None) -> Running:
    """Start a .tflite on the stored samples: timed, or for all its outputs with None."""
    return start_run(
        file,
        run.stored,
        scratch=run.scratch,
        signature=signature or None,
        batch=run.batch,
        timing=timing,
        threads=run.measuring.threads,
        target=run.measuring.target,
        allowance=run.execution.allowance,
    )
