"""How far what a made file answers is from what the float graph answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.errors import ToolFailed
from edgeconv.quantize.engine import ENGINE_ERRORS, reason
from edgeconv.statistics.signal import snr_db
from edgeconv.types import MAX_SNR_DB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from edgeconv.quantize.calibrate import Feed

    # By signature and output, (n, …).
    Answers = dict[tuple[str, str], NDArray[np.float64]]


def answers(model: bytes, feeds: Mapping[str, Feed], *, threads: int) -> Answers:
    """What the model gives for all samples, as the real numbers that its integers stand for.

    Outputs of strings are left out: they are no numbers that could be nearer or farther.
    Raises `ToolFailed` where it does not run.
    """
    from ai_edge_litert.interpreter import Interpreter

    found: Answers = {}
    try:
        interpreter = Interpreter(model_content=model, num_threads=threads)
        for key, feed in feeds.items():
            found |= _answers_of(interpreter, key, feed)
    except ENGINE_ERRORS as error:
        raise ToolFailed(f"the model made does not run: {reason(error)}") from error
    return found


def _answers_of(interpreter: Any, key: str, feed: Feed) -> Answers:
    runner = interpreter.get_signature_runner(key)
    inputs, outputs = runner.get_input_details(), runner.get_output_details()
    numbers = [name for name in outputs if np.dtype(outputs[name]["dtype"]).kind not in "SO"]
    parts: dict[str, list[NDArray[np.float64]]] = {name: [] for name in numbers}
    for batch in feed:
        given = {name: _stored(value, inputs[name]) for name, value in batch.items()}
        made = runner(**given)
        for name in numbers:
            parts[name].append(_real(made[name], outputs[name]))
        # Afterwards: before its first run a model has no place for them yet.
        interpreter.reset_all_variables()
    return {(key, name): np.concatenate(values) for name, values in parts.items()}


def _stored(values: NDArray[Any], details: Mapping[str, Any]) -> NDArray[Any]:
    scale, zero_point = details["quantization"]
    dtype = details["dtype"]
    if not scale or values.dtype == dtype:
        return values
    limits = np.iinfo(dtype)
    steps = np.rint(values / scale) + zero_point
    return np.asarray(np.clip(steps, limits.min, limits.max), dtype)


def _real(values: NDArray[Any], details: Mapping[str, Any]) -> NDArray[np.float64]:
    scale, zero_point = details["quantization"]
    real = np.asarray(values, np.float64)
    return (real - zero_point) * scale if scale else real


def lowest_snr_db(expected: Answers, actual: Answers) -> float:
    """The signal-to-noise ratio of the output that has the lowest, in decibels."""
    with np.errstate(invalid="ignore", over="ignore"):
        return min(
            (_snr_db(want, actual[output]) for output, want in expected.items()),
            default=MAX_SNR_DB,
        )


def lowest_agreement(expected: Answers, actual: Answers) -> float | None:
    """The share of rows with the same largest value, of the output that has the lowest.

    None where no output has rows of several values.
    """
    shares = [
        float(np.mean(want.argmax(axis=-1) == actual[output].argmax(axis=-1)))
        for output, want in expected.items()
        if want.ndim > 1 and want.shape[-1] > 1
    ]
    return min(shares, default=None)


def _snr_db(want: NDArray[np.float64], have: NDArray[np.float64]) -> float:
    return snr_db(float(np.var(want)), float(np.mean((have - want) ** 2)))
