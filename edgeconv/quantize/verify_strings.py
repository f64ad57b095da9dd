"""What is checked of inputs and outputs that hold strings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.types import MAX_SNR_DB, OutputError

if TYPE_CHECKING:
    from edgeconv.types import Recipe, Signature


def string_error(name: str, differing: float, samples: int) -> OutputError:
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


def kept_strings(recipe: Recipe, signature: Signature) -> tuple[str, ...]:
    """What is to be said of strings where integer inputs or outputs are asked for."""
    return tuple(
        f"{side} {tensor.name!r} holds strings, which --io {asked} leaves as they are"
        for side, tensors, asked in (
            ("input", signature.inputs, recipe.input_type),
            ("output", signature.outputs, recipe.output_type),
        )
        for tensor in tensors
        if tensor.dtype == "string" and asked != "float32"
    )
