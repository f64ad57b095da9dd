"""A model trained with quantization to the .tflite in integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.store import publish_bytes, scratch_directory
from edgeconv.tf import lean
from edgeconv.tf.export import inference
from edgeconv.tf.qat.plain import plain_copy
from edgeconv.tf.shapes import FixedShapes
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.types import Recipe


def qat_to_tflite(model: Any, recipe: Recipe, batch: int | None, path: Path) -> int:
    """Write an annotated and trained model as a .tflite; gives its size in bytes.

    Its signature is `serving_default`, its inputs and outputs are called as the model's, and
    `batch` fixes their first dimension. What could not be quantized computes in float, which
    `edgeconv.quantize.verify` holds against the recipe. To be called outside of any strategy's
    scope. Raises `ConversionRefused` and the like for what the converter does not take.
    """
    import tensorflow as tf

    copy = plain_copy(model)
    with scratch_directory() as scratch:
        directory = str(scratch)
        _save(copy, batch, directory)
        converter = tf.lite.TFLiteConverter.from_saved_model(
            directory, signature_keys=[SERVING_DEFAULT]
        )
        data = _converted(converter, recipe)
    publish_bytes(data, path)
    return len(data)


def _save(model: Any, batch: int | None, directory: str) -> None:
    import tensorflow as tf

    module = tf.Module()
    module.variables_of_model = model.variables
    function = inference(model, FixedShapes(batch=batch))
    tf.saved_model.save(module, directory, signatures={SERVING_DEFAULT: function})


def _converted(converter: Any, recipe: Recipe) -> bytes:
    import tensorflow as tf

    # With the ranges in the model, this asks for them to be used.
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.exclude_conversion_metadata = True
    converter.inference_input_type = tf.as_dtype(recipe.input_type)
    converter.inference_output_type = tf.as_dtype(recipe.output_type)
    with lean.ConverterErrors():
        data: bytes = converter.convert()
    return data
