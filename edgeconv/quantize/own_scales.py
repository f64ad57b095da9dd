"""Rules that give the parts of an output their own scales, measured on calibration samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.processes.tasks import report_progress
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.rules import ruled_layers, with_eight_bits
from edgeconv.quantize.sensitivity import comparison_feeds
from edgeconv.quantize.trials import QuantizeTrials
from edgeconv.statistics.outputs import snr_db
from edgeconv.types import LayerRule, Precision, Recipe, ScalePart, SharedScale

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edgeconv.quantize.calibrate import CalibratedGraph
    from edgeconv.quantize.parted import PartedOutput
    from edgeconv.types import RecipeName

# Those whose activations have 8 bits.
_RECIPES: frozenset[RecipeName] = frozenset({"int8", "int8x4"})
# A part above this is close enough to float, and a rule has to gain this for the worst part.
CLOSE_DB = 30.0
_LEAST_GAIN_DB = 3.0


def find_shared_scales(graph: CalibratedGraph, recipe: Recipe) -> tuple[SharedScale, ...]:
    """The outputs whose parts share a scale although their ranges differ by more than 4 times.

    Each with the rules that help, tried on a file without methods and compared with the float
    graph on up to 32 calibration samples. An output for which `recipe` has a rule already is left
    out. None where no file can be made or run: that is an error of the conversion, not of this.
    """
    if recipe.name not in _RECIPES:
        return ()
    try:
        return tuple(_shared_scales(graph, recipe))
    except ToolFailed:
        return ()


def _shared_scales(graph: CalibratedGraph, recipe: Recipe) -> Iterator[SharedScale]:
    trials = QuantizeTrials(graph, comparison_feeds(graph.feeds))
    names = {layer.name: layer.short_name for layer in graph.layers}
    ruled = ruled_layers(graph.layers, recipe)
    for parted in trials.parted:
        if ruled.keys() & set(parted.layers):
            continue
        report_progress(f"{recipe.name}: the parts of {parted.output} share a scale")
        layers = tuple(names[layer] for layer in parted.layers)
        before = _part_snrs(trials, parted, recipe)
        rules, after = _best_rules(trials, parted, recipe, layers, before)
        yield SharedScale(
            signature=parted.signature,
            output=parted.output,
            layers=layers,
            parts=tuple(
                ScalePart(span=part.span, snr_db=each, own_snr_db=own)
                for part, each, own in zip(parted.parts, before, after, strict=True)
            ),
            rules=rules,
        )


def with_own_scales(
    recipe: Recipe, shared: Iterable[SharedScale]
) -> tuple[Recipe, tuple[SharedScale, ...]]:
    """The recipe with the rules that `auto` takes, and `shared` with those marked as applied.

    They are taken where a part is not close to float without them. Other recipes stay as they are.
    """
    if recipe.methods != ("auto",):
        return recipe, tuple(shared)
    marked = tuple(
        msgspec.structs.replace(
            each, applied=bool(each.rules) and min(p.snr_db for p in each.parts) < CLOSE_DB
        )
        for each in shared
    )
    rules = (rule for each in marked if each.applied for rule in each.rules)
    layers = (*recipe.layers, *dict.fromkeys(rules))
    return msgspec.structs.replace(recipe, layers=layers), marked


def _best_rules(
    trials: QuantizeTrials,
    parted: PartedOutput,
    recipe: Recipe,
    layers: tuple[str, ...],
    before: tuple[float, ...],
) -> tuple[tuple[LayerRule, ...], tuple[float | None, ...]]:
    """The first rules that help the worst part clearly, and the ratio of each part with them."""
    for rules in _candidates(parted.is_joined, layers, recipe):
        with_rules = msgspec.structs.replace(recipe, layers=(*recipe.layers, *rules))
        try:
            after = _part_snrs(trials, parted, with_rules)
        except (ToolFailed, UsageError):
            continue
        if min(after) >= min(before) + _LEAST_GAIN_DB:
            return rules, after
    return (), (None,) * len(before)


def _candidates(
    is_joined: bool, layers: tuple[str, ...], recipe: Recipe
) -> Iterator[tuple[LayerRule, ...]]:
    """Rules for all that gives the parts one scale, the cheaper first.

    What only joins costs nothing in float, since the output is float. A layer with weights keeps
    them in 8 bits where only its activations get 16. An integer output has one scale in any case.
    """
    if recipe.output_type != "float32":
        return
    precisions: tuple[Precision, ...] = ("float32", "int16x8")
    for precision in precisions if is_joined else reversed(precisions):
        yield tuple(LayerRule(pattern=layer, precision=precision) for layer in layers)


def _part_snrs(trials: QuantizeTrials, parted: PartedOutput, recipe: Recipe) -> tuple[float, ...]:
    """The signal-to-noise ratio of each part in the plain file of a recipe, in decibels.

    With weights of 8 bits: those of 4 hide what the scales of activations cost.
    """
    file = make_file(trials.graph, with_eight_bits(recipe), MethodSettings("minmax", ()))
    actual = trials.outputs(file.model)
    keys = [(parted.signature, name) for name in parted.names]
    with np.errstate(invalid="ignore", over="ignore"):
        return tuple(
            snr_db(
                float(np.var(trials.expected[key])),
                float(np.mean((actual[key] - trials.expected[key]) ** 2)),
            )
            for key in keys
        )
