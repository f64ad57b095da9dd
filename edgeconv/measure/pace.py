"""Invokes in a fixed period and cold starts: how they are timed, and where they cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.runtimes.interface import Runtime
    from edgeconv.types import Measuring, Timing

# A slow pace has more seconds than `--seconds`, for enough samples.
_LEAST_PERIODS = 20


def paced_timing(measuring: Measuring) -> Timing:
    """The timing of invokes in the period of `measuring.every`, which is not None."""
    assert measuring.every is not None
    seconds = max(measuring.timing.seconds, _LEAST_PERIODS * measuring.every)
    return msgspec.structs.replace(measuring.timing, every_seconds=measuring.every, seconds=seconds)


def check_pace(measuring: Measuring, runtimes: Mapping[str, Runtime]) -> None:
    """Raise `UsageError` for a period or cold starts where a runtime has none."""
    options = {"--every": measuring.every, "--cold": measuring.cold}
    names = [option for option, value in options.items() if value is not None]
    if not (names and measuring.is_timed):
        return
    for text, runtime in runtimes.items():
        if not runtime.has_pace:
            why = (
                "edgeconv neither starts its process nor each invoke"
                if runtime.has_times
                else "it runs a device's kernels on this processor, and has no times"
            )
            raise UsageError(
                f"{text} cannot be timed with {' and '.join(names)}: {why}",
                hint=f"remove {' and '.join(names)}, or --runtime {text}; litert, "
                "tflite-runtime==VERSION, tensorflow==VERSION and ssh:USER@HOST can",
            )
