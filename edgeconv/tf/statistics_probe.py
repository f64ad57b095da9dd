"""Samples compared with what a trained model knows of its training data.

What they give in its normalization layers is measured in units of the statistics kept there.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeconv.data.arrays import as_tensorflow_takes
from edgeconv.tf.normalization import Normalization, find_normalizations, node_name

Array = NDArray[np.float64]


# A deviation that is off by a factor counts this much of its logarithm.
_OF_DEVIATION = 1.5
_LEAST = 1e-12
# What overflowed float32 is as far away as can be: in deviations, and in logarithms.
_MOST_SHIFT, _MOST_LOGARITHM = 1e9, 100.0
# Samples like the training samples are rarely farther from the statistics than this.
SIMILAR = 0.45
# Shares of their start that moving averages may have left, and how many are tried, and how often
# between those beside the best: where hardly a variance is left, the third digit counts.
_MOST_LEFT, _LEFT_STEPS, _LEFT_ROUNDS = 0.95, 13, 4
# No share of a variance of 1 is larger than the variance, but for rounding.
_LIKE = 0.99
# So that a channel without variance is not all.
_MOST_SPREAD = 10.0
# Chance is measured on draws of the samples with replacement (B. Efron, 1979): all but a tenth of
# the draws are nearer to the samples than `noise`.
_DRAWS, _NEARER, _SEED = 32, 0.9, 20261123


class Layer(NamedTuple):
    """A layer's own statistics, float64 by channel, and the tensors with its inputs' own.

    The latter are the mean and the mean square of each sample in units of the former, (rows,
    channels): a row is a sample or a part of one. `stored` has the mean and the variance as they
    are stored, by their tensors.
    """

    mean: Array
    variance: Array
    epsilon: float
    is_moving: bool
    meets_inputs: bool
    moments: tuple[Any, Any]
    stored: Mapping[str, NDArray[Any]] = {}

    def without_start(self, left: float) -> dict[str, NDArray[Any]]:
        """What to feed instead of the stored ones: these without a share `left` of their start."""
        (mean, first), (variance, second) = self.stored.items()
        corrected = first / (1 - left), np.maximum((second - left) / (1 - left), 0.0)
        pairs = zip((mean, variance), corrected, (first, second), strict=True)
        return {name: value.astype(like.dtype) for name, value, like in pairs}


class LayerDistance(msgspec.Struct, frozen=True, kw_only=True):
    """How far a layer's inputs are from its statistics, by the median of its channels.

    `shift` is the difference of the means in deviations, `factor` the ratio of the deviations.
    `noise` is the distance that chance alone gives that number of samples, and `spread` the root
    mean square over the channels, which sees what moves a few of them. No other layer is before
    one that `meets_inputs`.
    """

    name: str
    shift: float
    factor: float
    noise: float = 0.0
    spread: float = 0.0
    meets_inputs: bool = False

    @property
    def distance(self) -> float:
        """Both in one number: 0 if they agree."""
        return math.hypot(self.shift, _OF_DEVIATION * math.log(self.factor))

    @property
    def excess(self) -> float:
        """What of the distance is not chance."""
        return max(0.0, self.distance - self.noise)


class SignatureTensors(NamedTuple):
    """The tensors of a signature in a graph, by the names of its inputs and outputs."""

    inputs: dict[str, str]
    outputs: dict[str, str]
    ranks: dict[str, int]

    @classmethod
    def of(cls, signature: Any) -> SignatureTensors:
        """Those of a signature; `ranks` has the number of dimensions of each input."""
        inputs, outputs = (
            {name: info.name for name, info in sorted(side.items())}
            for side in (signature.inputs, signature.outputs)
        )
        return cls(
            inputs,
            outputs,
            {
                name: len(info.tensor_shape.dim)
                for name, info in signature.inputs.items()
                if not info.tensor_shape.unknown_rank
            },
        )

    def feeds(self, arrays: Mapping[str, NDArray[Any]], size: int) -> Iterator[dict[str, Any]]:
        """The samples as a session takes them, `size` at a time.

        An input without a batch dimension gets one sample without its first axis.
        """
        arrays = as_tensorflow_takes(arrays)
        for start in range(0, len(next(iter(arrays.values()))), size):
            batch = {name: array[start : start + size] for name, array in arrays.items()}
            yield {
                self.inputs[name]: value[0] if value.ndim - 1 == self.ranks.get(name) else value
                for name, value in batch.items()
            }


class Probed(NamedTuple):
    """What samples gave: the outputs of each batch, and the distances of the layers.

    `left` is the share of their start, a mean of 0 and a variance of 1, that training left in the
    model's moving averages. The distances are measured without it.
    """

    answers: list[dict[str, Any]]
    layers: tuple[LayerDistance, ...]
    left: float = 0.0


class Probe:
    """A signature in a session, with its normalization layers in reach.

    Those are found where the calls of its graph were inlined.
    """

    def __init__(self, running: Any, meta_graph: Any, key: str) -> None:
        from tensorflow.python.framework import errors_impl

        self._running = running
        self._errors = errors_impl.OpError
        self.tensors = SignatureTensors.of(meta_graph.signature_def[key])
        self.layers: dict[str, Layer] = {}
        # Some variables of TF1 cannot be read where a layer has them.
        with contextlib.suppress(errors_impl.OpError, LookupError, RuntimeError, ValueError):
            self.layers = self._find_layers(meta_graph.graph_def)

    def run(self, arrays: Mapping[str, NDArray[Any]], batch: int) -> Probed:
        """The outputs on samples, `batch` at a time, and the distances of the layers.

        If they are far, and moving averages still have a share of their start, the distances are
        measured without it, provided that brings them nearer. Raises TensorFlow's error for samples
        that the model does not take.
        """
        try:
            answers, layers = self._run(self.tensors.outputs, self.layers, arrays, batch)
            if layers and farthest(layers).excess > SIMILAR:
                left, settled = self._settled(arrays, batch)
                if settled and farthest(settled).excess < farthest(layers).excess:
                    return Probed(answers, settled, left)
            return Probed(answers, layers)
        except self._errors:
            if not self.layers:
                raise
            self.layers = {}
            return self.run(arrays, batch)

    def run_if_taken(self, arrays: Mapping[str, NDArray[Any]], batch: int) -> Probed | None:
        """As `run`; None for samples that the model does not take, such as ids that were scaled."""
        layers = self.layers
        try:
            return self.run(arrays, batch)
        except self._errors:
            return None
        finally:
            self.layers = layers

    def spread(self, arrays: Mapping[str, NDArray[Any]], batch: int) -> float:
        """The largest `spread` in the layers that meet the inputs: nothing after them is run.

        Infinite for samples that these do not take.
        """
        first = {name: layer for name, layer in self.layers.items() if layer.meets_inputs}
        try:
            return max(layer.spread for layer in self._run({}, first, arrays, batch)[1])
        except self._errors:
            return math.inf

    def _settled(
        self, arrays: Mapping[str, NDArray[Any]], batch: int
    ) -> tuple[float, tuple[LayerDistance, ...]]:
        """The share of their start that training left in the moving averages, and the distances of
        the layers without it; 0 and () if nothing is left.

        The share is found on the first layers, whose inputs depend on no other layer. Layers of a
        smaller variance had another momentum, as those behind Keras's applications, and have the
        share of the first of them.
        """
        moving = {name: layer for name, layer in self.layers.items() if layer.is_moving}
        first = {name: layer for name, layer in moving.items() if layer.meets_inputs}
        if not first:
            return 0.0, ()
        left = share_left(first, self._moments({}, first, arrays, batch)[1])
        if not left:
            return 0.0, ()
        shares = {n: left for n, layer in moving.items() if layer.variance.min() > _LIKE * left}
        others = {name: layer for name, layer in moving.items() if name not in shares}

        def measured(layers: Mapping[str, Layer]) -> dict[str, tuple[Array, Array]]:
            pairs = ((moving[name], share) for name, share in shares.items())
            fed = {k: v for layer, share in pairs for k, v in layer.without_start(share).items()}
            return self._moments({}, layers, arrays, batch, fed)[1]

        for name in [*others][:1]:
            head = {name: others[name]}
            shares |= dict.fromkeys(others, share_left(head, measured(head)))
        return left, distances(self.layers, measured(self.layers), shares)

    def _run(
        self,
        outputs: Mapping[str, str],
        layers: Mapping[str, Layer],
        arrays: Mapping[str, NDArray[Any]],
        batch: int,
    ) -> tuple[list[dict[str, Any]], tuple[LayerDistance, ...]]:
        answered, moments = self._moments(outputs, layers, arrays, batch)
        left = share_left(layers, moments)
        return answered, distances(layers, moments, dict.fromkeys(layers, left))

    def _moments(
        self,
        outputs: Mapping[str, str],
        layers: Mapping[str, Layer],
        arrays: Mapping[str, NDArray[Any]],
        batch: int,
        fed: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    ) -> tuple[list[dict[str, Any]], dict[str, tuple[Array, Array]]]:
        """The outputs, and the moments of each layer, where `fed` tensors have other values."""
        fetches = (outputs, {name: layer.moments for name, layer in layers.items()})
        answered, rows = [], []
        for feed in self.tensors.feeds(arrays, batch):
            answers, moments = self._running.run(fetches, {**feed, **fed})
            size = len(next(iter(feed.values())))
            answered.append(answers)
            rows.append(
                {name: [_by_sample(each, size) for each in moments[name]] for name in layers}
            )
        joined = {
            name: (
                np.concatenate([row[name][0] for row in rows]),
                np.concatenate([row[name][1] for row in rows]),
            )
            for name in layers
        }
        return answered, joined

    def _find_layers(self, graph_def: Any) -> dict[str, Layer]:
        """The layers that have statistics, by name."""
        inputs = {node_name(name) for name in self.tensors.inputs.values()}
        normalizations = find_normalizations(graph_def, inputs)

        def tensor(name: str) -> Any:
            return self._running.graph.get_tensor_by_name(name if ":" in name else f"{name}:0")

        # All at once: a session takes a tenth of a second for each new set of tensors.
        names = [[tensor(name) for name in _stored(each)] for each in normalizations]
        stored = self._running.run(names)
        layers = (
            (each.name, _layer(each, tensors, values, tensor(each.values)))
            for each, tensors, values in zip(normalizations, names, stored, strict=True)
        )
        return {name: layer for name, layer in layers if layer is not None}


def _stored(normalization: Normalization) -> tuple[str, ...]:
    """The names of its mean, its variance, and its epsilon if that is stored too."""
    epsilon = normalization.epsilon
    rest = (epsilon,) if isinstance(epsilon, str) else ()
    return (normalization.mean, normalization.variance, *rest)


def _layer(
    normalization: Normalization, tensors: Sequence[Any], stored: Sequence[Any], x: Any
) -> Layer | None:
    """A layer that was trained, from its `_stored` arrays and its input; None for another."""
    from tensorflow.python.framework import dtypes
    from tensorflow.python.ops import math_ops

    mean, variance, *rest = (np.asarray(value, np.float64) for value in stored)
    epsilon = float(np.max(rest[0])) if rest else float(normalization.epsilon)
    if normalization.is_first:
        mean, variance = mean[:, None, None], variance[:, None, None]
    # A mean of nothing but zeros is what a layer begins with.
    if x.shape.rank is None or not mean.any() or not variance.any():
        return None
    shape = np.broadcast_shapes(mean.shape, variance.shape)
    channels = {x.shape.rank - len(shape) + at for at, size in enumerate(shape) if size != 1}
    others = [axis for axis in range(1, x.shape.rank) if axis not in channels]
    deviation = np.sqrt(variance + epsilon).astype(np.float32)
    z = (math_ops.cast(x, dtypes.float32) - mean.astype(np.float32)) / deviation
    return Layer(
        mean=np.broadcast_to(mean, shape).ravel(),
        variance=np.broadcast_to(variance, shape).ravel(),
        epsilon=epsilon,
        is_moving=normalization.is_moving,
        meets_inputs=normalization.meets_inputs,
        moments=(math_ops.reduce_mean(z, others), math_ops.reduce_mean(z * z, others)),
        stored={each.name: np.asarray(v) for each, v in zip(tensors[:2], stored[:2], strict=True)},
    )


def _by_sample(rows: NDArray[Any], samples: int) -> Array:
    """(samples, channels) of the (rows, ...) of a run: their mean where rows are not of samples."""
    flat = np.asarray(rows, np.float64).reshape(len(rows), -1)
    if len(flat) % samples:
        return np.repeat(flat.mean(axis=0, keepdims=True), samples, axis=0)
    by_sample: Array = flat.reshape(samples, -1, flat.shape[1]).mean(axis=1)
    return by_sample


def distances(
    layers: Mapping[str, Layer],
    moments: Mapping[str, tuple[Array, Array]],
    shares: Mapping[str, float],
) -> tuple[LayerDistance, ...]:
    """How far each layer's inputs are from its statistics; `moments`, two arrays (samples,
    channels), are as in `Layer`, and `shares` of moving averages as `share_left` gives them.
    """
    return tuple(
        _distance(name, layer, _inputs(layer, *moments[name]), _own(layer, shares.get(name, 0.0)))
        for name, layer in layers.items()
    )


def farthest(layers: Iterable[LayerDistance]) -> LayerDistance:
    """The layer that is farther off than three quarters of the others, of few layers the farthest.

    A mistake in the samples moves most layers. In deep ones, a few samples may make the variance.
    """
    ranked = sorted(layers, key=lambda layer: layer.excess, reverse=True)
    return ranked[len(ranked) // 4]


def share_left(layers: Mapping[str, Layer], moments: Mapping[str, tuple[Array, Array]]) -> float:
    """What a short training left of the start of moving averages, a mean of 0 and a variance of 1.

    It is the same share in every layer, the one that brings their inputs nearest.
    """
    least = [float(layer.variance.min()) for layer in layers.values() if layer.is_moving]
    most = min([*least, _MOST_LEFT])
    measured = {name: _inputs(layer, *moments[name]) for name, layer in layers.items()}

    def far(left: float) -> float:
        total = 0.0
        for name, layer in layers.items():
            means, variances = measured[name]
            own = _own(layer, left)
            total += math.hypot(*map(np.median, _apart((means[0], variances[0]), own, own[1])))
        return total

    left, low, high = 0.0, 0.0, most
    for _ in range(_LEFT_ROUNDS):
        shares: list[float] = np.linspace(low, high, _LEFT_STEPS).tolist()
        left = min(shares, key=far)
        if not left:
            break
        step = (high - low) / (_LEFT_STEPS - 1)
        low, high = max(low, left - step), min(high, left + step)
    return left


def _inputs(layer: Layer, first: Array, second: Array) -> tuple[Array, Array]:
    """The mean and the variance of a layer's inputs, (1 + draws, channels).

    The first belong to the samples, the others to draws of them.
    """
    count = len(first)
    draws = np.random.default_rng(_SEED).multinomial(count, np.full(count, 1 / count), _DRAWS)
    weights = np.concatenate([np.ones((1, count)), draws]) / count
    total = layer.variance + layer.epsilon
    means = weights @ first
    variances = np.maximum(total * (weights @ second - means**2), 0.0) + layer.epsilon
    return layer.mean + np.sqrt(total) * means, variances


def _own(layer: Layer, left: float) -> tuple[Array, Array]:
    """A layer's own mean and variance; moving averages without the rest of their start."""
    left = left if layer.is_moving else 0.0
    variance = np.maximum((layer.variance - left) / (1 - left), 0.0) + layer.epsilon
    return layer.mean / (1 - left), variance


def _distance(
    name: str, layer: Layer, inputs: tuple[Array, Array], own: tuple[Array, Array]
) -> LayerDistance:
    means, variances = inputs
    shift, logarithm = _apart((means[0], variances[0]), own, own[1])
    drawn = _apart((means[1:], variances[1:]), (means[0], variances[0]), own[1])
    chance = np.hypot(*(np.median(each, axis=1) for each in drawn))
    return LayerDistance(
        name=_layer_name(name),
        shift=float(np.median(shift)),
        factor=math.exp(float(np.median(logarithm)) / _OF_DEVIATION),
        noise=float(np.quantile(chance, _NEARER)),
        spread=float(np.sqrt(np.mean(np.minimum(np.hypot(shift, logarithm), _MOST_SPREAD) ** 2))),
        meets_inputs=layer.meets_inputs,
    )


def _apart(
    inputs: tuple[Array, Array], others: tuple[Array, Array], variance: Array
) -> tuple[Array, Array]:
    """How far means are apart in deviations, and by which logarithm variances; finite numbers."""
    shift = np.abs(inputs[0] - others[0]) / np.sqrt(variance)
    ratio = np.maximum(inputs[1], _LEAST) / np.maximum(others[1], _LEAST)
    logarithm = _OF_DEVIATION * np.abs(np.log(ratio)) / 2
    return _finite(shift, _MOST_SHIFT), _finite(logarithm, _MOST_LOGARITHM)


def _finite(values: Array, most: float) -> Array:
    clipped: Array = np.clip(np.nan_to_num(values, nan=most, posinf=most), 0, most)
    return clipped


def _layer_name(node: str) -> str:
    """The name of the layer that a node of its computation is in."""
    parts = [part for part in node.split("/") if "PartitionedCall" not in part]
    return "/".join(part for part in parts[:-1] if part != "batchnorm") or node
