"""Rules for single layers: from text, and held against a float graph."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, get_args

from edgeconv.errors import UsageError, closest, unknown_name
from edgeconv.types import FULL_INTEGER, LayerRule, Precision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgeconv.tflite import FloatLayer
    from edgeconv.types import Recipe

# The precisions that a layer of a recipe without integer activations cannot have.
_INTEGER_ACTIVATIONS: frozenset[Precision] = frozenset({"int16x8"})
BLOCKS: Precision = "int4-block32"
_FLOATS: frozenset[Precision] = frozenset({"float32", "float16"})


class RuledLayer(NamedTuple):
    """A layer of the float graph, and the precision that the rules give it."""

    layer: FloatLayer
    precision: Precision

    @property
    def is_float(self) -> bool:
        """Whether it computes in float."""
        return self.precision in _FLOATS


def parse_rule(text: str) -> LayerRule:
    """A rule from `PATTERN=PRECISION`. Raises `UsageError`."""
    pattern, equals, precision = text.rpartition("=")
    if not (pattern and equals):
        raise UsageError(
            f"--layer {text}: not of the form PATTERN=PRECISION",
            hint="as in --layer 'DEPTHWISE_CONV_2D=int8' or --layer '*/logits/*=float32'",
        )
    if precision not in get_args(Precision):
        raise unknown_name("precision", precision, get_args(Precision))
    return LayerRule(pattern=pattern, precision=precision)  # type: ignore[arg-type]


def ruled_layers(layers: Sequence[FloatLayer], recipe: Recipe) -> dict[str, RuledLayer]:
    """Those of a float graph's layers for which the recipe has a rule, by name.

    Raises `UsageError` for a rule that no layer fits, for two that contradict each other, and
    for a precision that the layer or the recipe cannot have.
    """
    ruled: dict[str, RuledLayer] = {}
    by: dict[str, LayerRule] = {}
    for rule in recipe.layers:
        for layer in _fitting(rule, layers, recipe):
            before = by.setdefault(layer.name, rule)
            if before.precision != rule.precision:
                raise UsageError(
                    f"two rules contradict each other for the layer {layer.name!r}: "
                    f"{_text(before)} and {_text(rule)}",
                    hint="make one of the patterns narrower",
                )
            ruled[layer.name] = RuledLayer(layer, rule.precision)
    return ruled


def rule_notes(layers: Sequence[FloatLayer], recipe: Recipe) -> tuple[str, ...]:
    """Which layers with weights a rule for blocks fits that cannot have them."""
    unable = [layer for layer in layers if layer.weights and not layer.can_have_blocks]
    notes = []
    for rule in recipe.layers:
        left = [layer.name for layer in unable if _fits(rule, layer)]
        if rule.precision == BLOCKS and left:
            notes.append(
                f"{_text(rule)} leaves {', '.join(left)} as they are: blocks of 32 weights are "
                "for FULLY_CONNECTED whose inputs divide by 32"
            )
    return tuple(notes)


def weight_bits(
    layers: Sequence[FloatLayer], recipe: Recipe, ruled: Mapping[str, RuledLayer]
) -> dict[str, int]:
    """The bits of the weights, by name, of every layer that is not to have 8."""
    four = {layer.name for layer in layers if layer.can_have_four_bits}
    if not recipe.has_four_bits:
        four &= ruled.keys()
    return {name: 4 for name in four if name not in ruled or ruled[name].precision == "int4"}


def _fitting(
    rule: LayerRule, layers: Sequence[FloatLayer], recipe: Recipe
) -> tuple[FloatLayer, ...]:
    _refuse_precision(rule, recipe)
    fitting = tuple(layer for layer in layers if _fits(rule, layer))
    if not fitting:
        names = {layer.name for layer in layers} | {layer.operator for layer in layers}
        near = closest(rule.pattern, names)
        raise UsageError(
            f"no layer fits the pattern {rule.pattern!r} of {_text(rule)}",
            hint=f"did you mean {near!r}?" if near else "`edgeconv debug` lists the layers",
        )
    able = tuple(layer for layer in fitting if _takes(layer, rule.precision))
    if able:
        return able
    if rule.precision == BLOCKS:
        raise UsageError(
            f"{_text(rule)}: none of its {len(fitting)} layers can have blocks of 32 weights",
            hint="FULLY_CONNECTED can, where its inputs divide by 32; int4 has one for a channel",
        )
    raise UsageError(
        f"{_text(rule)}: none of its {len(fitting)} layers can have weights of 4 bits",
        hint="CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED can",
    )


def _takes(layer: FloatLayer, precision: Precision) -> bool:
    if precision == BLOCKS:
        return layer.can_have_blocks
    return precision != "int4" or layer.can_have_four_bits


def _fits(rule: LayerRule, layer: FloatLayer) -> bool:
    exact = rule.pattern in (layer.name, layer.operator)
    return exact or fnmatchcase(layer.name, rule.pattern)


def _refuse_precision(rule: LayerRule, recipe: Recipe) -> None:
    if rule.precision == BLOCKS and recipe.name != "dynamic":
        raise UsageError(
            f"{_text(rule)}: with the recipe {recipe.name} no kernel takes a scale for every 32 "
            "weights",
            hint="choose the recipe dynamic, or int4 for the layer",
        )
    if rule.precision in _INTEGER_ACTIVATIONS and recipe.name not in FULL_INTEGER:
        raise UsageError(
            f"{_text(rule)}: the recipe {recipe.name} has float activations",
            hint="choose int8, or another precision for the layer",
        )


def _text(rule: LayerRule) -> str:
    return f"--layer '{rule.pattern}={rule.precision}'"
