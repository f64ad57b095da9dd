"""The first engine at work on one float graph, in a child that stays (`processes.persistent`).

The graph is calibrated once, when that is first needed. Of it every recipe is made, sensitivities
are measured (`quantize.sensitivity`) and files debugged (`quantize.debugging`).
"""

from __future__ import annotations

import functools
import logging
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.types import PostTraining, Recipe, SharedScale

if TYPE_CHECKING:
    from edgeconv.quantize.calibrate import CalibratedGraph
    from edgeconv.quantize.choose import MethodSearch

# Sums in linear algebra depend on how many threads share them, and that on the machine.
ENVIRONMENT = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)

# Begins a note of a file whose "auto" stood for nothing.
NOT_TRIED = "no post-training methods were tried"


class QuantizePart(msgspec.Struct, frozen=True, kw_only=True):
    """A signature of the float graph, and its stored samples (see edgeconv.data).

    `samples` is None where no recipe needs calibration. `batch` is the leading dimension of
    the signature's inputs.
    """

    signature: str
    samples: str | None
    batch: int


class GraphFile(msgspec.Struct, frozen=True, kw_only=True):
    """A float graph and the samples that calibrate it, as files.

    `quantized` is what TFLiteConverter made of the same model, if that is to be refined.
    """

    float_model: str
    parts: tuple[QuantizePart, ...]
    threads: int
    quantized: str | None = None


class QuantizeJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to make: `file`, by one recipe from a float graph.

    `dense_per_tensor` is for older runtimes, see `quantizer_recipe`.
    """

    graph: GraphFile
    recipe: Recipe
    file: str
    dense_per_tensor: bool = False


class QuantizeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a user should know of the file; a rule leaves `float_operators` in float.

    `choosing_s` is what choosing methods took, in seconds.
    """

    notes: tuple[str, ...] = ()
    post_training: PostTraining | None = None
    float_operators: tuple[str, ...] = ()
    shared_scales: tuple[SharedScale, ...] = ()
    choosing_s: float = 0.0


class LoadJob(msgspec.Struct, frozen=True):
    """Nothing: what the engine is for comes later."""


def load_engine(job: LoadJob) -> LoadJob:
    """Import the engine, so that the first file need not wait for it."""
    settle_process()
    from ai_edge_quantizer import calibrator, quantizer  # noqa: F401

    from edgeconv.quantize import choose, own_scales  # noqa: F401

    return job


def quantize(job: QuantizeJob) -> QuantizeAnswer:
    """Make the file of the job.

    Raises `ToolFailed` where nothing can be made of the graph, `InputRefused` for samples that
    give senseless ranges, and `UsageError` for options that do not fit the graph or its samples.
    """
    settle_process()
    from edgeconv.quantize.own_scales import find_shared_scales, with_own_scales

    search = method_search(job.graph, dense_per_tensor=job.dense_per_tensor)
    recipe, shared = with_own_scales(job.recipe, find_shared_scales(search.graph, job.recipe))
    file, record, choosing_s = search.file(recipe)
    Path(job.file).write_bytes(file.model)
    return QuantizeAnswer(
        notes=file.notes,
        post_training=record,
        float_operators=file.float_operators,
        shared_scales=shared,
        choosing_s=choosing_s,
    )


@functools.cache
def calibrated(graph: GraphFile) -> CalibratedGraph:
    """The graph with its calibration, which stays in the memory of this process."""
    from edgeconv.data import read_samples
    from edgeconv.quantize.calibrate import CalibratedGraph, Feed

    if graph.quantized is not None:
        own = calibrated(msgspec.structs.replace(graph, quantized=None))
        quantized = Path(graph.quantized).read_bytes()
        return CalibratedGraph(own.model, own.feeds, threads=own.threads, quantized=quantized)
    feeds = {
        part.signature: Feed(read_samples(Path(part.samples)).arrays, part.batch)
        for part in graph.parts
        if part.samples is not None
    }
    return CalibratedGraph(Path(graph.float_model).read_bytes(), feeds, threads=graph.threads)


@functools.cache
def method_search(graph: GraphFile, *, dense_per_tensor: bool = False) -> MethodSearch:
    """What makes files of the graph, kept like `calibrated`."""
    from edgeconv.quantize.choose import MethodSearch

    return MethodSearch(calibrated(graph), dense_per_tensor=dense_per_tensor)


def settle_process() -> None:
    """Make a child quiet and its linear algebra reproducible, before numpy is imported.

    The quantizer logs every step, and warns of the interpreter mode that it sets.
    """
    os.environ.update(ENVIRONMENT)
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*experimental_preserve_all_tensors.*")
