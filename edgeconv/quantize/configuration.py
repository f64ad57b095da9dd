"""A `Recipe` as ai-edge-quantizer's configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgeconv.quantize.rules import RuledLayer
    from edgeconv.tflite import FloatLayer
    from edgeconv.types import Precision, Recipe

_EVERYTHING = ".*"
# The same written otherwise: what the quantiser finds under a text that it has already is not
# moved behind what came since, and the last that fits wins.
_ENDS = "^.*"
_FLOAT16_OPERATORS = (
    "FULLY_CONNECTED",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "CONV_2D_TRANSPOSE",
    "EMBEDDING_LOOKUP",
)


def quantizer_recipe(
    recipe: Recipe,
    ruled: Iterable[RuledLayer] = (),
    *,
    dense_per_tensor: bool = False,
) -> list[dict[str, Any]]:
    """The configuration that makes ai-edge-quantizer follow `recipe`, 8 bits instead of 4.

    `ruled` are the layers of another precision. A full-integer recipe keeps the boundary
    integer where an integer type is asked for; uint8 is made from int8 afterwards, since the
    quantiser does not know it, and so are weights of 4 bits, since it knows them for some
    operators only; those in blocks it makes itself. `dense_per_tensor` gives the weights of
    FULLY_CONNECTED one scale instead of one a channel, which older runtimes do not have; a
    float16 recipe has no scales.
    """
    from ai_edge_quantizer import qtyping, recipe_manager

    manager = recipe_manager.RecipeManager()
    bits = 16 if recipe.name == "int16x8" else 8
    if recipe.name == "float16":
        _add_float16(manager, _EVERYTHING)
    else:
        _add_integers(manager, recipe, _EVERYTHING, activation_bits=bits)
    if dense_per_tensor and recipe.name != "float16":
        # What is added later holds for the operators that it names.
        _add_integers(
            manager, recipe, _EVERYTHING, "FULLY_CONNECTED", "TENSORWISE", activation_bits=bits
        )
    _add_rules(manager, recipe, ruled)
    if recipe.full_integer:
        for operation, io_type in (("INPUT", recipe.input_type), ("OUTPUT", recipe.output_type)):
            if io_type == "float32":
                _add_floats(manager, _ENDS, qtyping.TFLOperationName[operation])
    entries: list[dict[str, Any]] = manager.get_quantization_recipe()
    return entries


def _add_rules(manager: Any, recipe: Recipe, ruled: Iterable[RuledLayer]) -> None:
    by: dict[Precision, list[str]] = {}
    for one in ruled:
        by.setdefault(one.precision, []).append(_scope(one.layer))
    for precision, scopes in sorted(by.items()):
        scope = "|".join(scopes)
        if precision in ("float32", "float16"):
            _add_floats(manager, scope)
        if precision == "float16":
            _add_float16(manager, scope)
        if precision == "int16x8":
            _add_integers(manager, recipe, scope, activation_bits=16)
        if precision in ("int8", "int4"):
            _add_integers(manager, recipe, scope, activation_bits=8)
        if precision == "int4-block32":
            _add_blocks(manager, scope)


def _scope(layer: FloatLayer) -> str:
    """What ai-edge-quantizer finds the layer by: all its outputs, each with a semicolon."""
    return f"^{re.escape(''.join(f'{name};' for name in layer.outputs))}$"


def _add_floats(manager: Any, scope: str, operation: Any = None) -> None:
    from ai_edge_quantizer import algorithm_manager, qtyping

    manager.add_quantization_config(
        scope,
        operation or qtyping.TFLOperationName.ALL_SUPPORTED,
        algorithm_key=algorithm_manager.AlgorithmName.NO_QUANTIZE,
    )


def _add_integers(
    manager: Any,
    recipe: Recipe,
    scope: str,
    operation: str = "ALL_SUPPORTED",
    granularity: str = "CHANNELWISE",
    *,
    activation_bits: int,
) -> None:
    """Weights of 8 bits, and activations as the recipe has them: integers, dynamic or floats."""
    from ai_edge_quantizer import qtyping

    name = qtyping.TFLOperationName[operation]
    scales = qtyping.QuantGranularity[granularity]
    if recipe.full_integer:
        manager.add_static_config(
            scope,
            name,
            activation_num_bits=activation_bits,
            weight_num_bits=8,
            weight_granularity=scales,
        )
    elif recipe.name == "dynamic":
        manager.add_dynamic_config(scope, name, 8, granularity=scales)
    else:
        manager.add_weight_only_config(scope, name, 8, granularity=scales)


def _add_blocks(manager: Any, scope: str) -> None:
    from ai_edge_quantizer import qtyping

    name = qtyping.TFLOperationName.FULLY_CONNECTED
    manager.add_dynamic_config(scope, name, 4, granularity=qtyping.QuantGranularity.BLOCKWISE_32)


def _add_float16(manager: Any, scope: str) -> None:
    from ai_edge_quantizer import algorithm_manager, qtyping

    for name in _FLOAT16_OPERATORS:
        manager.add_weight_only_config(
            scope,
            qtyping.TFLOperationName[name],
            16,
            granularity=qtyping.QuantGranularity.TENSORWISE,
            algorithm_key=algorithm_manager.AlgorithmName.FLOAT_CASTING,
        )
