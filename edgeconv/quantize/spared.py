"""The last step of `auto`: a few layers in higher precision, where no method makes a file close.

A front end whose filters span orders of magnitude, a normalization or a head may lose more than all
other layers together. The layers are measured one at a time, as in `sensitivity`, and as few of the
worst as make the file close are kept in 16 bits or in float.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.model.tflite import FloatLayer, multiplications
from edgeconv.quantize.quantize import MethodSettings, make_file, quantize_model
from edgeconv.quantize.rules import RuledLayer, ruled_layers, with_eight_bits
from edgeconv.quantize.trials import QuantizeTrials, comparison_feeds
from edgeconv.system.processes.progress import CountedLine
from edgeconv.system.processes.tasks import report_progress
from edgeconv.types import MAX_SNR_DB, LayerRule, Precision, Recipe, RecipeName
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.quantize.calibrate import CalibratedGraph

# The precisions in which layers are kept, the cheaper first.
_KEPT_IN: dict[RecipeName, tuple[Precision, ...]] = {
    "dynamic": ("float32",),
    "weight-only-int8": ("float32",),
    "int8": ("int16x8", "float32"),
    "int16x8": ("float32",),
    "weight-only-int4": ("int8", "float32"),
    "int8x4": ("int8", "float32"),
}
# What the file may grow by.
_MOST_GROWTH = 1.25
# More layers than this share are another recipe.
_MOST_LAYERS = 0.34
# An interpreter does about this many multiplications a second, and the layers may take as long.
_PRODUCTS_PER_S, _MOST_S = 4e9, 15.0
_MOST_MEASURED = 96
# Samples that show which layer costs more than another.
_ORDERING_SAMPLES = 8


class Sparing(NamedTuple):
    """A recipe with rules for `layers`, which are in `precision`."""

    recipe: Recipe
    layers: tuple[str, ...] = ()
    precision: Precision = "float32"


def sparings(
    graph: CalibratedGraph, recipe: Recipe, settings: MethodSettings, target_db: float
) -> Iterator[Sparing]:
    """Recipes with the fewest layers in a higher precision that reach about `target_db`.

    The first of each precision has as few layers as a plain file needs, on up to 32 calibration
    samples, and the next one twice as many. None for a graph with more layers than can be measured
    in 15 s, or with a file that TFLiteConverter made. Raises `ToolFailed` where no file is made.
    """
    trials = QuantizeTrials(graph, comparison_feeds(graph.feeds))
    layers = _able(graph, recipe)
    seconds = len(layers) * trials.samples * multiplications(graph.model) / _PRODUCTS_PER_S
    if graph.quantized is not None or not layers or seconds > _MOST_S:
        return
    if len(layers) > _MOST_MEASURED:
        return
    plain = MethodSettings(settings.calibration_range, ())
    largest = _MOST_GROWTH * len(make_file(graph, recipe, plain).model)
    worst = _worst_first(graph, recipe, layers)
    most = max(1, int(len(layers) * _MOST_LAYERS))
    for precision in _KEPT_IN[recipe.name]:
        if recipe.only_integers and precision == "float32":
            continue
        counts = [1 << power for power in range(most.bit_length())]
        for place, count in enumerate(counts):
            snr_db, size = _made(trials, _with(recipe, worst[:count], precision), plain)
            if size > largest:
                break
            if snr_db < target_db:
                continue
            low = counts[place - 1] if place else 0
            fewest = _fewest(trials, recipe, worst, precision, plain, target_db, low, count)
            for kept in dict.fromkeys((fewest, min(2 * fewest, most))):
                each = _with(recipe, worst[:kept], precision)
                if _made(trials, each, plain)[1] <= largest:
                    yield Sparing(
                        each, tuple(layer.short_name for layer in worst[:kept]), precision
                    )
            break


def _able(graph: CalibratedGraph, recipe: Recipe) -> tuple[FloatLayer, ...]:
    """The layers that no rule is for, each name once: of weight-only recipes those with weights."""
    ruled = ruled_layers(graph.layers, recipe).keys()
    layers = {each.name: each for each in graph.layers if each.name not in ruled}
    if recipe.full_integer and not recipe.has_four_bits:
        return tuple(layers.values())
    return tuple(each for each in layers.values() if each.compressible)


def _worst_first(
    graph: CalibratedGraph, recipe: Recipe, layers: Sequence[FloatLayer]
) -> list[FloatLayer]:
    """The layers by what each costs alone on a few samples, while all others are in float."""
    trials = QuantizeTrials(graph, comparison_feeds(graph.feeds, _ORDERING_SAMPLES))
    eight_bits = msgspec.structs.replace(with_eight_bits(recipe), layers=())
    bits = 16 if recipe.name == "int16x8" else 8
    ranges = graph.fitted("minmax", bits=bits).ranges if recipe.has_ranges else None
    costs: dict[str, float] = {}
    for number, layer in enumerate(layers):
        report_progress(CountedLine(f"{recipe.name}: what each layer costs", number, len(layers)))
        others = [RuledLayer(each, "float32") for each in graph.layers if each.name != layer.name]
        try:
            model, _ = quantize_model(graph.model, eight_bits, ranges, others)
            costs[layer.name] = trials.snr_db(model)
        except (ToolFailed, InputRefused):
            costs[layer.name] = MAX_SNR_DB
    return sorted(layers, key=lambda layer: costs[layer.name])


def _with(recipe: Recipe, layers: Sequence[FloatLayer], precision: Precision) -> Recipe:
    rules = dict.fromkeys(LayerRule(pattern=each.name, precision=precision) for each in layers)
    return msgspec.structs.replace(recipe, layers=(*recipe.layers, *rules))


def _made(trials: QuantizeTrials, recipe: Recipe, settings: MethodSettings) -> tuple[float, float]:
    """The ratio in decibels and the bytes of a plain file; the worst of one that does not run."""
    floating = msgspec.structs.replace(recipe, input_type="float32", output_type="float32")
    try:
        trial = trials.run(floating, settings)
    except (ToolFailed, UsageError):
        return -MAX_SNR_DB, 0.0
    return trial.snr_db, float(len(trial.file.model))


def _fewest(
    trials: QuantizeTrials,
    recipe: Recipe,
    worst: Sequence[FloatLayer],
    precision: Precision,
    settings: MethodSettings,
    target_db: float,
    low: int,
    high: int,
) -> int:
    """The fewest of the worst layers that reach the target, more than `low`, by bisection."""
    while high - low > 1:
        middle = (low + high) // 2
        is_enough = _made(trials, _with(recipe, worst[:middle], precision), settings)[0]
        low, high = (low, middle) if is_enough >= target_db else (middle, high)
    return high
