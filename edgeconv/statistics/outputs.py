"""How far the outputs of a model are from those of another for the same samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.errors import VerificationFailed
from edgeconv.statistics.signal import ValueRange, snr_db
from edgeconv.types import MAX_SNR_DB, OutputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    Outputs = Mapping[str, NDArray[np.generic]]

_COSINE_EPSILON = 1e-30


def output_errors(
    reference: Outputs, actual: Outputs, steps: Mapping[str, float]
) -> tuple[OutputError, ...]:
    """How far `actual` is from `reference`, output by output, both (n, …) over n samples.

    `steps` are the quantization steps of those outputs of `actual` that have one.
    Raises `VerificationFailed` where the outputs differ in names or shapes.
    """
    if set(reference) != set(actual):
        raise VerificationFailed(
            f"the model has the outputs {', '.join(sorted(actual))} instead of "
            f"{', '.join(sorted(reference))}"
        )
    return tuple(
        _output_error(name, reference[name], actual[name], steps.get(name, 0.0))
        for name in sorted(reference)
    )


def _output_error(
    name: str, expected: NDArray[np.generic], actual: NDArray[np.generic], step: float
) -> OutputError:
    import numpy as np

    if expected.shape != actual.shape:
        raise VerificationFailed(
            f"output {name!r} has shape {actual.shape}, the reference {expected.shape}",
            hint="the converter or the runtime has a fault here; look at the operators before it",
        )
    if {expected.dtype.kind, actual.dtype.kind} == {"S"}:
        return _string_error(name, float(np.mean(expected != actual)), len(expected))
    want = np.asarray(expected, np.float64)
    have = np.asarray(actual, np.float64)
    extent = ValueRange()
    extent.add(want.reshape(len(want), -1) if want.size else want)
    # What is not finite gives an error that is not, and no warning on the terminal.
    with np.errstate(invalid="ignore", over="ignore"):
        error = have - want
        power = float(np.mean(error**2)) if error.size else 0.0
        signal = float(np.var(want)) if want.size else 0.0
        norms = float(np.linalg.norm(want) * np.linalg.norm(have))
    return OutputError(
        output=name,
        snr_db=snr_db(signal, power),
        max_abs_error=float(np.max(np.abs(error), initial=0.0)),
        rms_error=math.sqrt(power),
        rms_reference=math.sqrt(float(np.mean(want**2))) if want.size else 0.0,
        cosine=float(np.vdot(want, have)) / norms if norms > _COSINE_EPSILON else float(power == 0),
        argmax_agreement=_argmax_agreement(want, have),
        span=extent.span,
        varies_by=extent.varies_by,
        step=step,
        samples=len(want),
    )


def _argmax_agreement(want: NDArray[np.float64], have: NDArray[np.float64]) -> float | None:
    import numpy as np

    if want.ndim != 2 or want.shape[1] < 2 or not len(want):
        return None
    return float(np.mean(want.argmax(axis=1) == have.argmax(axis=1)))


def _string_error(name: str, differing: float, samples: int) -> OutputError:
    """How far an output of strings is off, of which the fraction `differing` are others.

    Strings are right or wrong: each that differs is an error as large as the signal.
    """
    return OutputError(
        output=name,
        snr_db=-10 * math.log10(differing) if differing else MAX_SNR_DB,
        max_abs_error=float(differing > 0),
        rms_error=math.sqrt(differing),
        rms_reference=1.0,
        cosine=1 - differing,
        argmax_agreement=1 - differing,
        samples=samples,
    )
