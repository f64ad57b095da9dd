"""Bias absorption: what a channel never falls below goes into the bias of the next layer.

Equalization can leave a channel with large values that are never zero. Its offset then takes up
range, and multiplies every error of the next layer's weights. Nagel et al. 2019, "Data-Free
Quantization Through Weight Equalization and Bias Correction" (ICCV), section 4.1.3, subtracts the
offset before the RELU and adds the next layer's response to it to that layer's bias. The paper
estimates the offset from batch normalization, and clips lower values; here it is below the
smallest value of the calibration samples, so nothing changes for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.tflite.constants import OwnConstants
from edgeconv.tflite.flatbuffer import parse, serialize, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_edge_litert.schema_py_generated import ModelT
    from numpy.typing import NDArray

    from edgeconv.quantize.calibrate import Feed
    from edgeconv.quantize.equalization.pairs import ChannelPair, WeightLayer

# Other samples go a little lower: this fraction of a channel's spread is left.
_MARGIN = 0.1
# An offset below one step of 8 bits of the tensor's range is not worth a change.
_WORTH = 1 / 256
_WHERE = "the model"


class _ChannelBounds(NamedTuple):
    """The smallest and largest value of each channel, (channels,)."""

    low: NDArray[np.float32]
    high: NDArray[np.float32]


def absorb_biases(
    floating: bytes, pairs: Sequence[ChannelPair], feeds: Mapping[str, Feed], *, threads: int
) -> tuple[bytes, tuple[str, ...]]:
    """The model with offsets absorbed, and the names of the layers that they were subtracted from.

    `floating` itself where there are none. Only pairs with a RELU between them are able, and
    nothing to which zeros matter, such as a padding. `feeds` has the samples by signature.
    """
    able = [pair for pair in pairs if _is_able(pair)]
    bounds = _channel_bounds(floating, able, feeds, threads=threads) if able else {}
    offsets = {pair: _offsets(limits) for pair, limits in bounds.items()}
    worth = [pair for pair, values in offsets.items() if values.any()]
    if not worth:
        return floating, ()
    model = parse(floating, where=_WHERE)
    constants = OwnConstants(model)
    for pair in worth:
        _add_to_bias(model, constants, pair.first, -offsets[pair])
        _add_to_bias(model, constants, pair.second, _made_of(model, constants, pair, offsets[pair]))
    return serialize(model), tuple(pair.first.name for pair in worth)


def _is_able(pair: ChannelPair) -> bool:
    return pair.rectified != -1 and pair.shifts and not pair.second.padded


def _offsets(bounds: _ChannelBounds) -> NDArray[np.float32]:
    """What to subtract from each channel, float32 [channels], zero where it is not worth it.

    The worth depends on the range that is left, so this repeats until nothing changes.
    """
    able = bounds.low - _MARGIN * (bounds.high - bounds.low)
    offsets, before = np.zeros_like(able), None
    while before is None or not np.array_equal(offsets, before):
        before = offsets
        offsets = np.where(able > _WORTH * (bounds.high - before).max(), able, 0)
    return offsets.astype(np.float32)


def _made_of(
    model: ModelT, constants: OwnConstants, pair: ChannelPair, offsets: NDArray[np.float32]
) -> NDArray[np.float64]:
    """The second layer's response to the offsets, float64 [outputs]."""
    layer = pair.second
    graph, operator = layer.find(model)
    weights = constants.read(graph, operator.inputs[1]).astype(np.float64)
    by_channel = layer.by_channel(weights, len(offsets))
    by_channel *= offsets[:, None]
    return np.asarray(layer.by_output(weights).sum(axis=1))


def _add_to_bias(
    model: ModelT, constants: OwnConstants, layer: WeightLayer, values: NDArray[np.floating]
) -> None:
    graph, operator = layer.find(model)
    bias = np.zeros(layer.outputs)
    if len(operator.inputs) > 2 and operator.inputs[2] != -1:
        bias = bias + constants.read(graph, operator.inputs[2])
    constants.write_bias(graph, operator, (bias + values).astype(np.float32))


def _channel_bounds(
    floating: bytes, pairs: Sequence[ChannelPair], feeds: Mapping[str, Feed], *, threads: int
) -> dict[ChannelPair, _ChannelBounds]:
    """The bounds of each pair's channels after the RELU, in one pass over the samples.

    Pairs with a value that is not finite are left out, as are those of a graph that has a
    signature without samples.
    """
    exposed, keys = _exposed(floating, pairs)
    read = {pair: keys[pair] for pair in pairs if _are_fed(keys[pair], feeds)}
    bounds: dict[ChannelPair, _ChannelBounds] = {}
    if not read:
        return bounds
    interpreter = open_interpreter(exposed, threads=threads)
    for key in sorted({key for needed in read.values() for key in needed}):
        signature = InProcessModel(interpreter, key)
        for batch in feeds[key]:
            answers = signature.invoke(batch)
            for pair in (pair for pair in read if key in read[pair]):
                rows = answers[_output(pair)].reshape(-1, pair.first.outputs)
                bounds[pair] = _wider(bounds.get(pair), rows)
    return {
        pair: limits
        for pair, limits in bounds.items()
        if np.isfinite((limits.low, limits.high)).all()
    }


def _are_fed(keys: Sequence[str], feeds: Mapping[str, Feed]) -> bool:
    return bool(keys) and all(key in feeds and len(feeds[key]) for key in keys)


def _wider(bounds: _ChannelBounds | None, rows: NDArray[np.float32]) -> _ChannelBounds:
    low, high = rows.min(axis=0), rows.max(axis=0)
    if bounds is None:
        return _ChannelBounds(low, high)
    return _ChannelBounds(np.minimum(bounds.low, low), np.maximum(bounds.high, high))


def _output(pair: ChannelPair) -> str:
    return f"rectified_{pair.rectified}"


def _exposed(
    floating: bytes, pairs: Sequence[ChannelPair]
) -> tuple[bytes, dict[ChannelPair, tuple[str, ...]]]:
    """The model with what the RELUs give as outputs too, and the signatures that give it."""
    from ai_edge_litert.schema_py_generated import TensorMapT

    model = parse(floating, where=_WHERE)
    keys: dict[ChannelPair, tuple[str, ...]] = {}
    for pair in pairs:
        graph = model.subgraphs[pair.first.subgraph]
        graph.outputs = [*graph.outputs, pair.rectified]
        own = [s for s in model.signatureDefs or () if s.subgraphIndex == pair.first.subgraph]
        for signature in own:
            signature.outputs.append(TensorMapT(name=_output(pair), tensorIndex=pair.rectified))
        keys[pair] = tuple(text(signature.signatureKey) for signature in own)
    return serialize(model), keys
