"""The first engine at work: calibrate once, then make each recipe. Runs in a child."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import msgspec

from edgeconv.errors import ToolFailed
from edgeconv.nouns import CalibrationRange, Recipe, RecipeName
from edgeconv.quantize.calibrate import activation_ranges, widened
from edgeconv.quantize.recipes import quantizer_recipe
from edgeconv.tasks import report_progress
from edgeconv.tflite import activation_bounds, with_uint8_io, without_shape_bridges


class QuantizeJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to make: `directory`/RECIPE.tflite for each recipe, from one float graph.

    `samples` is a directory of stored samples (see edgeconv.data), None where no
    recipe needs calibration. `batch` is the leading dimension of the model's inputs.
    """

    float_model: str
    signature: str
    samples: str | None
    batch: int
    calibration_range: CalibrationRange
    recipes: tuple[Recipe, ...]
    directory: str
    threads: int


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One recipe's outcome; `error` is empty where the file was made."""

    recipe: RecipeName
    error: str = ""
    notes: tuple[str, ...] = ()


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of every recipe of a job."""

    attempts: tuple[Attempt, ...]


def quantize(job: QuantizeJob) -> Attempts:
    """Make every recipe of the job. A recipe that fails does not stop the others."""
    _silence()
    float_model = Path(job.float_model).read_bytes()
    ranges = _ranges(float_model, job)
    attempts = []
    for recipe in job.recipes:
        report_progress(f"quantizing to {recipe.name}")
        attempts.append(_attempt(float_model, recipe, ranges, Path(job.directory)))
    return Attempts(attempts=tuple(attempts))


def _ranges(float_model: bytes, job: QuantizeJob) -> dict[str, Any] | None:
    from edgeconv.data import read_samples

    if job.samples is None or not any(recipe.full_integer for recipe in job.recipes):
        return None
    samples = read_samples(Path(job.samples))
    report_progress("calibrating")
    return activation_ranges(
        float_model,
        samples.arrays,
        signature=job.signature,
        batch=job.batch,
        calibration_range=job.calibration_range,
        threads=job.threads,
    )


def _attempt(
    float_model: bytes, recipe: Recipe, ranges: dict[str, Any] | None, directory: Path
) -> Attempt:
    notes: tuple[str, ...] = ()
    if recipe.full_integer and ranges is not None:
        bits = 16 if recipe.name == "int16x8" else 8
        ranges, wide = widened(ranges, activation_bounds(float_model), bits=bits)
        if wide:
            notes = (f"{len(wide)} ranges were widened, the runtime cannot express smaller ones",)
    try:
        made = quantize_bytes(float_model, recipe, ranges)
    except ToolFailed as error:
        return Attempt(recipe=recipe.name, error=error.message)
    (directory / f"{recipe.name}.tflite").write_bytes(made)
    return Attempt(recipe=recipe.name, notes=notes)


def quantize_bytes(float_model: bytes, recipe: Recipe, ranges: dict[str, Any] | None) -> bytes:
    """The quantised model. `ranges` (of `activation_ranges`) for full-integer recipes.

    Raises `ToolFailed` with the quantiser's reason.
    """
    from ai_edge_quantizer import quantizer

    try:
        engine = quantizer.Quantizer(float_model)
        engine.load_quantization_recipe(quantizer_recipe(recipe))
        made = engine.quantize(
            ranges if engine.need_calibration else None,
            enable_progress_bar=False,
            enable_progress_report=False,
        ).quantized_model
    except (ValueError, RuntimeError, TypeError, KeyError, IndexError, AttributeError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ToolFailed(f"ai-edge-quantizer: {reason[0][:400]}") from error
    data = without_shape_bridges(bytes(made)) if recipe.full_integer else bytes(made)
    uint8 = {"inputs": recipe.input_type == "uint8", "outputs": recipe.output_type == "uint8"}
    return with_uint8_io(data, **uint8) if any(uint8.values()) else data


def _silence() -> None:
    # The quantiser logs every step, and warns of the interpreter mode that it itself asks for.
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*experimental_preserve_all_tensors.*")
