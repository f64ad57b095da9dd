"""The second engine: TFLiteConverter's own quantiser, for what the first cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.errors import InputRefused, ToolFailed
from edgeconv.nouns import Recipe
from edgeconv.tf import lean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class EngineJob(msgspec.Struct, frozen=True, kw_only=True):
    """Make one recipe from a SavedModel. `samples`: stored samples, None for a float recipe."""

    saved_model: str
    signature: str
    recipe: Recipe
    samples: str | None
    batch: int
    target: str


class EngineDone(msgspec.Struct, frozen=True):
    """The file was made."""

    size_bytes: int


def quantize_with_tflite(job: EngineJob) -> EngineDone:
    """Write the recipe's .tflite to `job.target`. Runs in a child.

    Raises `ToolFailed` for a recipe that TFLiteConverter does not have, `InputRefused`
    for a model it does not convert.
    """
    refuse_recipe(job.recipe)
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(
        job.saved_model, signature_keys=[job.signature]
    )
    converter.exclude_conversion_metadata = True
    _configure(tf, converter, job.recipe)
    if job.recipe.full_integer:
        if job.samples is None:
            raise InputRefused(f"recipe {job.recipe.name} needs calibration samples")
        converter.representative_dataset = _feed(Path(job.samples), job.batch, job.signature)
    with lean.ConverterErrors():
        data: bytes = converter.convert()
    Path(job.target).write_bytes(data)
    return EngineDone(len(data))


def refuse_recipe(recipe: Recipe) -> None:
    """Raise `ToolFailed` for a recipe that the second engine does not have."""
    if recipe.name == "weight-only-int8":
        raise ToolFailed(
            "TFLiteConverter has no weight-only int8",
            hint="leave --engine away, or use the recipe dynamic",
        )
    if recipe.calibration_range == "ema":
        raise ToolFailed(
            "TFLiteConverter calibrates with true minima and maxima only",
            hint="use --calibration-range minmax with --engine tflite",
        )


def _configure(tf: Any, converter: Any, recipe: Recipe) -> None:
    sets = tf.lite.OpsSet
    if recipe.name != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if recipe.name == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if recipe.full_integer:
        int16 = sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        operators = [sets.TFLITE_BUILTINS_INT8 if recipe.name == "int8" else int16]
        if recipe.allow_float:
            operators.append(sets.TFLITE_BUILTINS)
        converter.target_spec.supported_ops = operators
        converter.inference_input_type = tf.as_dtype(recipe.input_type)
        converter.inference_output_type = tf.as_dtype(recipe.output_type)


def _feed(directory: Path, batch: int, signature: str) -> Callable[[], Iterator[Any]]:
    from edgeconv.data import read_samples

    arrays = read_samples(directory).arrays

    def feed() -> Iterator[Any]:
        for start in range(0, len(next(iter(arrays.values()))), batch):
            yield signature, {name: value[start : start + batch] for name, value in arrays.items()}

    return feed
