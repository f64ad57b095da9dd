"""One file from a float graph: methods on the graph, the quantiser, methods on its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.quantize.engine import quantize_bytes
from edgeconv.quantize.ranges.clipping import MIN_SAMPLES as RANGE_SAMPLES
from edgeconv.quantize.refine.refining import MIN_SAMPLES, refined
from edgeconv.quantize.rules import BLOCKS, rule_notes, ruled_layers, weight_bits
from edgeconv.tflite import with_uint8_io

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edgeconv.quantize.graph import CalibratedGraph
    from edgeconv.quantize.refine.refining import Refined
    from edgeconv.types import CalibrationRange, PostTrainingMethod, Recipe


class Setting(NamedTuple):
    """The ranges and the methods of one file."""

    calibration_range: CalibrationRange
    methods: tuple[PostTrainingMethod, ...]


class Made(NamedTuple):
    """A quantised file, what a user ought to know of it, and what is in float by a rule.

    `four_bit` names the layers whose weights have 4 bits, `float_operators` the operators of
    the layers that a rule leaves in float.
    """

    model: bytes
    notes: tuple[str, ...] = ()
    four_bit: tuple[str, ...] = ()
    float_operators: tuple[str, ...] = ()


def make(
    graph: CalibratedGraph, recipe: Recipe, setting: Setting, *, dense_per_tensor: bool = False
) -> Made:
    """The file that `recipe` gives with this setting.

    Raises `ToolFailed` with the quantiser's reason, `UsageError` for rules that do not fit the
    graph and for fewer samples than a method needs.
    """
    _refuse_few_samples(graph, recipe, setting)
    notes: tuple[str, ...] = ()
    if "equalisation" in setting.methods:
        graph, notes = graph.equalised
    ruled = ruled_layers(graph.model, recipe)
    notes += rule_notes(graph.model, recipe)
    ranges = None
    if recipe.has_ranges:
        bits = 16 if recipe.name == "int16x8" else 8
        ranges, more = graph.fitted(setting.calibration_range, bits=bits)
        notes += more
    model = quantize_bytes(
        graph.model, recipe, ranges, ruled.values(), dense_per_tensor=dense_per_tensor
    )
    layerwise = frozenset(method for method in setting.methods if method != "equalisation")
    bits_by_layer = weight_bits(graph.model, recipe, ruled)
    four_bit = tuple(name for name, one in ruled.items() if one.precision == BLOCKS)
    if layerwise or bits_by_layer:
        done = refined(
            model,
            graph.model,
            graph.feeds,
            methods=layerwise,
            weight_bits=bits_by_layer,
            threads=graph.threads,
        )
        model, notes = done.model, notes + done.notes
        if done.layers:
            four_bit = tuple(layer.name for layer in done.layers if layer.bits == 4)
        _refuse_nothing_done(recipe, layerwise, bits_by_layer, done)
    return Made(
        model=_with_io(model, recipe),
        notes=notes,
        four_bit=four_bit,
        float_operators=tuple(sorted({r.layer.operator for r in ruled.values() if r.is_float})),
    )


def _refuse_nothing_done(
    recipe: Recipe, methods: Iterable[str], bits: Mapping[str, int], done: Refined
) -> None:
    """A file that is not what was asked for is none, however good it may be."""
    why = "; ".join(done.notes)
    if bits and not any(layer.bits == 4 for layer in done.layers):
        raise ToolFailed(
            f"{recipe.name}: no weights of 4 bits could be made: {why or 'no layer took them'}"
        )
    if not done.layers and why:
        raise ToolFailed(
            f"{recipe.name} with {', '.join(sorted(methods))}: {why}",
            hint="leave these methods out",
        )


def _with_io(model: bytes, recipe: Recipe) -> bytes:
    uint8 = {"inputs": recipe.input_type == "uint8", "outputs": recipe.output_type == "uint8"}
    return with_uint8_io(model, **uint8) if any(uint8.values()) else model


def _refuse_few_samples(graph: CalibratedGraph, recipe: Recipe, setting: Setting) -> None:
    wanted: dict[str, int] = {
        method: MIN_SAMPLES[method] for method in setting.methods if method != "equalisation"
    }
    if recipe.has_ranges:
        wanted |= {m: n for m, n in RANGE_SAMPLES.items() if m == setting.calibration_range}
    for name, count in wanted.items():
        for key, feed in graph.feeds.items():
            if feed.samples < count:
                raise UsageError(
                    f"{name} needs at least {count} calibration samples, and there are "
                    f"{feed.samples} for signature {key!r}",
                    hint="give more with --calibration and --samples, or leave it out",
                )
