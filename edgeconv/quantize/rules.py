"""Rules for single layers, held against a float graph."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

from edgeconv.model.tflite import FloatLayer
from edgeconv.model.tflite.kernels import COMPARISONS, IntegerType, has_kernel
from edgeconv.model.tflite.layers import COMPRESSIBLE
from edgeconv.model.tflite.operators import BRIDGES, RULED
from edgeconv.types import FULL_INTEGER, LayerRule, Precision, Recipe, RecipeName
from edgeconv.types.errors import UsageError
from edgeconv.types.words import listed, quoted

# The precisions that a layer of a recipe without integer activations cannot have.
_INTEGER_ACTIVATIONS: frozenset[Precision] = frozenset({"int16x8"})
BLOCKS: Precision = "int4-block32"
# How many names a message lists.
_NAMED = 5
_FLOATS: frozenset[Precision] = frozenset({"float32", "float16"})
# What the layers that a 4-bit recipe keeps at 8 bits may add to the file, as a fraction of it.
_KEPT_GROWTH = 0.02
# TFLiteConverter's dynamic files have weights of fewer numbers in float: ours are no larger.
_SMALL = 1024


class _Storing(NamedTuple):
    """What a recipe's weights take, and what those that stay in float may add to the file.

    `saved` are the bytes by which a number is smaller than in float, `scale` those of a scale and
    its zero point, and `layer` those of all else that a layer needs for it. `growth` is a fraction
    of the file.
    """

    saved: int
    scale: int
    layer: int
    growth: float


_STORING: dict[RecipeName, _Storing] = {
    # A quarter is what other layers may cost that are kept in float, see `spared`.
    "dynamic": _Storing(3, 12, 60, 0.25),
    "weight-only-int8": _Storing(3, 12, 172, 0.05),
    "weight-only-int4": _Storing(3, 12, 172, 0.0),
    "float16": _Storing(2, 0, 204, 0.0),
}


class RuledLayer(NamedTuple):
    """A layer of the float graph, and the precision that the rules give it."""

    layer: FloatLayer
    precision: Precision

    @property
    def is_float(self) -> bool:
        """Whether it computes in float."""
        return self.precision in _FLOATS


def ruled_layers(
    layers: Sequence[FloatLayer], recipe: Recipe, before: Sequence[FloatLayer] = ()
) -> dict[str, RuledLayer]:
    """Those of a float graph's layers for which the recipe has a rule, by name.

    A rule for one of the layers `before` the graph was rewritten may fit none that is left. Raises
    `UsageError` for a rule that no layer fits, for two that contradict each other, and for a
    precision that the layer or the recipe cannot have.
    """
    ruled: dict[str, RuledLayer] = {}
    by: dict[str, LayerRule] = {}
    for rule in recipe.layers:
        for layer in _fitting(rule, layers, recipe, before):
            first = by.setdefault(layer.name, rule)
            if first.precision != rule.precision:
                raise UsageError(
                    f"two rules contradict each other for the layer {layer.short_name!r}: "
                    f"{_text(first)} and {_text(rule)}",
                    hint="make one of the patterns narrower",
                )
            ruled[layer.name] = RuledLayer(layer, rule.precision)
    return ruled


def float_outputs(layers: Sequence[FloatLayer], recipe: Recipe) -> tuple[str, ...]:
    """The outputs of the layers that rules of the recipe leave in float, sorted.

    Rules that fit no layer are another function's to refuse.
    """
    return tuple(
        sorted(
            output
            for rule in recipe.layers
            if rule.precision in _FLOATS
            for layer in _matching(rule.pattern, layers)
            for output in layer.outputs
        )
    )


def unruled_floats(recipe: Recipe, groups: Iterable[Collection[str]]) -> tuple[str, ...]:
    """The operators of a full-integer file that compute in float, and no rule says so, sorted.

    `groups` are the file's `float_groups`. In a group, an operator without weights that has a
    kernel is in float for its neighbors, if one of them has none or is `RULED`. () for recipes
    with float activations.
    """
    if not recipe.full_integer:
        return ()
    integers: IntegerType = "int16" if recipe.name == "int16x8" else "int8"
    left = set[str]()
    for group in groups:
        causes = {name for name in group if not (name in BRIDGES or has_kernel(name, integers))}
        left |= causes | COMPRESSIBLE.intersection(group) if causes else set(group)
    # Comparisons of floats are left on purpose.
    return tuple(sorted(left - {RULED} - (frozenset() if recipe.only_integers else COMPARISONS)))


def rule_notes(layers: Sequence[FloatLayer], recipe: Recipe) -> tuple[str, ...]:
    """Which layers with weights a rule for blocks fits that cannot have them."""
    unable = [layer for layer in layers if layer.weights and not layer.can_have_blocks]
    notes = []
    for rule in recipe.layers:
        fitting = _matching(rule.pattern, layers)
        left = [layer.short_name for layer in unable if layer in fitting]
        if rule.precision == BLOCKS and left:
            notes.append(
                f"{_text(rule)} leaves {', '.join(left)} as they are: blocks of 32 weights are "
                "for FULLY_CONNECTED whose inputs divide by 32"
            )
        # Keras 3 calls the tensors of "dense" dense_1.
        by_name = [layer for layer in fitting if fnmatchcase(layer.short_name, rule.pattern)]
        others = [layer.short_name for layer in fitting if layer not in by_name]
        if by_name and others:
            notes.append(
                f"{_text(rule)} fits {listed(others, _NAMED)} too, by the names of their tensors"
            )
    return tuple(notes)


def weight_bits(
    layers: Sequence[FloatLayer],
    recipe: Recipe,
    ruled: Mapping[str, RuledLayer],
    kept: Collection[str] = (),
) -> dict[str, int]:
    """The bits of the weights, by name, of every layer that is not to have 8.

    `kept` are the `kept_layers` of the recipe. A rule has precedence.
    """
    able = {layer.name for layer in layers if layer.can_have_four_bits}
    four = able & ruled.keys()
    if recipe.has_four_bits:
        four |= able - set(kept)
    return {name: 4 for name in four if name not in ruled or ruled[name].precision == "int4"}


def with_eight_bits(recipe: Recipe) -> Recipe:
    """The recipe with weights of 8 bits, where it has some of 4: those hide what activations lose.

    Both have the same activations.
    """
    rules = tuple(rule for rule in recipe.layers if not rule.precision.startswith("int4"))
    name: RecipeName = "int8" if recipe.name == "int8x4" else recipe.name
    return msgspec.structs.replace(recipe, name=name, layers=rules)


def kept_layers(layers: Sequence[FloatLayer], recipe: Recipe, float_bytes: int) -> tuple[str, ...]:
    """The names of the layers that a 4-bit recipe keeps at 8 bits, in the order of the graph.

    The first, the last and depthwise layers, then those with the fewest weights, up to a file that
    is 2 % larger, and never the layer with the most weights. The recipe's rules do not change which
    ones. `float_bytes` is the size of the float graph.
    """
    weights: dict[str, int] = {}
    for layer in layers:
        if layer.can_have_four_bits:
            weights[layer.name] = weights.get(layer.name, 0) + layer.weights
    if not (recipe.has_four_bits and weights):
        return ()
    names = list(weights)
    sensitive = {names[0], names[-1]}
    sensitive |= {layer.name for layer in layers if layer.operator == "DEPTHWISE_CONV_2D"}
    left_bytes = _KEPT_GROWTH * _four_bit_bytes(layers, float_bytes)
    kept = set()
    heaviest = max(names, key=lambda name: weights[name])
    for name in sorted(names, key=lambda name: (name not in sensitive, weights[name])):
        extra_bytes = weights[name] / 2
        if name != heaviest and extra_bytes <= left_bytes:
            kept.add(name)
            left_bytes -= extra_bytes
    return tuple(name for name in names if name in kept)


def small_layers(
    layers: Sequence[FloatLayer], recipe: Recipe, ruled: Collection[str], float_bytes: int
) -> tuple[RuledLayer, ...]:
    """The layers without a rule whose weights stay in float, since they save too little.

    Every layer loses about as much accuracy by its weights, many or few. So those stay in float
    whose scales take more bytes than the numbers save; and of the small ones those that save less
    than the mean of all layers, the least first, up to a part of the file. Never the layer that
    saves most. `float_bytes` is the size of the float graph.
    """
    able = [each for each in layers if each.compressible and each.name not in ruled]
    if recipe.name not in _STORING or not able:
        return ()
    stored = _STORING[recipe.name]
    # By what is stored, which layers may share.
    by = {each.buffer or each.name: each for each in able}
    saved = {
        key: stored.saved * each.compressible - stored.scale * each.channels - stored.layer
        for key, each in by.items()
    }
    left_bytes = stored.growth * (float_bytes - sum(each for each in saved.values() if each > 0))
    mean = sum(saved.values()) / len(saved)
    small = set[int | str]()
    for key in sorted(saved, key=lambda key: saved[key])[:-1]:
        if saved[key] > 0:
            left_bytes -= saved[key]
            if left_bytes < 0 or saved[key] >= mean or by[key].compressible >= _SMALL:
                break
        small.add(key)
    kept = (each for each in able if (each.buffer or each.name) in small)
    return tuple(RuledLayer(each, "float32") for each in kept)


def _four_bit_bytes(layers: Sequence[FloatLayer], float_bytes: int) -> float:
    """About the size of the file with weights of 4 bits wherever a kernel takes them."""
    stored = {True: 0.5, False: 1.0}
    weights = sum(stored[each.can_have_four_bits] * each.compressible for each in layers)
    # Operators may share weights.
    return max(weights, float_bytes - 4 * sum(each.compressible for each in layers) + weights)


def _fitting(
    rule: LayerRule,
    layers: Sequence[FloatLayer],
    recipe: Recipe,
    before: Sequence[FloatLayer],
) -> tuple[FloatLayer, ...]:
    _refuse_precision(rule, recipe)
    fitting = _matching(rule.pattern, layers)
    if not fitting and _matching(rule.pattern, before):
        return ()
    if not fitting:
        raise UsageError(
            f"no layer fits the pattern {rule.pattern!r} of {_text(rule)}",
            hint=_similar_names(rule.pattern, layers),
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


def _matching(pattern: str, layers: Sequence[FloatLayer]) -> tuple[FloatLayer, ...]:
    """The layers with this name or operator; where there is none, those that the pattern fits."""
    exact = [each for each in layers if pattern in (each.short_name, each.name, each.operator)]
    return tuple(
        exact
        or (
            layer
            for layer in layers
            if fnmatchcase(layer.short_name, pattern) or fnmatchcase(layer.name, pattern)
        )
    )


def _similar_names(pattern: str, layers: Sequence[FloatLayer]) -> str:
    """A hint with the names that a pattern may mean, the likeliest first."""
    names = list(dict.fromkeys(layer.short_name or layer.name for layer in layers))
    inner = [name for name in names if name.endswith(f"/{pattern}")]
    if inner:
        return f"it may be {quoted(inner[:_NAMED])}; '*/{pattern}' means all of them"
    operators = {layer.operator for layer in layers}
    near = get_close_matches(pattern, [*operators, *names], _NAMED)
    near = near or get_close_matches(pattern, [layer.name for layer in layers], _NAMED)
    text = pattern.strip("*").lower()
    near += [name for name in names if text and text in name.lower()]
    return (
        f"did you mean {quoted(tuple(dict.fromkeys(near))[:_NAMED])}?"
        if near
        else f"the layers are {listed(names, _NAMED)}; `edgeconv debug` lists them"
    )


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
