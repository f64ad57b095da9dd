"""How to measure."""

from __future__ import annotations

from typing import Literal

from edgeconv.types.model import Noun

Accelerator = Literal["interpreter", "compiled"]


class Timing(Noun, frozen=True, kw_only=True):
    """How to time a model: invokes before it at least, timed invokes and seconds at most.

    The warm-up goes on, for `warmup_seconds` at most, until the times are stable.
    """

    warmup: int = 10
    warmup_seconds: float = 2.0
    repeats: int = 200
    seconds: float = 1.0


class Measuring(Noun, frozen=True, kw_only=True):
    """How to measure: `rounds` processes per model in turn, each timed as `timing` says.

    `runtimes`: where, as `--runtime` names them; without one that runs .tflite files, LiteRT
    does. `accelerator`, `python` and `binary` are for the runtimes that know them. `threads` is
    the interpreter's. `metrics`: names, or functions as module:function; none takes top1, where
    there are labels. `output`: the one that labels are for, None for the only one. `profile`
    and `layers`: the time of each operator, and the error of each layer, too. `serving_warmup`: the
    number of samples that are written into the trained SavedModel as requests that TensorFlow
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
