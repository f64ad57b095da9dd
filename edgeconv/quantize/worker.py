"""The first engine at work on one float graph, in a child that stays (`persistent`).

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

from edgeconv.model.tflite import (
    with_constants_once,
    with_needs_declared,
    with_open_shapes,
    without_unread_tensors,
)
from edgeconv.system.store import quantizer_module
from edgeconv.types import PostTraining, Precision, Recipe, Sensitivity, SharedScale

if TYPE_CHECKING:
    from edgeconv.quantize.calibrate import CalibratedGraph
    from edgeconv.quantize.choose import MethodSearch

# Sums in linear algebra depend on how many threads share them, and that on the machine.
ENVIRONMENT = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)

# By the graph, which stays in memory as long as its search.
_SEARCHES: dict[tuple[int, bool], MethodSearch] = {}


class QuantizePart(msgspec.Struct, frozen=True, kw_only=True):
    """A signature of the float graph, and its stored samples (see edgeconv.data).

    `samples` is None where no recipe needs calibration. `batch` is the leading dimension of
    the signature's inputs; `stacked` are those that have no such dimension. `states` are inputs,
    each with the output that is fed back to it.
    """

    signature: str
    samples: str | None
    batch: int
    stacked: frozenset[str] = frozenset()
    states: tuple[tuple[str, str], ...] = ()


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
    """What a user should know of the file; a rule leaves the tensors `float_outputs` in float.

    `details` are about how it was made. `choosing_s` is what choosing methods took, in seconds.
    """

    notes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    post_training: PostTraining | None = None
    float_outputs: tuple[str, ...] = ()
    shared_scales: tuple[SharedScale, ...] = ()
    choosing_s: float = 0.0


class SensitivityJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure. Every part of the graph needs samples."""

    graph: GraphFile
    precisions: tuple[Precision, ...]


class Sensitivities(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `SensitivityJob`, in the order of the graph."""

    layers: tuple[Sensitivity, ...]


class LoadJob(msgspec.Struct, frozen=True):
    """Nothing: what the engine is for comes later."""


def load_engine(job: LoadJob) -> LoadJob:
    """Import the engine, so that the first file need not wait for it."""
    settle_process()
    quantizer_module("calibrator")
    quantizer_module("quantizer")
    from edgeconv.quantize import choose, found_rules  # noqa: F401

    return job


def quantize(job: QuantizeJob) -> QuantizeAnswer:
    """Make the file of the job.

    Raises `ToolFailed` where nothing can be made of the graph, `InputRefused` for samples that
    give senseless ranges, and `UsageError` for options that do not fit the graph or its samples.
    """
    settle_process()
    from edgeconv.quantize.found_rules import with_found_rules

    graph, _ = calibrated(job.graph).with_kernels_for(job.recipe)
    ruled = with_found_rules(graph, job.recipe)
    chosen = method_search(ruled.graph, dense_per_tensor=job.dense_per_tensor).file(ruled.recipe)
    file = chosen.file
    model = with_constants_once(without_unread_tensors(with_open_shapes(file.model)))
    Path(job.file).write_bytes(with_needs_declared(model))
    return QuantizeAnswer(
        notes=(*ruled.notes, *chosen.notes),
        details=file.notes,
        post_training=chosen.record,
        float_outputs=file.float_outputs,
        shared_scales=ruled.shared,
        choosing_s=chosen.choosing_s,
    )


def measure_sensitivities(job: SensitivityJob) -> Sensitivities:
    """See `quantize.sensitivity.sensitivities`."""
    settle_process()
    from edgeconv.quantize.sensitivity import INTEGER_RECIPES, sensitivities

    graph = calibrated(job.graph)
    for precision in job.precisions:
        if precision in INTEGER_RECIPES:
            graph, _ = graph.with_kernels_for(INTEGER_RECIPES[precision][0])
    return Sensitivities(layers=sensitivities(graph, job.precisions))


@functools.cache
def calibrated(graph: GraphFile) -> CalibratedGraph:
    """The graph with its calibration, which stays in the memory of this process."""
    from edgeconv.data import read_samples
    from edgeconv.quantize.calibrate import CalibratedGraph, Feed

    if graph.quantized is not None:
        own = calibrated(msgspec.structs.replace(graph, quantized=None))
        quantized = Path(graph.quantized).read_bytes()
        return CalibratedGraph(
            own.model, own.feeds, threads=own.threads, quantized=quantized, states=own.states
        )
    feeds = {
        part.signature: Feed(
            read_samples(Path(part.samples)).arrays, part.batch, stacked=part.stacked
        )
        for part in graph.parts
        if part.samples is not None
    }
    return CalibratedGraph(
        Path(graph.float_model).read_bytes(),
        feeds,
        threads=graph.threads,
        states={part.signature: dict(part.states) for part in graph.parts if part.states},
    )


def method_search(graph: CalibratedGraph, *, dense_per_tensor: bool = False) -> MethodSearch:
    """What makes files of recipes from a graph, kept like `calibrated`."""
    from edgeconv.quantize.choose import MethodSearch

    key = (id(graph), dense_per_tensor)
    if key not in _SEARCHES:
        _SEARCHES[key] = MethodSearch(graph, dense_per_tensor=dense_per_tensor)
    return _SEARCHES[key]


def settle_process() -> None:
    """Make a child quiet and its linear algebra reproducible, before numpy is imported.

    The quantizer logs every step, and warns of the interpreter mode that it sets.
    """
    os.environ.update(ENVIRONMENT)
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*experimental_preserve_all_tensors.*")
