"""A quantized file taken apart: what each layer costs, and rules for the worst that were tried."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import ToolFailed
from edgeconv.processes.tasks import report_progress
from edgeconv.quantize.choose import answers, lowest_snr_db
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.rules import BLOCKS, ruled_layers, weight_bits
from edgeconv.quantize.sensitivity import comparison_feeds, sensitivities_of
from edgeconv.quantize.worker import GraphFile, calibrated, chooser, settle_process
from edgeconv.statistics.outputs import output_errors
from edgeconv.tflite import float_layers, output_steps
from edgeconv.types import (
    MAX_SNR_DB,
    DebuggedLayer,
    LayerFix,
    LayerRule,
    OutputError,
    PostTraining,
    Precision,
    Recipe,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edgeconv.quantize.calibrate import CalibratedGraph
    from edgeconv.tflite import FloatLayer

_BITS: dict[Precision, float] = {
    "float32": 32,
    "float16": 16,
    "int16x8": 8,
    "int8": 8,
    "int4": 4,
    # With a scale of 16 bits for every 32.
    "int4-block32": 4.5,
}
# So many of the worst layers are tried in another precision.
_WORST = 6


class DebugJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the child is to do: make `file` from the float graph by the recipe, and look into it."""

    graph: GraphFile
    recipe: Recipe
    file: str


class DebugAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; as in `Debugged`, the layers in the order of the graph."""

    outputs: tuple[OutputError, ...]
    snr_db: float
    samples: int
    layers: tuple[DebuggedLayer, ...]
    fixes: tuple[LayerFix, ...]
    post_training: PostTraining | None
    notes: tuple[str, ...]


def debug_file(job: DebugJob) -> DebugAnswer:
    """Make the file, quantize each layer alone, and try rules for the worst. Runs in a child.

    Raises `ToolFailed` where the file cannot be made or does not run, and `UsageError` for
    options that do not fit the graph or its samples.
    """
    settle_process()
    report_progress(f"quantizing to {job.recipe.name}")
    made, record = chooser(job.graph).file(job.recipe)
    Path(job.file).write_bytes(made.model)
    trials = _Trials(calibrated(job.graph), job.recipe, record)
    outputs = trials.outputs(made.model)
    snr_db = min((error.snr_db for error in outputs), default=MAX_SNR_DB)
    layers = debugged_layers(trials.graph, job.recipe)
    return DebugAnswer(
        outputs=outputs,
        snr_db=snr_db,
        samples=sum(feed.samples for feed in trials.judging.values()),
        layers=layers,
        fixes=tuple(trials.of(layers, snr_db)),
        post_training=record,
        notes=made.notes,
    )


def debugged_layers(graph: CalibratedGraph, recipe: Recipe) -> tuple[DebuggedLayer, ...]:
    """Every layer of the graph in its order, with what it costs when it alone is quantized."""
    layers = {layer.name: layer for layer in float_layers(graph.model)}
    given = given_precisions(graph.model, recipe)
    asked = [
        (layer, precision)
        for name, layer in layers.items()
        for precision in _parts_of(given[name], recipe)
    ]
    cost: dict[str, float] = {}
    for one in sensitivities_of(graph, asked, weights_only=not recipe.full_integer):
        cost[one.layer] = min(one.snr_db, cost.get(one.layer, one.snr_db))
    return tuple(
        DebuggedLayer(
            layer=name,
            operator=layer.operator,
            place=place,
            weights=layer.weights,
            weight_bytes=math.ceil(layer.weights * _BITS[given[name]] / 8),
            precision=given[name] if name in cost else "float32",
            alone_snr_db=cost.get(name),
        )
        for place, (name, layer) in enumerate(layers.items(), start=1)
    )


def given_precisions(model: bytes, recipe: Recipe) -> dict[str, Precision]:
    """The precision that a recipe and its rules ask for, by layer.

    Whether the quantizer can follow is another matter.
    """
    ruled = ruled_layers(model, recipe)
    four = weight_bits(model, recipe, ruled)
    return {
        layer.name: ruled[layer.name].precision
        if layer.name in ruled
        else "int4"
        if layer.name in four
        else _usual(layer, recipe)
        for layer in float_layers(model)
    }


def _usual(layer: FloatLayer, recipe: Recipe) -> Precision:
    if recipe.name == "float16":
        return "float16" if layer.can_have_four_bits else "float32"
    if recipe.name == "int16x8":
        return "int16x8"
    return "int8" if recipe.full_integer or layer.weights else "float32"


def _parts_of(precision: Precision, recipe: Recipe) -> tuple[Precision, ...]:
    """What to measure alone: of a layer in float nothing, with int4 the activations too."""
    if precision == "float32":
        return ()
    return ("int4", "int8") if precision == "int4" and recipe.full_integer else (precision,)


def _lifts(recipe: Recipe) -> tuple[Mapping[Precision, Precision], ...]:
    """The next better precision of a layer by that it has: a mild way, and one to float."""
    if not recipe.full_integer:
        return ({"int4": "int8", BLOCKS: "int8", "int8": "float16", "float16": "float32"},)
    return (
        {"int4": "int8", "int8": "int16x8", "int16x8": "float32"},
        {"int4": "float32", "int8": "float32"},
    )


class _Trials:
    """The same recipe with rules for its worst layers, made and measured."""

    def __init__(self, graph: CalibratedGraph, recipe: Recipe, record: PostTraining | None) -> None:
        self.graph = graph
        self.judging = comparison_feeds(graph.feeds)
        self._recipe = recipe
        self._expected = answers(graph.model, self.judging, threads=graph.threads)
        self._setting = (
            MethodSettings(record.calibration_range, record.methods)
            if record
            else MethodSettings(recipe.calibration_range, ())
        )

    def outputs(self, made: bytes) -> tuple[OutputError, ...]:
        """How far each output of the file is from the float model's. Raises `ToolFailed`."""
        actual = answers(made, self.judging, threads=self.graph.threads)
        found: list[OutputError] = []
        for key in self.judging:
            want, have = (
                {name: array for (of, name), array in every.items() if of == key}
                for every in (self._expected, actual)
            )
            found += output_errors(want, have, output_steps(made, key))
        return tuple(found)

    def snr_db(self, made: bytes) -> float:
        """The lowest of all outputs. Raises `ToolFailed`."""
        return lowest_snr_db(
            self._expected, answers(made, self.judging, threads=self.graph.threads)
        )

    def of(self, layers: Sequence[DebuggedLayer], snr_db: float) -> Iterator[LayerFix]:
        """The fixes tried; `snr_db` is that of the file without any.

        One layer after the other, the worst first, gets a rule, which stays if the outputs are
        better with it: errors of several layers may also cancel each other.
        """
        named = ruled_layers(self.graph.model, self._recipe)
        every = float_layers(self.graph.model)
        costly = [each for each in worst_first(layers) if each.alone_snr_db is not None]
        worst = [layer for layer in costly if layer.layer not in named][:_WORST]
        for lift in _lifts(self._recipe):
            rules, best_db = tuple[LayerRule, ...](), snr_db
            for layer in worst:
                # With a rule for each layer it would be another recipe.
                if layer.precision not in lift or len(rules) + 1 == len(costly):
                    continue
                rule = LayerRule(pattern=pattern_of(layer, every), precision=lift[layer.precision])
                report_progress(f"trying {rule.precision} for {layer.layer}")
                fix = self._tried((*rules, rule))
                if fix is None:
                    continue
                yield fix
                if fix.snr_db > best_db:
                    rules, best_db = fix.rules, fix.snr_db

    def _tried(self, rules: tuple[LayerRule, ...]) -> LayerFix | None:
        recipe = msgspec.structs.replace(self._recipe, layers=(*self._recipe.layers, *rules))
        try:
            made = make_file(self.graph, recipe, self._setting)
            snr_db = self.snr_db(made.model)
        except ToolFailed:
            return None
        return LayerFix(rules=rules, snr_db=snr_db, size_bytes=len(made.model))


def worst_first(layers: Sequence[DebuggedLayer]) -> list[DebuggedLayer]:
    """The layers by what they cost alone, then by the error inside; those in float last."""

    def cost(layer: DebuggedLayer) -> tuple[bool, float, bool, float]:
        alone, inside = layer.alone_snr_db, layer.inside_snr_db
        return (alone is None, alone or 0.0, inside is None, inside or 0.0)

    return sorted(layers, key=cost)


def pattern_of(layer: DebuggedLayer, layers: Sequence[FloatLayer]) -> str:
    """The pattern of a rule for this layer alone: its name, shortened where that is enough.

    A converter joins the names of all that it fused with semicolons.
    """
    first, joined, _ = layer.layer.partition(";")
    short = f"{first};*"
    if not joined or any(character in first for character in "*?["):
        return layer.layer
    alone = sum(one.name.startswith(f"{first};") for one in layers) == 1
    return short if alone else layer.layer
