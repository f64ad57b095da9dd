"""Is it what was asked for? Every check between making a file and publishing it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.errors import NotFinite, VerificationFailed
from edgeconv.quantize.output_doubts import output_doubts
from edgeconv.quantize.verify_strings import kept_strings, string_error
from edgeconv.statistics.signal import Extent, snr_db
from edgeconv.types import (
    ROUNDING,
    GraphSummary,
    OutputError,
    Recipe,
    Signature,
    TensorSpec,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Outputs = Mapping[str, NDArray[np.generic]]

# Beyond this a scale cannot come from real activations: calibration on 1e38 gives 4e35.
_MAX_SCALE = 1e12
# An error this small beside the output's own magnitude is rounding, however little the
# output varies over the samples: 16 bits for a float model, 10 for a quantised one.
_ROUNDING = {True: ROUNDING, False: 2.0**-10}
_COSINE_EPSILON = 1e-30
# TFLiteConverter leaves a tensor of fewer than 1,024 numbers in float32, as not worth it.
_FEW_WEIGHT_BYTES = 4 * 1024
_MOST = 0.5
_STORED = {"weight-only-int4": "int4 or int8"}
_WEIGHTS_ONLY = frozenset({"dynamic", "weight-only-int8", "weight-only-int4"})
# The fused recurrent operators keep their state from one invoke to the next.
STATEFUL = frozenset(
    {
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        "BIDIRECTIONAL_SEQUENCE_RNN",
        "LSTM",
        "RNN",
        "SVDF",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        "UNIDIRECTIONAL_SEQUENCE_RNN",
    }
)
# What a stateful layer or a `tf.Variable` that the model changes becomes.
_ASSIGN = "ASSIGN_VARIABLE"


def check_graph(
    recipe: Recipe,
    summary: GraphSummary,
    signature: Signature,
    float_operators: Sequence[str] = (),
) -> tuple[str, ...]:
    """Hold the made graph against the recipe; returns warnings.

    `float_operators` are those that a rule leaves in float.

    Raises `VerificationFailed` for other I/O types than asked, for operators left in
    float in a full-integer model that the recipe does not allow, and for scales that
    make no sense.
    """
    _check_io(recipe, signature)
    _check_scales((*signature.inputs, *signature.outputs))
    if recipe.full_integer:
        _check_integer(recipe, summary, float_operators)
    return (
        *_nothing_quantized(recipe, summary),
        *_keeps_state(summary),
        *kept_strings(recipe, signature),
    )


def _check_io(recipe: Recipe, signature: Signature) -> None:
    for tensors, asked in (
        (signature.inputs, recipe.input_type),
        (signature.outputs, recipe.output_type),
    ):
        for tensor in tensors:
            # Token ids and the like stay integers in every recipe: there is no float to keep.
            is_value = tensor.dtype == "float32" or bool(tensor.scale)
            if is_value and tensor.dtype != asked:
                raise VerificationFailed(
                    f"{recipe.name}: tensor {tensor.name!r} is {tensor.dtype}, asked was {asked}",
                    hint="convert without --io, or try --engine tflite",
                )


def _check_scales(tensors: tuple[TensorSpec, ...]) -> None:
    for tensor in tensors:
        for scale in tensor.scale:
            if not (math.isfinite(scale) and 0 < scale <= _MAX_SCALE):
                raise VerificationFailed(
                    f"tensor {tensor.name!r} has the scale {scale:g}, which makes no sense",
                    hint="look at the calibration samples: are they scaled as in training?",
                )


def refuse_senseless_scales(recipe: Recipe, scales: Mapping[str, float]) -> None:
    """Raise `VerificationFailed` for a scale (the largest of each tensor) of no real activation."""
    for name, scale in scales.items():
        if not scale <= _MAX_SCALE:
            raise VerificationFailed(
                f"{recipe.name}: tensor {name!r} has the scale {scale:g}, which makes no sense",
                hint="look at the calibration samples: are they scaled as in training?",
            )


def _check_integer(recipe: Recipe, summary: GraphSummary, float_operators: Sequence[str]) -> None:
    allowed = {*recipe.allow_float, *float_operators}
    left = [name for name in summary.float_operators if name not in allowed]
    if left and "*" not in recipe.allow_float:
        raise VerificationFailed(
            f"{recipe.name} was asked for, and these operators compute in float: {', '.join(left)}",
            hint=f"allow them with --allow-float {','.join(left)}, or convert to dynamic instead",
        )


def made_share(recipe: Recipe, summary: GraphSummary) -> float:
    """The fraction of the weights that are stored as the recipe says; 1 for float32."""
    if recipe.name == "float32":
        return 1.0
    is_float16 = recipe.name == "float16"
    return summary.float16_weight_share if is_float16 else summary.quantized_weight_share


def is_mostly_float(recipe: Recipe, summary: GraphSummary) -> bool:
    """Whether most of the weights of a model that has some were left as they are."""
    enough = summary.weight_bytes > _FEW_WEIGHT_BYTES
    return not recipe.full_integer and enough and made_share(recipe, summary) < _MOST


def _nothing_quantized(recipe: Recipe, summary: GraphSummary) -> tuple[str, ...]:
    if recipe.name in _WEIGHTS_ONLY and not summary.quantized_weight_share:
        return (f"nothing was quantised: this {recipe.name} model is the float32 model",)
    if recipe.name == "float16" and not summary.float16_weight_share:
        return ("nothing became float16: this model is the float32 model",)
    if is_mostly_float(recipe, summary):
        share = made_share(recipe, summary)
        kind = "float16" if recipe.name == "float16" else _STORED.get(recipe.name, "int8")
        return (f"only {share:.1%} of the weights became {kind}; the others stay float32",)
    # Constants of elementwise operators become int16 in an int16x8 model, which is no share.
    left_float = summary.weight_bytes and summary.float_operators
    if recipe.full_integer and left_float and not summary.quantized_weight_share:
        raise VerificationFailed(
            f"{recipe.name} was asked for, and no weight was quantised",
            hint="the model's operators are none that can be; convert to float32 or float16",
        )
    return ()


def _keeps_state(summary: GraphSummary) -> tuple[str, ...]:
    names = {operator.name for operator in summary.operators}
    stateful = sorted(names & {*STATEFUL, _ASSIGN})
    if not stateful:
        return ()
    return (
        f"{', '.join(stateful)} keeps its state between invokes: reset the interpreter's "
        "variables before each new input",
    )


def refuse_not_finite(recipe: Recipe, outputs: Outputs) -> None:
    """Raise `NotFinite` where an output has NaN or infinite values."""
    import numpy as np

    for name, values in outputs.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise NotFinite(
                f"{recipe.name}: output {name!r} has values that are not finite",
                hint="look at the model's weights, and at the samples: are they scaled as in "
                "training?",
            )


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
        return string_error(name, float(np.mean(expected != actual)), len(expected))
    want = np.asarray(expected, np.float64)
    have = np.asarray(actual, np.float64)
    extent = Extent()
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


def judge_outputs(recipe: Recipe, errors: Sequence[OutputError]) -> tuple[str, ...]:
    """Hold the outputs' errors against the recipe's limit; returns warnings.

    An output passes if its signal-to-noise ratio reaches `recipe.min_snr_db`, if its
    error is rounding beside its own magnitude, or if it is within one quantization step
    of the output, which nothing can better. Raises `VerificationFailed`.
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
        warnings += output_doubts(error, is_faint=is_faint and not is_exact)
    return tuple(warnings)


def _too_far(recipe: Recipe, error: OutputError) -> VerificationFailed:
    other = "accept it with --min-snr-db"
    hint = f"give calibration samples like the real ones, choose another recipe, or {other}"
    if recipe.name == "float32":
        hint = f"look for random or stateful operators in the model, or {other}"
    if error.is_flat and error.span is not None:
        found = f"is off by up to {error.max_abs_error:.3g}, and is {error.span[0]:g} throughout"
    else:
        found = (
            f"is {error.snr_db:.1f} dB above its error "
            f"(root mean square {error.rms_error:.3g} beside {error.rms_reference:.3g}); "
            f"{recipe.min_snr_db:g} dB are asked for"
        )
    return VerificationFailed(f"{recipe.name}: output {error.output!r} {found}", hint=hint)
