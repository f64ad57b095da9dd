"""The first engine at work: calibrate once, then make each recipe. Runs in a child."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from edgeconv.errors import ToolFailed
from edgeconv.nouns import CalibrationRange, Recipe, RecipeName
from edgeconv.quantize.calibrate import Feed, activation_ranges, widened
from edgeconv.quantize.recipes import quantizer_recipe
from edgeconv.quantize.softmax import Floor, above_floors, softmax_floors
from edgeconv.tasks import report_progress
from edgeconv.tflite import (
    activation_bounds,
    with_input_shapes,
    with_uint8_io,
    without_shape_bridges,
)

# All that the quantiser and the runtime that it calibrates with were seen to raise.
_ENGINE_ERRORS = (ValueError, RuntimeError, TypeError, KeyError, IndexError, AttributeError)


class QuantizePart(msgspec.Struct, frozen=True, kw_only=True):
    """A signature of the float graph, and its stored samples (see edgeconv.data).

    `samples` is None where no recipe needs calibration. `batch` is the leading dimension of
    the signature's inputs.
    """

    signature: str
    samples: str | None
    batch: int


class QuantizeJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to make: `directory`/RECIPE.tflite for each recipe, from one float graph.

    `dense_per_tensor` is for older runtimes, see `quantizer_recipe`.
    """

    float_model: str
    parts: tuple[QuantizePart, ...]
    calibration_range: CalibrationRange
    recipes: tuple[Recipe, ...]
    directory: str
    threads: int
    dense_per_tensor: bool = False


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
    calibrated: _Calibrated | str = ""
    if any(recipe.full_integer for recipe in job.recipes):
        report_progress("calibrating")
        calibrated = _calibrated(float_model, job)
    attempts = []
    for recipe in job.recipes:
        report_progress(f"quantizing to {recipe.name}")
        if not recipe.full_integer:
            attempts.append(_attempt(float_model, recipe, None, (), job))
        elif isinstance(calibrated, str):
            attempts.append(Attempt(recipe=recipe.name, error=calibrated))
        else:
            ranges, notes = _fitted(recipe, calibrated)
            attempts.append(_attempt(calibrated.model, recipe, ranges, notes, job))
    return Attempts(attempts=tuple(attempts))


class _Calibrated(NamedTuple):
    """The float model that was calibrated, its activations' ranges, and the softmax floors."""

    model: bytes
    ranges: dict[str, Any]
    floors: list[Floor]


def _calibrated(float_model: bytes, job: QuantizeJob) -> _Calibrated | str:
    """The one pass over the samples; a text says why the runtime could not do it."""
    from edgeconv.data import read_samples

    feeds = {
        part.signature: Feed(read_samples(Path(part.samples)).arrays, part.batch)
        for part in job.parts
        if part.samples is not None
    }
    sized = with_input_shapes(float_model, {key: feed.shapes for key, feed in feeds.items()})
    try:
        ranges = activation_ranges(
            sized, feeds, calibration_range=job.calibration_range, threads=job.threads
        )
        floors = softmax_floors(sized, feeds, ranges, threads=job.threads)
    except _ENGINE_ERRORS as error:
        return f"calibration: {_reason(error)}"
    return _Calibrated(sized, ranges, floors)


def _fitted(recipe: Recipe, calibrated: _Calibrated) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The ranges as this recipe needs them, and notes on what was changed in them."""
    bits = 16 if recipe.name == "int16x8" else 8
    ranges, wide = widened(calibrated.ranges, activation_bounds(calibrated.model), bits=bits)
    ranges, cut = above_floors(ranges, calibrated.floors, bits=bits)
    notes = []
    if wide:
        notes.append(f"{len(wide)} ranges were widened, the runtime cannot express smaller ones")
    if cut:
        notes.append(f"the ranges of {len(cut)} softmax inputs end where a softmax sees nothing")
    return ranges, tuple(notes)


def _attempt(
    float_model: bytes,
    recipe: Recipe,
    ranges: dict[str, Any] | None,
    notes: tuple[str, ...],
    job: QuantizeJob,
) -> Attempt:
    try:
        made = quantize_bytes(float_model, recipe, ranges, dense_per_tensor=job.dense_per_tensor)
    except ToolFailed as error:
        return Attempt(recipe=recipe.name, error=error.message)
    (Path(job.directory) / f"{recipe.name}.tflite").write_bytes(made)
    return Attempt(recipe=recipe.name, notes=notes)


def quantize_bytes(
    float_model: bytes,
    recipe: Recipe,
    ranges: dict[str, Any] | None,
    *,
    dense_per_tensor: bool = False,
) -> bytes:
    """The quantised model. `ranges` (of `activation_ranges`) for full-integer recipes.

    Raises `ToolFailed` with the quantiser's reason.
    """
    from ai_edge_quantizer import quantizer

    try:
        engine = quantizer.Quantizer(float_model)
        engine.load_quantization_recipe(quantizer_recipe(recipe, dense_per_tensor=dense_per_tensor))
        made = engine.quantize(
            ranges if engine.need_calibration else None,
            enable_progress_bar=False,
            enable_progress_report=False,
        ).quantized_model
    except _ENGINE_ERRORS as error:
        raise ToolFailed(f"ai-edge-quantizer: {_reason(error)}") from error
    data = without_shape_bridges(bytes(made)) if recipe.full_integer else bytes(made)
    uint8 = {"inputs": recipe.input_type == "uint8", "outputs": recipe.output_type == "uint8"}
    return with_uint8_io(data, **uint8) if any(uint8.values()) else data


def _reason(error: Exception) -> str:
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return reason[0][:400]


def _silence() -> None:
    # The quantiser logs every step, and warns of the interpreter mode that it itself asks for.
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*experimental_preserve_all_tensors.*")
