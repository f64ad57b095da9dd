"""One measuring at work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeconv.runtimes.interface import RuntimeSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edgeconv.measure.evaluation_set import EvaluationSet
    from edgeconv.types import Execution, Measuring


@dataclass(frozen=True)
class BenchRun:
    """One measuring at work: the samples, what to do with them, and whom to tell.

    `reads` are directories of models that one process is to run one after the other.
    """

    samples: EvaluationSet
    measuring: Measuring
    execution: Execution
    scratch: Path
    on_progress: Callable[[str], None]
    reads: tuple[Path, ...] = ()

    def settings(self) -> RuntimeSettings:
        """What the runtimes are told."""
        return RuntimeSettings(
            scratch=self.scratch,
            threads=self.measuring.threads,
            accelerator=self.measuring.accelerator,
            python=self.measuring.python,
            binary=self.measuring.binary,
            allowance=self.execution.allowance,
            reads=self.reads,
            on_progress=self.on_progress,
        )
