"""Cross-layer equalization: a float graph with the ranges of its weights made alike.

A channel with much smaller weights than its neighbors is lost when all are rounded to the steps of
the largest. Between two layers it can be made larger in one and smaller in the other,
for the same outputs: Nagel, van Baalen, Blankevoort, Welling 2019, "Data-Free Quantization
Through Weight Equalization and Bias Correction" (ICCV), sections 4.1.1 and 4.1.2.

Factors are those of the paper, not rounded to powers of two. Those would keep the outputs bit
for bit, but leave the two ranges of a channel up to a factor of two apart, which was measured
to lose most of the gain with weights of 4 bits.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.model.tflite.edit import OwnConstants
from edgeconv.model.tflite.flatbuffer import parse, serialize, text
from edgeconv.quantize.equalization.pairs import ChannelPair, WeightLayer, find_pairs
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.statistics.balance import balancing_logarithms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_edge_litert.schema_py_generated import ModelT
    from numpy.typing import NDArray

    from edgeconv.quantize.calibrate import Feed

# A channel is made at most this many times larger or smaller. One that would need more contributes
# nothing, and stays as it is.
MAX_FACTOR = 1e3
# Where no factor is further from 1, a pair is alike already; and where turns end.
_ALIKE = 0.01
_BALANCED = 0.001
_MAX_TURNS = 200
_MAX_LOGARITHM = math.log(MAX_FACTOR)
# Of an output's largest magnitude; float32 resolves a thousandth of that.
TOLERANCE = 1e-4
_WHERE = "the model"


class EqualizedModel(NamedTuple):
    """A float model after equalization, the same bytes object where nothing applied.

    `pairs` has "first layer -> second layer" for each pair that exchanged factors, `absorbed` the
    layers whose bias partly went into the next, by the names of their output tensors; `notes` say
    why nothing was done.
    """

    model: bytes
    pairs: tuple[str, ...]
    absorbed: tuple[str, ...]
    notes: tuple[str, ...]


def has_pairs(floating: bytes) -> bool:
    """Whether a float model has layers that equalization may apply to; it is not run.

    Raises `InputRefused` for bytes that are not a model.
    """
    return bool(find_pairs(parse(floating, where=_WHERE)).pairs)


def equalize(floating: bytes, feeds: Mapping[str, Feed], *, threads: int) -> EqualizedModel:
    """The float model with equalized weights, and biases absorbed where that is exact.

    `feeds` has the samples by signature: biases are absorbed by what they show, and the
    outputs for the first batch of each must stay what they were, or nothing is changed. A
    second application changes nothing, unless a factor was at its limit, `MAX_FACTOR`.
    Raises `InputRefused` for bytes that are not a model, and `ToolFailed` where the
    runtime cannot run it.
    """
    search = find_pairs(parse(floating, where=_WHERE))
    if not search.pairs:
        return EqualizedModel(floating, (), (), (_why_not(search.reasons),))
    scaled, names = _scaled(floating, search.pairs)
    if names and not same_outputs(floating, scaled, feeds, threads=threads):
        return EqualizedModel(floating, (), (), ("equalization would change the outputs",))
    shifted, layers = absorb_biases(scaled, search.pairs, feeds, threads=threads)
    if layers and not same_outputs(floating, shifted, feeds, threads=threads):
        shifted, layers = scaled, ()
    if names or layers:
        return EqualizedModel(shifted, names, layers, ())
    return EqualizedModel(
        floating, (), (), ("equalization changes nothing: the weights are alike already",)
    )


def _why_not(reasons: Sequence[str]) -> str:
    if not reasons:
        return "equalization does not apply: there is no convolution and no fully connected layer"
    counted = [f"{reason} ({count})" for reason, count in Counter(reasons).most_common()]
    return f"equalization does not apply to any of {len(reasons)} layers: {', '.join(counted)}"


def _scaled(floating: bytes, pairs: Sequence[ChannelPair]) -> tuple[bytes, tuple[str, ...]]:
    """The model with its pairs equalized, and the names of those that changed."""
    model = parse(floating, where=_WHERE)
    constants = OwnConstants(model)
    factors = balancing_factors(model, pairs)
    changed = [pair for pair in pairs if np.abs(np.log(factors[pair])).max() > _ALIKE]
    for pair in changed:
        _divide(model, constants, pair.first, factors[pair])
        _multiply(model, constants, pair.second, factors[pair])
    names = tuple(pair.name for pair in changed)
    return (serialize(model) if changed else floating), names


def balancing_factors(
    model: ModelT, pairs: Sequence[ChannelPair]
) -> dict[ChannelPair, NDArray[np.float32]]:
    """The factor of each pair and channel, (channels,): sqrt(r1 / r2) of its two ranges.

    The first layer is to be divided by it, and the second multiplied. A layer may be in two
    pairs, so they are balanced one after another until none changes. Each turn lowers the larger
    range of a channel and raises none to what that was, so that they settle.
    """
    logarithms = _logarithms(model, pairs)
    balances = [_Balance(logarithms[pair.first], logarithms[pair.second]) for pair in pairs]
    for _ in range(_MAX_TURNS):
        steps = [balance.turn() for balance in balances]
        if max(steps) <= _BALANCED:
            break
    factors = [np.exp(balance.total).astype(np.float32) for balance in balances]
    return dict(zip(pairs, factors, strict=True))


class _Balance:
    """The logarithms of a pair's weights, (outputs, channels) each, changed in place.

    `total` is the logarithm of each channel's factor so far.
    """

    def __init__(self, first: NDArray[np.float64], second: NDArray[np.float64]) -> None:
        self._first = first
        self._second = second
        self.total = np.zeros(len(first))
        self._is_dead = np.zeros(len(first), np.bool_)
        self._is_dead = np.abs(self._imbalance()) > _MAX_LOGARITHM

    def turn(self) -> float:
        """Balance the pair for what it is now; the largest change to a factor's logarithm."""
        target = self.total + self._imbalance()
        step = np.clip(target, -_MAX_LOGARITHM, _MAX_LOGARITHM) - self.total
        self._first -= step[:, None]
        self._second += step
        self.total += step
        return float(np.abs(step).max())

    def _imbalance(self) -> NDArray[np.float64]:
        """Half the logarithm of the ratio of each channel's ranges; 0 for dead channels."""
        logarithms = balancing_logarithms(self._first.max(axis=1), self._second.max(axis=0))
        return np.where(self._is_dead, 0.0, logarithms)


def _logarithms(
    model: ModelT, pairs: Sequence[ChannelPair]
) -> dict[WeightLayer, NDArray[np.float64]]:
    """The logarithms of the magnitudes of each layer's weights, -inf for zero.

    (outputs, channels), one channel where the input is not of a pair.
    """
    channels = {pair.first: 1 for pair in pairs}
    channels |= {pair.second: pair.first.outputs for pair in pairs}
    constants = OwnConstants(model)
    logarithms = {}
    with np.errstate(divide="ignore"):
        for layer, count in channels.items():
            matrix = layer.as_matrix(_weights(model, constants, layer), count)
            logarithms[layer] = np.log(matrix.astype(np.float64))
    return logarithms


def _weights(model: ModelT, constants: OwnConstants, layer: WeightLayer) -> NDArray[np.float32]:
    graph, operator = layer.find(model)
    return constants.read(graph, operator.inputs[1])


def _divide(
    model: ModelT, constants: OwnConstants, layer: WeightLayer, factors: NDArray[np.float32]
) -> None:
    """Make the layer give each channel divided by its factor."""
    graph, operator = layer.find(model)
    weights = _weights(model, constants, layer).copy()
    rows = layer.by_output(weights)
    rows /= factors[:, None]
    constants.write(graph, operator, 1, weights)
    if len(operator.inputs) > 2 and operator.inputs[2] != -1:
        bias = constants.read(graph, operator.inputs[2])
        constants.write(graph, operator, 2, bias / factors)


def _multiply(
    model: ModelT, constants: OwnConstants, layer: WeightLayer, factors: NDArray[np.float32]
) -> None:
    """Make the layer multiply each channel of its input by its factor."""
    graph, operator = layer.find(model)
    weights = _weights(model, constants, layer).copy()
    channels = layer.by_channel(weights, len(factors))
    channels *= factors[:, None]
    constants.write(graph, operator, 1, weights)


def same_outputs(before: bytes, after: bytes, feeds: Mapping[str, Feed], *, threads: int) -> bool:
    """Whether both models give the same for the first batch of each signature.

    Every output must be within `TOLERANCE` of its largest magnitude, and not finite in the
    same places.
    """
    interpreters = [open_interpreter(model, threads=threads) for model in (before, after)]
    for key, feed in feeds.items():
        batch = next(iter(feed), None)
        if batch is not None:
            old, new = (
                InProcessModel(interpreter, key).invoke(batch) for interpreter in interpreters
            )
            if not all(_are_close(old[name], new[name]) for name in old):
                return False
    return True


def _are_close(old: NDArray[Any], new: NDArray[Any]) -> bool:
    finite = np.isfinite(old)
    if old.shape != new.shape or not np.array_equal(finite, np.isfinite(new)):
        return False
    expected = np.where(finite, old, 0).astype(np.float64)
    error = np.abs(np.where(finite, new, 0) - expected)
    return bool(error.max(initial=0.0) <= TOLERANCE * np.abs(expected).max(initial=0.0))


# Bias absorption: what a channel never falls below goes into the bias of the next layer.
#
# Equalization can leave a channel with large values that are never zero. Its offset then takes up
# range, and multiplies every error of the next layer's weights. Nagel et al. 2019, "Data-Free
# Quantization Through Weight Equalization and Bias Correction" (ICCV), section 4.1.3, subtracts the
# offset before the RELU and adds the next layer's response to it to that layer's bias. The paper
# estimates the offset from batch normalization, and clips lower values; here it is below the
# smallest value of the calibration samples, so nothing changes for them.

# Other samples go a little lower: this fraction of a channel's spread is left.
_MARGIN = 0.1
# An offset below one step of 8 bits of the tensor's range is not worth a change.
_WORTH = 1 / 256


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
    able = [p for p in pairs if p.rectified != -1 and p.shifts and not p.second.padded]
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
    fed = {key for key, feed in feeds.items() if len(feed)}
    read = {pair: keys[pair] for pair in pairs if keys[pair] and fed.issuperset(keys[pair])}
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
