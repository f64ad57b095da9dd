"""How many samples an invoke takes when a model is evaluated: as many as change no bit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.errors import ToolFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.data import Samples
    from edgeconv.runtimes.interface import Model, Runtime, RuntimeSession

# Fewer samples than these are done before it is known whether more at once are quicker.
_WORTHWHILE = 256
_TRIED = 8
# Quick models spend their time between invokes, slow ones in them.
_WIDE, _WIDER = 8, 64
_QUICK_S = 0.0005
# Here nothing is saved but what is between invokes, a small part of slower ones than these.
_SLOW_S = 0.002
_GAIN = 0.95
_RUNS = 3


class Widened(NamedTuple):
    """A model with the batch that is best for it, and a session that has it loaded."""

    model: Model
    session: RuntimeSession


def widened(runtime: Runtime, model: Model, samples: Samples, count: int) -> Widened:
    """The model with several samples an invoke, where that gives the same bits and is quicker.

    It is tried on the first `samples`; `count` are to be run. A model of a fixed batch other
    than 1 keeps it, and one that does not take more at once. Raises `ToolFailed` where the
    model does not run at all.
    """
    session = runtime.start(model)
    if model.batch != 1 or count < _WORTHWHILE or samples.count < _TRIED:
        return Widened(model, session)
    some = {name: array[:_TRIED] for name, array in samples.arrays.items()}
    seconds = _seconds(session, some, runs=2) / _TRIED
    if seconds > _SLOW_S and not runtime.environment.place:
        return Widened(model, session)
    batch = _WIDER if seconds < _QUICK_S and samples.count >= _WIDER else _WIDE
    wide = _tried(runtime, msgspec.structs.replace(model, batch=batch), session, samples)
    if wide is None:
        return Widened(model, session)
    session.close()
    return wide


def _tried(
    runtime: Runtime, model: Model, plain: RuntimeSession, samples: Samples
) -> Widened | None:
    """The model with its batch, None where it fails, gives other bits, or is no quicker."""
    some = {name: array[: model.batch] for name, array in samples.arrays.items()}
    try:
        session = runtime.start(model)
    except ToolFailed:
        return None
    try:
        is_better = _are_equal(session.run(some), plain.run(some)) and (
            _seconds(session, some) < _GAIN * _seconds(plain, some)
        )
    except ToolFailed:
        is_better = False
    if is_better:
        return Widened(model, session)
    session.close()
    return None


def _are_equal(
    one: Mapping[str, NDArray[np.generic]], other: Mapping[str, NDArray[np.generic]]
) -> bool:
    return one.keys() == other.keys() and all(
        array.shape == other[name].shape and array.tobytes() == other[name].tobytes()
        for name, array in one.items()
    )


def _seconds(
    session: RuntimeSession, samples: Mapping[str, NDArray[np.generic]], runs: int = _RUNS
) -> float:
    """The shortest of a few runs: what else the machine does only makes them longer."""
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        session.run(samples)
        taken.append(time.perf_counter() - began)
    return min(taken)
