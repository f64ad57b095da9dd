"""The first engine at work: every recipe of one float graph. Runs in a child."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import ToolFailed
from edgeconv.processes.tasks import report_progress
from edgeconv.progress import Counted
from edgeconv.types import PostTraining, Recipe, RecipeName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edgeconv.quantize.calibrate import Feed
    from edgeconv.quantize.choose import Chooser


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
    recipes: tuple[Recipe, ...]
    directory: str
    threads: int
    dense_per_tensor: bool = False


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One recipe's outcome; `error` is empty where the file was made.

    `float_operators` are those that a rule of the recipe leaves in float.
    """

    recipe: RecipeName
    error: str = ""
    notes: tuple[str, ...] = ()
    post_training: PostTraining | None = None
    float_operators: tuple[str, ...] = ()


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of every recipe of a job."""

    attempts: tuple[Attempt, ...]


def quantize(job: QuantizeJob) -> Attempts:
    """Make every recipe of the job. A recipe that fails does not stop the others.

    Raises `UsageError` for options that do not fit the graph or its samples.
    """
    settle_process()
    from edgeconv.quantize.choose import Chooser

    chooser = Chooser(
        Path(job.float_model).read_bytes(),
        feeds_of(job.parts),
        threads=job.threads,
        dense_per_tensor=job.dense_per_tensor,
    )
    return Attempts(attempts=tuple(_attempts(chooser, job)))


def _attempts(chooser: Chooser, job: QuantizeJob) -> Iterator[Attempt]:
    for number, recipe in enumerate(job.recipes):
        report_progress(Counted(f"quantizing to {recipe.name}", number, len(job.recipes)))
        yield _attempt(chooser, recipe, job)


def _attempt(chooser: Chooser, recipe: Recipe, job: QuantizeJob) -> Attempt:
    try:
        made, record = chooser.file(recipe)
    except ToolFailed as error:
        return Attempt(recipe=recipe.name, error=error.message)
    (Path(job.directory) / f"{recipe.name}.tflite").write_bytes(made.model)
    return Attempt(
        recipe=recipe.name,
        notes=made.notes,
        post_training=record,
        float_operators=made.float_operators,
    )


def feeds_of(parts: Iterable[QuantizePart]) -> dict[str, Feed]:
    """The samples of each signature that has some, mapped and not read yet."""
    from edgeconv.data import read_samples
    from edgeconv.quantize.calibrate import Feed

    return {
        part.signature: Feed(read_samples(Path(part.samples)).arrays, part.batch)
        for part in parts
        if part.samples is not None
    }


def settle_process() -> None:
    """To be called in a child before numpy is imported: quiet, and the same bytes every time.

    The quantiser logs every step, and warns of the interpreter mode that it itself asks for.
    Sums in linear algebra depend on how many threads share them, and that on the machine.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ[name] = "1"
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*experimental_preserve_all_tensors.*")
