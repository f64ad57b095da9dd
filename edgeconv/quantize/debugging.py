"""What each layer of a quantized file costs, and the changes that were tried to improve it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from edgeconv.model.tflite import FloatLayer, output_steps
from edgeconv.quantize.found_rules import with_found_rules
from edgeconv.quantize.quantize import MethodSettings
from edgeconv.quantize.rules import BLOCKS, kept_layers, ruled_layers, weight_bits
from edgeconv.quantize.sensitivity import sensitivities_of
from edgeconv.quantize.trials import QuantizeTrials, comparison_feeds
from edgeconv.quantize.worker import GraphFile, calibrated, method_search, settle_process
from edgeconv.statistics.outputs import output_errors
from edgeconv.system.processes.tasks import report_progress
from edgeconv.types import (
    MAX_SNR_DB,
    DebuggedLayer,
    LayerFix,
    LayerRule,
    OutputError,
    PostTraining,
    Precision,
    Recipe,
    RecipeName,
    SharedScale,
)
from edgeconv.types.errors import ToolFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edgeconv.quantize.calibrate import CalibratedGraph
    from edgeconv.quantize.choose import MethodSearch

_BITS: dict[Precision, float] = {
    "float32": 32,
    "float16": 16,
    "int16x8": 8,
    "int8": 8,
    "int4": 4,
    # With a scale of 16 bits for every 32.
    "int4-block32": 4.5,
}
# How many of the worst layers are tried in another precision.
_WORST = 6
# The recipe that keeps more of a model than the one that was debugged.
_BETTER_RECIPE: dict[RecipeName, RecipeName] = {
    "int8x4": "int8",
    "weight-only-int4": "weight-only-int8",
    "dynamic": "float16",
    "weight-only-int8": "float16",
    "int8": "int16x8",
}


class DebugJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the child is to do: make `file` from the float graph by the recipe, and look into it."""

    graph: GraphFile
    recipe: Recipe
    file: str


class DebugAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `DebugJob`; as in `Debugged`, with the layers in the order of the graph."""

    outputs: tuple[OutputError, ...]
    snr_db: float
    samples: int
    layers: tuple[DebuggedLayer, ...]
    fixes: tuple[LayerFix, ...]
    post_training: PostTraining | None
    shared_scales: tuple[SharedScale, ...]
    notes: tuple[str, ...]


def debug_file(job: DebugJob) -> DebugAnswer:
    """Make the file, quantize each layer alone, and try what may help. Runs in a child.

    Raises `ToolFailed` where the file cannot be made or does not run, and `UsageError` for
    options that do not fit the graph or its samples.
    """
    settle_process()
    report_progress(f"quantizing to {job.recipe.name}")
    graph, _ = calibrated(job.graph).with_kernels_for(job.recipe)
    graph, recipe, shared, kept = with_found_rules(graph, job.recipe)
    search = method_search(graph)
    file, record = search.file(recipe)[:2]
    Path(job.file).write_bytes(file.model)
    trials = QuantizeTrials(graph, comparison_feeds(graph.feeds))
    outputs = _output_errors(trials, file.model)
    snr_db = min((error.snr_db for error in outputs), default=MAX_SNR_DB)
    layers = debugged_layers(graph, recipe)
    methods, notes = _try_methods(search, trials, recipe)
    return DebugAnswer(
        outputs=outputs,
        snr_db=snr_db,
        samples=trials.samples,
        layers=layers,
        fixes=(
            *methods,
            *_try_rules(trials, recipe, record, layers, snr_db),
            *_try_better_recipe(trials, recipe),
        ),
        post_training=record,
        shared_scales=shared,
        notes=tuple(dict.fromkeys((*kept, *file.notes, *notes))),
    )


def _output_errors(trials: QuantizeTrials, model: bytes) -> tuple[OutputError, ...]:
    """How far each output of the file is from the float model's. Raises `ToolFailed`."""
    actual = trials.outputs(model)
    errors: list[OutputError] = []
    for key in trials.feeds:
        wanted_outputs, outputs = (
            {name: array for (signature, name), array in arrays.items() if signature == key}
            for arrays in (trials.expected, actual)
        )
        errors += output_errors(wanted_outputs, outputs, output_steps(model, key))
    return tuple(errors)


def debugged_layers(graph: CalibratedGraph, recipe: Recipe) -> tuple[DebuggedLayer, ...]:
    """Every layer of the graph in its order, with what it costs when it alone is quantized."""
    layers = {layer.name: layer for layer in graph.layers}
    precisions = layer_precisions(graph.layers, recipe, len(graph.model))
    pairs = [
        (layer, precision)
        for name, layer in layers.items()
        for precision in _parts_of(precisions[name], recipe)
    ]
    cost: dict[str, float] = {}
    names = {layer.short_name: name for name, layer in layers.items()}
    for measured in sensitivities_of(graph, pairs, weights_only=not recipe.full_integer):
        name = names[measured.layer]
        cost[name] = min(measured.snr_db, cost.get(name, measured.snr_db))
    return tuple(
        DebuggedLayer(
            layer=layer.short_name,
            tensor=name,
            operator=layer.operator,
            position=position,
            weights=layer.weights,
            weight_bytes=math.ceil(layer.weights * _BITS[precisions[name]] / 8),
            precision=precisions[name] if name in cost else "float32",
            alone_snr_db=cost.get(name),
        )
        for position, (name, layer) in enumerate(layers.items(), start=1)
    )


def layer_precisions(
    layers: Sequence[FloatLayer], recipe: Recipe, float_bytes: int
) -> dict[str, Precision]:
    """The precision that a recipe and its rules give each layer, if the quantizer can follow.

    `float_bytes` is the size of the float graph.
    """
    ruled = ruled_layers(layers, recipe)
    kept = kept_layers(layers, recipe, float_bytes)
    precisions: dict[str, Precision] = {layer.name: _usual(layer, recipe) for layer in layers}
    precisions |= dict.fromkeys(weight_bits(layers, recipe, ruled, kept), "int4")
    return precisions | {name: layer.precision for name, layer in ruled.items()}


def _usual(layer: FloatLayer, recipe: Recipe) -> Precision:
    if recipe.name == "float16":
        return "float16" if layer.can_have_four_bits else "float32"
    if recipe.name == "int16x8":
        return "int16x8"
    return "int8" if recipe.full_integer or layer.weights else "float32"


def _parts_of(precision: Precision, recipe: Recipe) -> tuple[Precision, ...]:
    """The precisions to measure alone: none for a layer in float, with int4 the activations too."""
    if precision == "float32":
        return ()
    return ("int4", "int8") if precision == "int4" and recipe.full_integer else (precision,)


def _lifts(recipe: Recipe) -> tuple[Mapping[Precision, Precision], ...]:
    """The next better precision by the one that a layer has: a mild change, and one to float."""
    if not recipe.full_integer:
        return ({"int4": "int8", BLOCKS: "int8", "int8": "float16", "float16": "float32"},)
    return (
        {"int4": "int8", "int8": "int16x8", "int16x8": "float32"},
        {"int4": "float32", "int8": "float32"},
    )


def _try_methods(
    search: MethodSearch, trials: QuantizeTrials, recipe: Recipe
) -> tuple[tuple[LayerFix, ...], tuple[str, ...]]:
    """The file of `--methods auto`, where the recipe does not name it, and notes if it fails."""
    if recipe.name == "float16" or recipe.methods == ("auto",):
        return (), ()
    try:
        # What the methods do depends on the ranges, and minmax may be nobody's wish.
        ranges = "auto" if recipe.calibration_range == "minmax" else recipe.calibration_range
        auto = replace(recipe, methods=("auto",), calibration_range=ranges)
        chosen = search.file(auto)
        file, record = chosen.file, chosen.record
        snr_db = trials.snr_db(file.model)
    except (ToolFailed, UsageError) as error:
        return (), (f"--methods auto was not tried: {error.message}",)
    if record is None or not record.trials:
        return (), (*file.notes, *chosen.notes)
    fix = LayerFix(
        methods=("auto",), post_training=record, snr_db=snr_db, size_bytes=len(file.model)
    )
    return (fix,), ()


def _try_better_recipe(trials: QuantizeTrials, recipe: Recipe) -> Iterator[LayerFix]:
    """The plain file of the next better recipe."""
    better = _BETTER_RECIPE.get(recipe.name)
    if better is None:
        return
    report_progress(f"trying {better}")
    other = replace(
        recipe,
        name=better,
        methods=(),
        calibration_range="minmax",
        input_type="float32",
        output_type="float32",
    )
    try:
        trial = trials.run(other, MethodSettings("minmax", ()))
    except (ToolFailed, UsageError):
        # A rule of the recipe that the other one cannot follow.
        return
    yield LayerFix(recipe=better, snr_db=trial.snr_db, size_bytes=len(trial.file.model))


def _try_rules(
    trials: QuantizeTrials,
    recipe: Recipe,
    record: PostTraining | None,
    layers: Sequence[DebuggedLayer],
    snr_db: float,
) -> Iterator[LayerFix]:
    """The rules tried; `snr_db` is that of the file without any.

    One layer after another, the worst first, gets a rule, which is kept if the outputs are
    better with it: errors of several layers may also cancel each other.
    """
    if record:
        settings = MethodSettings(record.calibration_range, record.methods)
    else:
        settings = MethodSettings(recipe.calibration_range, ())
    ruled = ruled_layers(trials.graph.layers, recipe)
    costly = [layer for layer in worst_first(layers) if layer.alone_snr_db is not None]
    worst = [layer for layer in costly if layer.tensor not in ruled][:_WORST]
    weighted = [layer for layer in costly if layer.weights] or costly
    for lift in _lifts(recipe):
        rules, best_db = tuple[LayerRule, ...](), snr_db
        for layer in worst:
            if layer.precision not in lift:
                continue
            rule = LayerRule(pattern=layer.layer, precision=lift[layer.precision])
            # With a rule for each layer, or all weights in float, it would be another recipe.
            counted = weighted if rule.precision == "float32" else costly
            if {each.layer for each in counted} <= {each.pattern for each in (*rules, rule)}:
                continue
            report_progress(f"trying {rule.precision} for {layer.layer}")
            with_rule = (*rules, rule)
            try:
                trial = trials.run(replace(recipe, layers=(*recipe.layers, *with_rule)), settings)
            except ToolFailed:
                continue
            yield LayerFix(rules=with_rule, snr_db=trial.snr_db, size_bytes=len(trial.file.model))
            if trial.snr_db > best_db:
                rules, best_db = with_rule, trial.snr_db


def worst_first(layers: Sequence[DebuggedLayer]) -> list[DebuggedLayer]:
    """The layers by what they cost alone, then by the error inside; those in float last."""

    def cost(layer: DebuggedLayer) -> tuple[bool, float, bool, float]:
        alone, inside = layer.alone_snr_db, layer.inside_snr_db
        return (alone is None, alone or 0.0, inside is None, inside or 0.0)

    return sorted(layers, key=cost)
