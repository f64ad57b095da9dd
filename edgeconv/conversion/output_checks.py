"""A candidate's outputs, verified against those of its reference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from edgeconv.conversion.graph_checks import LOOK_AT_NUMBERS
from edgeconv.model.tflite import constant_outputs, inner_ranges, output_steps, steps_by_output
from edgeconv.reporting.units import counted
from edgeconv.statistics.estimate import LEVEL
from edgeconv.statistics.outputs import output_errors
from edgeconv.statistics.proportion import proportion_bounds
from edgeconv.types import ROUNDING
from edgeconv.types.errors import Cause, NotFinite, VerificationFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.conversion.candidate import Candidate
    from edgeconv.conversion.session import Outputs
    from edgeconv.statistics.sample_errors import SampleErrors
    from edgeconv.types import OutputError, Recipe

# An error below this fraction of the output's magnitude is rounding, however little the output
# varies over the samples: 16 bits for a float model, 10 for a quantized one.
_ROUNDING = {True: ROUNDING, False: 2.0**-10}
# Below this fraction of equal answers there is a warning, and where not even a third of them is
# certain, which takes at least 4 samples.
_LEAST_AGREEMENT = 0.95
_LEAST_SURE = 1 / 3
_FEW_SAMPLES = 20
# An error of a thousandth changes hardly any answer, even where only few samples show it.
_CLOSE_DB = 60.0
# An activation whose steps are this many times as large as those of a quarter has coarse ones.
_WIDE = 16


def compare(
    candidate: Candidate, actual: Outputs, expected: Outputs | None
) -> tuple[tuple[OutputError, ...], tuple[str, ...]]:
    """How far the outputs are from the expected ones, and warnings.

    `expected` of None says that there is no independent reference: the float32 model of a .tflite
    source is that source. Outputs are called KEY/OUTPUT where there are several signatures.
    Raises `VerificationFailed` where they are too far.
    """
    errors: list[OutputError] = []
    warnings: list[str] = []
    for key, outputs in actual.items():
        refuse_not_finite(candidate.recipe, outputs)
        if expected is None:
            continue
        content = candidate.file.read_bytes()
        steps = output_steps(content, key)
        of_key = output_errors(expected[key], outputs, steps)
        constant = constant_outputs(content, key)
        try:
            warnings += verify_errors(candidate.recipe, of_key)
        except VerificationFailed as error:
            wide = wide_activation(candidate)
            if wide:
                error.hint = f"choose int16x8: {wide}; or {error.hint}"
            raise
        warnings += [
            f"output {each.output!r} is the same for all {each.samples} samples, so they say "
            "nothing about it: give samples for which it differs"
            for each in of_key
            if _says_nothing(each, outputs[each.output]) and each.output not in constant
        ]
        errors += of_key if len(actual) == 1 else [_renamed(key, error) for error in of_key]
    agreements = [e.argmax_agreement for e in errors if e.argmax_agreement is not None]
    if min(agreements, default=1.0) < _LEAST_AGREEMENT:
        wide = wide_activation(candidate)
        warnings += [f"int16x8 may keep what int8 does not: {wide}"] if wide else []
    return tuple(errors), tuple(warnings)


def _says_nothing(error: OutputError, values: NDArray[np.generic]) -> bool:
    """Whether an output of floats is the same for several samples."""
    return values.dtype.kind == "f" and error.is_constant and error.samples > 1


def errors_by_sample(candidate: Candidate, actual: Outputs, expected: Outputs) -> SampleErrors:
    """The errors of all outputs of numbers in each sample."""
    from edgeconv.statistics.sample_errors import sample_errors

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
    return (
        f"inside, {widest.name!r} spans {widest.low:.4g} to {widest.high:.4g}, which 8 bits "
        f"represent in steps of {widest.step:.2g}"
    )


def _renamed(key: str, error: OutputError) -> OutputError:
    return msgspec.structs.replace(error, output=f"{key}/{error.output}")


def refuse_not_finite(recipe: Recipe, outputs: Mapping[str, NDArray[np.generic]]) -> None:
    """Raise `NotFinite` where an output, of any shape and dtype, has NaN or infinite values."""
    import numpy as np

    for name, values in outputs.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise NotFinite(
                f"{recipe.name}: output {name!r} has values that are not finite",
                hint=LOOK_AT_NUMBERS,
            )


def verify_errors(recipe: Recipe, errors: Sequence[OutputError]) -> tuple[str, ...]:
    """Verify the outputs' errors by the recipe's limit; returns warnings.

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
        rounding = _ROUNDING[recipe.name == "float32"] * error.rms_reference
        is_faint = error.snr_db < recipe.min_snr_db
        if is_faint and error.rms_error > max(rounding, error.step):
            raise _too_far(recipe, error)
        is_exact = error.rms_error <= ROUNDING * error.rms_reference
        warnings += _output_warnings(error, is_faint=is_faint and not is_exact)
        if not is_faint and is_borderline(error, recipe.min_snr_db):
            warnings.append(f"output {error.output!r} is borderline: {_uncertain(recipe, error)}")
    return tuple(warnings)


def is_borderline(error: OutputError, least_db: float) -> bool:
    """Whether other samples may well be on the other side of a limit."""
    interval = error.snr_interval_db
    return interval is not None and interval[0] < least_db <= interval[1]


def _uncertain(recipe: Recipe, error: OutputError) -> str:
    low, high = error.snr_interval_db or (error.snr_db, error.snr_db)
    return (
        f"SNR {error.snr_db:.1f} dB on {counted(error.samples, 'sample')}, 95 % interval {low:.1f} "
        f"to {high:.1f} dB, and {recipe.min_snr_db:g} dB are required"
    )


def _too_far(recipe: Recipe, error: OutputError) -> VerificationFailed:
    other = "accept it with --min-snr-db"
    hint = f"give calibration samples like the real ones, choose another recipe, or {other}"
    if recipe.name == "float32":
        hint = f"look for random or stateful operators in the model, or {other}"
    if error.is_flat and error.span is not None:
        what = f" is off by up to {error.max_abs_error:.3g}, and is {error.span[0]:g} throughout"
    else:
        what = (
            f": SNR {error.snr_db:.1f} dB, below the required {recipe.min_snr_db:g} dB "
            f"(root mean square {error.rms_reference:.3g}, error {error.rms_error:.3g})"
        )
        if is_borderline(error, recipe.min_snr_db):
            what += f"; this is borderline: {_uncertain(recipe, error)}"
            hint = f"calibrate with more samples, so that more of them verify, or {hint}"
    message = f"{recipe.name}: output {error.output!r}{what}"
    return VerificationFailed(message, hint=hint, cause=Cause(snr_db=error.snr_db))


def _output_warnings(error: OutputError, *, is_faint: bool) -> Iterator[str]:
    """Warnings, a sentence each.

    `is_faint` says that the output varies too little for the recipe's limit, and passed for
    another reason.
    """
    if is_faint and not error.is_flat and not _has_fixed_range(error):
        spans = (
            f"spans {error.span[0]:.6g} to {error.span[1]:.6g}" if error.span else "hardly varies"
        )
        step = f"; its quantization step is {error.step:.3g}" if error.step else ""
        yield (
            f"output {error.output!r} is off by up to {error.max_abs_error:.3g}, and only {spans} "
            f"on these samples{step}"
        )
    if error.argmax_agreement is not None and error.samples and not error.is_flat:
        yield from _answer_warnings(error, error.argmax_agreement)


def _has_fixed_range(error: OutputError) -> bool:
    """Whether the error is within a step that is a power of two.

    Such a scale belongs to an operator, not to the samples: softmax and the sigmoid always give 0
    to 1 in steps of 1/256, and tanh -1 to 1 in steps of 1/128.
    """
    return error.is_within_step and math.frexp(error.step)[0] == 1 / 2


def _answer_warnings(error: OutputError, agreement: float) -> Iterator[str]:
    """Warnings about the answers of a classifier: where its largest value is."""
    count = error.samples
    same = round(agreement * count)
    low, high = proportion_bounds(same, count, LEVEL / 2, LEVEL / 2)
    is_sure = low >= _LEAST_SURE or error.snr_db >= _CLOSE_DB
    if agreement >= _LEAST_AGREEMENT and is_sure:
        return
    few = ""
    if count < _FEW_SAMPLES:
        samples = "1 sample tells" if count == 1 else f"{count} samples tell"
        few = f"; {samples} little: calibrate with more, or compare accuracies with edgeconv bench"
    yield (
        f"output {error.output!r} has its largest value in the same place for {same} of {count} "
        f"({100 * agreement:.3g} %, 95 % interval {100 * low:.3g} % to {100 * high:.3g} %){few}"
    )
