"""What each layer of a float graph costs when it alone is quantized.

All others stay in float, so that the error of the model's outputs is that layer's and nothing
else: the one-at-a-time sensitivity of Wu et al. 2020, "Integer Quantization for Deep Learning
Inference: Principles and Empirical Evaluation" (section 5.1, partial quantization).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgeconv.model.tflite import FloatLayer, is_quantized, summarize
from edgeconv.model.tflite.edit import BLOCK, OwnConstants
from edgeconv.model.tflite.flatbuffer import entry_subgraphs, parse, serialize, text
from edgeconv.quantize.quantize import quantize_model
from edgeconv.quantize.refine.layers import from_rows, to_rows
from edgeconv.quantize.refine.rounding import absmax_scales, round_nearest
from edgeconv.quantize.rules import BLOCKS, RuledLayer
from edgeconv.quantize.trials import QuantizeTrials, comparison_feeds
from edgeconv.system.processes.progress import CountedLine
from edgeconv.system.processes.tasks import report_progress
from edgeconv.types import MAX_SNR_DB, Precision, Recipe, Sensitivity
from edgeconv.types.errors import ToolFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT
    from numpy.typing import NDArray

    from edgeconv.quantize.calibrate import CalibratedGraph

_WHERE = "the float32 model"
_WEIGHTS = 1
_FOUR = 4
_WEIGHT_ONLY = Recipe(name="weight-only-int8")
INTEGER_RECIPES: dict[Precision, tuple[Recipe, int]] = {
    "int8": (Recipe(name="int8"), 8),
    "int16x8": (Recipe(name="int16x8"), 16),
}


def sensitivities(
    graph: CalibratedGraph, precisions: Sequence[Precision]
) -> tuple[Sensitivity, ...]:
    """What each layer costs in each of the precisions, in the order of the graph.

    "int8" and "int16x8" are the layer's weights and activations as litert-quantizer makes them,
    with the minima and maxima of all samples as ranges. "int4", "int4-block32" and "float16" are
    the weights alone, rounded to the nearest; those of 4 bits have one scale for each channel or
    block. A layer that cannot have the precision has no
    entry. `comparison_feeds` has the samples; the time is linear in the layers.

    Raises `ToolFailed` where the float graph does not run, and `InputRefused` for samples that
    give senseless ranges. It runs models: call it in a child.
    """
    # A name means every layer that has it, as it does in a rule.
    layers = {layer.name: layer for layer in graph.layers}.values()
    pairs = [(layer, precision) for layer in layers for precision in precisions]
    return sensitivities_of(graph, pairs)


def sensitivities_of(
    graph: CalibratedGraph,
    pairs: Sequence[tuple[FloatLayer, Precision]],
    *,
    weights_only: bool = False,
) -> tuple[Sensitivity, ...]:
    """As `sensitivities`, for these layers in these precisions.

    With `weights_only`, "int8" is the weights alone.
    """
    alone = _Alone(graph, weights_only=weights_only)
    measured = []
    for number, (layer, precision) in enumerate(pairs):
        report_progress(CountedLine("sensitivity of the layers", number, len(pairs)))
        snr_db = alone.snr_db(layer, precision)
        if snr_db is not None:
            measured.append(
                Sensitivity(
                    layer=layer.short_name,
                    operator=layer.operator,
                    weights=layer.weights,
                    precision=precision,
                    snr_db=snr_db,
                )
            )
    return tuple(measured)


class _Alone:
    """A float graph of which one layer after the other is quantized."""

    def __init__(self, graph: CalibratedGraph, *, weights_only: bool) -> None:
        self._graph = graph
        self._trials = QuantizeTrials(graph, comparison_feeds(graph.feeds))
        self._weights_only = weights_only

    def snr_db(self, layer: FloatLayer, precision: Precision) -> float | None:
        """The lowest of all outputs; None where the layer cannot have the precision."""
        if precision == "float32":
            return MAX_SNR_DB
        by_quantizer = precision in INTEGER_RECIPES
        try:
            model = (self._with_integers if by_quantizer else self._with_weights)(layer, precision)
            if model is None:
                return None
            snr_db = self._trials.snr_db(model)
        except ToolFailed:
            return None
        # Equal outputs may mean that nothing in the file was quantized.
        in_doubt = by_quantizer and snr_db == MAX_SNR_DB
        return None if in_doubt and not is_quantized(summarize(model, where=_WHERE)) else snr_db

    def _with_integers(self, layer: FloatLayer, precision: Precision) -> bytes | None:
        recipe, bits = INTEGER_RECIPES[precision]
        ruled = [
            RuledLayer(other, precision if other.name == layer.name else "float32")
            for other in self._graph.layers
        ]
        if self._weights_only:
            if precision != "int8":
                return None
            return quantize_model(self._graph.model, _WEIGHT_ONLY, None, ruled)[0]
        ranges = self._graph.fitted("minmax", bits=bits).ranges
        return quantize_model(self._graph.model, recipe, ranges, ruled)[0]

    def _with_weights(self, layer: FloatLayer, precision: Precision) -> bytes | None:
        """The float graph with the layer's weights as they are after rounding."""
        if not (layer.can_have_blocks if precision == BLOCKS else layer.can_have_four_bits):
            return None
        model = parse(self._graph.model, where=_WHERE)
        constants = OwnConstants(model)
        for graph, operator in list(_operators(model, layer.name)):
            if not constants.is_whole(graph, operator.inputs[_WEIGHTS]):
                return None
            values = constants.read(graph, operator.inputs[_WEIGHTS])
            changed = _rounded(values, layer.operator, precision)
            constants.write(graph, operator, _WEIGHTS, changed)
        return serialize(model)


def _operators(model: ModelT, name: str) -> Iterator[tuple[SubGraphT, OperatorT]]:
    """The operators whose first output has this name, each with its graph."""
    for graph in (model.subgraphs[index] for index in entry_subgraphs(model)):
        for operator in graph.operators:
            outputs = [text(graph.tensors[i].name) for i in operator.outputs if i != -1]
            if outputs[:1] == [name]:
                yield graph, operator


def _rounded(
    values: NDArray[np.float32], operator: str, precision: Precision
) -> NDArray[np.float32]:
    """Weights in the operator's layout, rounded and back in float32."""
    if precision == "float16":
        return values.astype(np.float16).astype(np.float32)
    # Each channel of a depthwise layer is one group, for any multiplier.
    groups = values.shape[-1] if operator == "DEPTHWISE_CONV_2D" else 1
    rows = to_rows(values.astype(np.float64), operator, groups)
    block = BLOCK if precision == BLOCKS else None
    rounded = round_nearest(rows, absmax_scales(rows, _FOUR, block=block), _FOUR).values
    return from_rows(rounded, operator, values.shape).astype(np.float32)
