"""How to measure, and one measuring at work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from edgeconv.runtimes.interface import Accelerator, Settings, Timing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edgeconv.measure.sampled import Sampled
    from edgeconv.types import Execution


class Measuring(msgspec.Struct, frozen=True, kw_only=True):
    """How to measure: `rounds` processes per model in turn, each timed as `timing` says.

    `runtimes`: where, as `--runtime` names them; without one that runs .tflite files, LiteRT
    does. `accelerator`, `python` and `binary` are for the runtimes that know them. `threads` is
    the interpreter's. `metrics`: names, or functions as module:function; none takes top1, where
    there are labels. `output`: the one that labels are for, None for the only one. `profile`
    and `layers`: the time of each operator, and the error of each layer, too. `serving_warmup`: so
    many of the samples are written into the trained SavedModel as requests that TensorFlow
    Serving warms up with. Without `is_timed` every model is run only to see that it does, in one
    round, and there are no times and no memory.
    """

    rounds: int = 3
    timing: Timing = Timing()
    is_timed: bool = True
    runtimes: tuple[str, ...] = ()
    accelerator: Accelerator = "interpreter"
    python: str = ""
    binary: str = ""
    threads: int = 1
    metrics: tuple[str, ...] = ()
    output: str | None = None
    profile: bool = False
    layers: bool = False
    serving_warmup: int = 0
    title: str = ""


@dataclass(frozen=True)
class Bench:
    """One measuring at work: the samples, what to do with them, and whom to tell."""

    samples: Sampled
    measuring: Measuring
    execution: Execution
    scratch: Path
    on_progress: Callable[[str], None]

    def settings(self) -> Settings:
        """What the runtimes are told."""
        return Settings(
            scratch=self.scratch,
            threads=self.measuring.threads,
            accelerator=self.measuring.accelerator,
            python=self.measuring.python,
            binary=self.measuring.binary,
            allowance=self.execution.allowance,
            on_progress=self.on_progress,
        )
