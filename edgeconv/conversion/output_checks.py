"""A candidate's outputs, verified against those of its reference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeconv.conversion.graph_checks import LOOK_AT_NUMBERS
from edgeconv.model.tflite import (
    constant_outputs,
    inner_ranges,
    output_steps,
    sigmoid_outputs,
    steps_by_output,
)
from edgeconv.reporting.units import counted
from edgeconv.statistics.grades import Graded, graded
from edgeconv.statistics.outputs import SampleErrors, output_errors, sample_errors
from edgeconv.types import ROUNDING, OutputError, Recipe, RecipeName
from edgeconv.types.errors import Cause, NotFinite, VerificationFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edgeconv.conversion.candidate import Candidate
    from edgeconv.conversion.session import Outputs

# An error below this fraction of the output's magnitude is rounding, however little the output
# varies over the samples: 16 bits for a float model, 10 for a quantized one.
_ROUNDING = {True: ROUNDING, False: 2.0**-10}
# What is closer to float than a recipe, as a rule, the smaller first.
CLOSER: dict[RecipeName, str] = {
    "float32": "",
    "float16": "float32",
    "dynamic": "weight-only-int8, float16",
    "weight-only-int8": "float16",
    "int8": "int16x8, dynamic",
    "int16x8": "weight-only-int8, float16",
    "weight-only-int4": "weight-only-int8",
    "int8x4": "int8",
    "qat": "more --qat-epochs",
}
# An activation whose steps are this many times as large as those of a quarter has coarse ones.
_WIDE = 16


def compare(
    candidate: Candidate, actual: Outputs, expected: Outputs | None
) -> tuple[tuple[OutputError, ...], tuple[str, ...]]:
    """How far the outputs are from the expected ones, and warnings.

    `expected` of None says that there is no independent reference: the float32 model of a .tflite
    source is that source. Outputs are called KEY/OUTPUT where there are several signatures.
    Raises `VerificationFailed` where they are broken, or beyond the recipe's limit.
    """
    errors: list[OutputError] = []
    warnings: list[str] = []
    for key, outputs in actual.items():
        refuse_not_finite(candidate.recipe, outputs)
        if expected is None:
            continue
        content = candidate.file.read_bytes()
        steps = output_steps(content, key)
        sigmoids = sigmoid_outputs(content, key)
        grades = [
            graded(
                error,
                expected[key][error.output],
                outputs[error.output],
                is_sigmoid=error.output in sigmoids,
            )
            for error in output_errors(expected[key], outputs, steps)
        ]
        of_key = [each.error for each in grades]
        constant = constant_outputs(content, key)
        try:
            warnings += verify_errors(candidate.recipe, of_key)
            refuse_broken(candidate.recipe, grades)
        except VerificationFailed as error:
            wide = wide_activation(candidate)
            if wide:
                error.hint = f"choose int16x8: {wide}; or {error.hint}"
            raise
        warnings += [
            f"output {each.output!r} is the same for all {each.samples} samples, so they say "
            "nothing about it: give samples for which it differs"
            for each in of_key
            if each.is_constant and each.samples > 1 and each.output not in constant
            if outputs[each.output].dtype.kind == "f"
        ]
        errors += of_key if len(actual) == 1 else [_renamed(key, error) for error in of_key]
    return tuple(errors), tuple(warnings)


def errors_by_sample(candidate: Candidate, actual: Outputs, expected: Outputs) -> SampleErrors:
    """The errors of all outputs of numbers in each sample."""
    steps = steps_by_output(candidate.file.read_bytes(), actual)
    return sample_errors(_by_output(expected), _by_output(actual), steps)


def _by_output(outputs: Outputs) -> Mapping[tuple[str, str], NDArray[np.generic]]:
    return {
        (key, name): values
        for key, of_key in outputs.items()
        for name, values in of_key.items()
        if values.dtype.kind not in "SO"
    }


def wide_activation(candidate: Candidate) -> str:
    """What int8 cannot keep in a file: an activation of a far larger range than the others.

    Such as the state of a recurrent layer, in which values add up. "" where there is none.
    """
    if candidate.recipe.name == "int16x8":
        return ""
    ranges = sorted(inner_ranges(candidate.file.read_bytes()), key=lambda inner: inner.step)
    if not ranges or ranges[-1].step < _WIDE * ranges[len(ranges) // 4].step:
        return ""
    widest = ranges[-1]
    if widest.is_input:
        return ""
    return (
        f"inside, {widest.name!r} spans {widest.low:.4g} to {widest.high:.4g}, which 8 bits "
        f"represent in steps of {widest.step:.2g}"
    )


def _renamed(key: str, error: OutputError) -> OutputError:
    return msgspec.structs.replace(error, output=f"{key}/{error.output}")


def refuse_not_finite(recipe: Recipe, outputs: Mapping[str, NDArray[np.generic]]) -> None:
    """Raise `NotFinite` where an output, of any shape and dtype, has NaN or infinite values."""
    for name, values in outputs.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise NotFinite(
                f"{recipe.name}: output {name!r} has values that are not finite",
                hint=LOOK_AT_NUMBERS,
            )


def verify_errors(recipe: Recipe, errors: Sequence[OutputError]) -> tuple[str, ...]:
    """Verify the outputs' errors by the recipe's limit, if it has one; returns warnings.

    An output passes if its signal-to-noise ratio reaches `recipe.min_snr_db`, if its error is
    rounding of its magnitude, or if it is within one quantization step of the output, which is
    the best possible. Raises `VerificationFailed`.
    """
    warnings: list[str] = []
    for error in errors:
        if not math.isfinite(error.rms_error):
            raise VerificationFailed(
                f"{recipe.name}: output {error.output!r} has no finite distance to its reference"
            )
        least_db = recipe.min_snr_db
        if least_db is None:
            continue
        rounding = _ROUNDING[recipe.name == "float32"] * error.rms_reference
        if error.snr_db < least_db and error.rms_error > max(rounding, error.step):
            raise _too_far(recipe, error, least_db)
        if error.snr_db >= least_db and is_borderline(error, least_db):
            warnings.append(f"output {error.output!r} is borderline: {_uncertain(error, least_db)}")
    return tuple(warnings)


def refuse_broken(recipe: Recipe, grades: Iterable[Graded]) -> None:
    """Raise `VerificationFailed` for the first output that is no better than chance."""
    for error, broken in grades:
        if broken:
            raise VerificationFailed(
                f"{recipe.name}: output {error.output!r} {broken}",
                hint=" or ".join(_cures(recipe)),
                cause=Cause(snr_db=error.snr_db),
            )


def _cures(recipe: Recipe) -> tuple[str, ...]:
    """What makes a file closer to its reference."""
    if recipe.name == "float32":
        return ("look for differences of large numbers in the model, which lose digits",)
    if recipe.full_integer:
        return "give calibration samples like the real ones", "choose another recipe"
    # It has no ranges that samples could change.
    why = "whose activations stay in float" if recipe.name == "dynamic" else "which rounds less"
    return (f"choose {CLOSER[recipe.name].replace(', ', ' or ')}, {why}",)


def is_borderline(error: OutputError, least_db: float) -> bool:
    """Whether other samples may well be on the other side of a limit."""
    interval = error.snr_interval_db
    return interval is not None and interval[0] < least_db <= interval[1]


def _uncertain(error: OutputError, least_db: float) -> str:
    low, high = error.snr_interval_db or (error.snr_db, error.snr_db)
    return (
        f"SNR {error.snr_db:.1f} dB on {counted(error.samples, 'sample')}, 95 % interval {low:.1f} "
        f"to {high:.1f} dB, and {least_db:g} dB are required"
    )


def _too_far(recipe: Recipe, error: OutputError, least_db: float) -> VerificationFailed:
    hint = f"{', '.join(_cures(recipe))}, or accept it with --min-snr-db"
    if error.is_flat and error.span is not None:
        what = f" is off by up to {error.max_abs_error:.3g}, and is {error.span[0]:g} throughout"
    else:
        what = (
            f": SNR {error.snr_db:.1f} dB, below the required {least_db:g} dB "
            f"(root mean square {error.rms_reference:.3g}, error {error.rms_error:.3g})"
        )
        if is_borderline(error, least_db):
            what += f"; this is borderline: {_uncertain(error, least_db)}"
            hint = f"calibrate with more samples, so that more of them verify, or {hint}"
    message = f"{recipe.name}: output {error.output!r}{what}"
    return VerificationFailed(message, hint=hint, cause=Cause(snr_db=error.snr_db))
