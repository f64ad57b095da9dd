"""The TFLiteConverter engine, for what litert-quantizer cannot do."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from edgeconv.data import read_samples
from edgeconv.data.arrays import as_tensorflow_takes
from edgeconv.model.tflite import with_needs_declared
from edgeconv.tf import lean
from edgeconv.tf.lazy import tf
from edgeconv.types import FOUR_BIT, Recipe
from edgeconv.types.errors import InputRefused, ToolFailed


class EnginePart(msgspec.Struct, frozen=True, kw_only=True):
    """A signature, and the directory of its samples, if any; see `PreparedModel.parts`."""

    signature: str
    samples: str | None
    batch: int
    stacked: frozenset[str] = frozenset()


class EngineJob(msgspec.Struct, frozen=True, kw_only=True):
    """One recipe for signatures of a model: a SavedModel, or a float32 .tflite.

    `most_samples`: calibrate with so many of each signature at most.
    """

    model: str
    is_tflite: bool
    parts: tuple[EnginePart, ...]
    recipe: Recipe
    select_ops: bool
    target: str
    most_samples: int | None = None


class EngineResult(msgspec.Struct, frozen=True):
    """The size of the file that was written."""

    size_bytes: int


def quantize_with_tflite(job: EngineJob) -> EngineResult:
    """Write the recipe's .tflite to `job.target`. Runs in a child.

    Raises `InputRefused` for a model that TFLiteConverter does not convert.
    """
    with lean.ConverterErrors():
        data = _of_tflite(job) if job.is_tflite else _of_saved_model(job)
    data = with_needs_declared(data)
    Path(job.target).write_bytes(data)
    return EngineResult(len(data))


def _of_saved_model(job: EngineJob) -> bytes:
    converter = tf.lite.TFLiteConverter.from_saved_model(
        job.model, signature_keys=[part.signature for part in job.parts]
    )
    converter.exclude_conversion_metadata = True
    _configure(tf, converter, job.recipe)
    if job.select_ops:
        allowed = {*converter.target_spec.supported_ops, tf.lite.OpsSet.SELECT_TF_OPS}
        converter.target_spec.supported_ops = allowed
    if job.recipe.full_integer:
        converter.representative_dataset = _feed(job)
    data: bytes = converter.convert()
    return data


def _of_tflite(job: EngineJob) -> bytes:
    """What the converter does with the float32 .tflite that it has made of a model itself."""
    from tensorflow.lite.python.convert import mlir_quantize
    from tensorflow.lite.python.optimize.calibrator import Calibrator, add_intermediate_tensors

    recipe = job.recipe
    # A fused recurrent layer has ranges that are no tensors of the float graph.
    calibrator = Calibrator(add_intermediate_tensors(Path(job.model).read_bytes()))
    input_type, output_type = tf.as_dtype(recipe.input_type), tf.as_dtype(recipe.output_type)
    if recipe.name == "int8":
        calibrated = calibrator.calibrate(_feed(job))
        data: bytes = mlir_quantize(
            calibrated, input_data_type=input_type, output_data_type=output_type
        )
    else:
        data = calibrator.calibrate_and_quantize(
            _feed(job),
            input_type,
            output_type,
            allow_float=not recipe.only_integers,
            activations_type=tf.int16,
            bias_type=tf.int64,
        )
    return bytes(data)


def refuse_recipe(recipe: Recipe, *, is_tflite: bool) -> None:
    """Raise `ToolFailed` for a recipe that TFLiteConverter does not make, of a .tflite or else."""
    if is_tflite and not recipe.full_integer:
        raise ToolFailed("TFLiteConverter makes only int8 and int16x8 from a .tflite")
    if recipe.name in ("weight-only-int8", *FOUR_BIT):
        raise ToolFailed(
            f"TFLiteConverter has no {recipe.name}",
            hint="remove --engine, or use the recipe dynamic",
        )
    if recipe.layers:
        raise ToolFailed(
            "TFLiteConverter has no rules for layers", hint="remove --engine, or --layer"
        )
    if "equalization" in recipe.methods:
        raise ToolFailed(
            "equalization needs another float graph, which TFLiteConverter cannot take",
            hint="remove --engine, or name other methods",
        )
    if recipe.calibration_range not in ("minmax", "auto"):
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
        if not recipe.only_integers:
            operators.append(sets.TFLITE_BUILTINS)
        converter.target_spec.supported_ops = operators
        converter.inference_input_type = tf.as_dtype(recipe.input_type)
        converter.inference_output_type = tf.as_dtype(recipe.output_type)


def _feed(job: EngineJob) -> Callable[[], Iterator[Any]]:
    stored = {}
    for part in job.parts:
        if part.samples is None:
            raise InputRefused(f"recipe {job.recipe.name} needs calibration samples")
        stored[part] = read_samples(Path(part.samples)).arrays

    def feed() -> Iterator[Any]:
        for part, arrays in stored.items():
            count = len(next(iter(arrays.values())))
            for start in range(0, min(count, job.most_samples or count), part.batch):
                batch = {
                    name: value[start]
                    if name in part.stacked
                    else value[start : start + part.batch]
                    for name, value in arrays.items()
                }
                yield part.signature, as_tensorflow_takes(batch)

    return feed
