"""The first engine, ai-edge-quantizer: a float graph and its ranges to a quantised file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.errors import ToolFailed
from edgeconv.quantize.configuration import quantizer_recipe
from edgeconv.quantize.rules import BLOCKS
from edgeconv.tflite import with_sound_blocks, without_shape_bridges

if TYPE_CHECKING:
    from collections.abc import Collection

    from edgeconv.quantize.rules import RuledLayer
    from edgeconv.types import Recipe

# All that the quantiser and the runtime that it calibrates with were seen to raise.
ENGINE_ERRORS = (ValueError, RuntimeError, TypeError, KeyError, IndexError, AttributeError)


def quantize_bytes(
    float_model: bytes,
    recipe: Recipe,
    ranges: dict[str, Any] | None,
    ruled: Collection[RuledLayer] = (),
    *,
    dense_per_tensor: bool = False,
) -> bytes:
    """The quantised model, with weights of 8 bits, and inputs and outputs that are not uint8.

    `ranges` (of `activation_ranges`) are for recipes that have them, `ruled` the layers of
    another precision. Raises `ToolFailed` with the quantiser's reason.
    """
    import numpy as np
    from ai_edge_quantizer import quantizer

    try:
        engine = quantizer.Quantizer(float_model)
        engine.load_quantization_recipe(
            quantizer_recipe(recipe, ruled, dense_per_tensor=dense_per_tensor)
        )
        # Of a block of zeros it divides 0 by 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            made = engine.quantize(
                ranges if engine.need_calibration else None,
                enable_progress_bar=False,
                enable_progress_report=False,
            ).quantized_model
    except ENGINE_ERRORS as error:
        raise ToolFailed(f"ai-edge-quantizer: {reason(error)}") from error
    if any(each.precision == BLOCKS for each in ruled):
        return with_sound_blocks(bytes(made))
    return without_shape_bridges(bytes(made)) if recipe.full_integer else bytes(made)


def reason(error: Exception) -> str:
    """The first line of what an error of the engine says."""
    said = str(error).strip().splitlines() or [type(error).__name__]
    return said[0][:400]
