"""A model trained with quantization to an integer .tflite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.store import publish_bytes, scratch_directory
from edgeconv.tf import lean
from edgeconv.tf.export import export_inference
from edgeconv.tf.lazy import tf
from edgeconv.tf.qat.plain import plain_copy
from edgeconv.tf.shapes import FixedShapes
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.types import Recipe


def qat_to_tflite(model: Any, recipe: Recipe, batch: int | None, path: Path) -> int:
    """Write an annotated and trained model as a .tflite; returns its size in bytes.

    Its signature is `serving_default` with the names of the model's inputs and outputs, whose
    first dimension is `batch`. What could not be quantized computes in float, which the
    verification compares with the recipe. Call it outside of any strategy's scope. Raises an
    `InputRefused` for what the converter does not take.
    """
    copy = plain_copy(model)
    with scratch_directory() as scratch:
        directory = str(scratch)
        export_inference(copy, directory, FixedShapes(batch=batch))
        converter = tf.lite.TFLiteConverter.from_saved_model(
            directory, signature_keys=[SERVING_DEFAULT]
        )
        # The converter uses the ranges in the model with this.
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.exclude_conversion_metadata = True
        converter.inference_input_type = tf.as_dtype(recipe.input_type)
        converter.inference_output_type = tf.as_dtype(recipe.output_type)
        with lean.ConverterErrors():
            data: bytes = converter.convert()
    publish_bytes(data, path)
    return len(data)
