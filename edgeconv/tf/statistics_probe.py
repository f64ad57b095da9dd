"""Samples compared with what a trained model knows of its training data.

What they give in its normalization layers is measured in units of the statistics kept there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from edgeconv.tf.normalization import find_normalizations, inline, node_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from edgeconv.tf.normalization import Normalization

    Array = NDArray[np.float64]

_PREFIX = "statistics"
# A deviation that is off by a factor counts this much of its logarithm.
_OF_DEVIATION = 1.5
_LEAST = 1e-12
# What overflowed float32 is as far away as can be: in deviations, and in logarithms.
_MOST_SHIFT, _MOST_LOGARITHM = 1e9, 100.0
# Shares of their start that moving averages may have left, and how many are tried.
_MOST_LEFT, _LEFT_STEPS = 0.95, 13


class Layer(NamedTuple):
    """A layer's own statistics, float64 by channel, and the tensors of those of its inputs.

    The latter are the mean and the mean square in units of the former.
    """

    mean: Array
    variance: Array
    epsilon: float
    is_moving: bool
    moments: tuple[Any, Any]


class LayerDistance(msgspec.Struct, frozen=True, kw_only=True):
    """How far a layer's inputs are from its statistics, by the median of its channels.

    `shift` is the difference of the means in deviations, `factor` the ratio of the deviations.
    """

    name: str
    shift: float
    factor: float

    @property
    def distance(self) -> float:
        """Both in one number: 0 where they agree."""
        return math.hypot(self.shift, _OF_DEVIATION * math.log(self.factor))


class SignatureTensors(NamedTuple):
    """The tensors of a signature in a graph, by the names of its inputs and outputs."""

    inputs: dict[str, str]
    outputs: dict[str, str]

    @classmethod
    def of(cls, signature: Any, prefix: str = "") -> SignatureTensors:
        """Those of a signature whose graph was imported under a prefix."""
        return cls(
            *(
                {name: prefix + info.name for name, info in sorted(side.items())}
                for side in (signature.inputs, signature.outputs)
            )
        )

    def feeds(self, arrays: Mapping[str, NDArray[Any]], size: int) -> Iterator[dict[str, Any]]:
        """The samples as a session takes them, `size` at a time."""
        from edgeconv.data.strings import as_tensorflow_takes

        arrays = as_tensorflow_takes(arrays)
        for start in range(0, len(next(iter(arrays.values()))), size):
            yield {self.inputs[name]: array[start : start + size] for name, array in arrays.items()}


class Probe:
    """A signature in a session, with its normalization layers in reach.

    `tensors` are those of the graph in which the layers are: a copy with all calls inlined, or
    where there are no layers the graph itself.
    """

    def __init__(self, running: Any, meta_graph: Any, key: str) -> None:
        from tensorflow.python.framework import errors_impl

        self._running = running
        self._signature = meta_graph.signature_def[key]
        self._errors = errors_impl.OpError
        self._without_layers()
        try:
            self._copy(meta_graph)
        except (errors_impl.OpError, LookupError, RuntimeError, ValueError):
            # Some graphs cannot be inlined, and some variables of TF1 are not shared.
            self._without_layers()

    def run(
        self, arrays: Mapping[str, NDArray[Any]], batch: int
    ) -> tuple[list[dict[str, Any]], tuple[LayerDistance, ...]]:
        """The outputs on samples, `batch` at a time, and the distances of the layers.

        Raises TensorFlow's error for samples that the model does not take.
        """
        fetches = (self.tensors.outputs, {name: e.moments for name, e in self.layers.items()})
        feeds = list(self.tensors.feeds(arrays, batch))
        try:
            runs = [self._running.run(fetches, feed) for feed in feeds]
        except self._errors:
            if not self.layers:
                raise
            self._without_layers()
            return self.run(arrays, batch)
        sizes = [len(next(iter(feed.values()))) for feed in feeds]
        moments = {
            name: (
                np.average([run[1][name][0] for run in runs], axis=0, weights=sizes),
                np.average([run[1][name][1] for run in runs], axis=0, weights=sizes),
            )
            for name in self.layers
        }
        return [outputs for outputs, _ in runs], distances(self.layers, moments)

    def _without_layers(self) -> None:
        self.tensors = SignatureTensors.of(self._signature)
        self.layers: dict[str, Layer] = {}

    def _copy(self, meta_graph: Any) -> None:
        """Import the inlined copy where it has layers.

        Its variables and tables are those of the session: their names are shared.
        """
        from tensorflow.python.framework import importer

        tensors = (*self.tensors.inputs.values(), *self.tensors.outputs.values())
        graph_def = inline(meta_graph, tensors)
        inputs = {node_name(name) for name in self.tensors.inputs.values()}
        if not (layers := find_normalizations(graph_def, inputs)):
            return
        prefix = self._running.graph.unique_name(_PREFIX, mark_as_used=False)
        importer.import_graph_def(graph_def, name=prefix)
        self.tensors = SignatureTensors.of(self._signature, f"{prefix}/")

        def tensor(name: str) -> Any:
            full = f"{prefix}/{name}"
            return self._running.graph.get_tensor_by_name(full if ":" in name else f"{full}:0")

        # All at once: a session takes a tenth of a second for each new set of tensors.
        stored = self._running.run([[tensor(name) for name in _stored(each)] for each in layers])
        for normalization, values in zip(layers, stored, strict=True):
            layer = _layer(normalization, values, tensor(normalization.values))
            if layer is not None:
                self.layers[normalization.name] = layer


def _stored(normalization: Normalization) -> tuple[str, ...]:
    """The names of its mean, its variance, and of its epsilon where that is stored too."""
    epsilon = normalization.epsilon
    rest = (epsilon,) if isinstance(epsilon, str) else ()
    return (normalization.mean, normalization.variance, *rest)


def _layer(normalization: Normalization, stored: Sequence[Any], x: Any) -> Layer | None:
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
    others = [axis for axis in range(x.shape.rank) if axis not in channels]
    deviation = np.sqrt(variance + epsilon).astype(np.float32)
    z = (math_ops.cast(x, dtypes.float32) - mean.astype(np.float32)) / deviation
    return Layer(
        mean=np.broadcast_to(mean, shape).ravel(),
        variance=np.broadcast_to(variance, shape).ravel(),
        epsilon=epsilon,
        is_moving=normalization.is_moving,
        moments=(math_ops.reduce_mean(z, others), math_ops.reduce_mean(z * z, others)),
    )


def distances(
    layers: Mapping[str, Layer], moments: Mapping[str, tuple[Array, Array]]
) -> tuple[LayerDistance, ...]:
    """How far each layer's inputs are from its statistics; `moments`, two arrays (channels,), are
    as in `Layer`.

    Moving averages begin at a mean of 0 and a variance of 1. What is left of that after a short
    training, the same share in every layer, is taken out where that brings them nearer.
    """
    least = [float(layer.variance.min()) for layer in layers.values() if layer.is_moving]
    most = min([*least, _MOST_LEFT])
    tried = [
        tuple(
            _distance(name, layer, *moments[name], left if layer.is_moving else 0.0)
            for name, layer in layers.items()
        )
        for left in np.linspace(0.0, most, _LEFT_STEPS)
    ]
    return min(tried, key=lambda each: sum(layer.distance for layer in each))


def _distance(name: str, layer: Layer, first: Array, second: Array, left: float) -> LayerDistance:
    total = layer.variance + layer.epsilon
    mean = layer.mean + np.sqrt(total) * np.ravel(first)
    variance = np.maximum(total * (np.ravel(second) - np.ravel(first) ** 2), 0.0)
    own_mean = layer.mean / (1 - left)
    own_variance = np.maximum((layer.variance - left) / (1 - left), 0.0) + layer.epsilon
    shift = np.abs(mean - own_mean) / np.sqrt(own_variance)
    logarithm = np.abs(np.log(np.maximum((variance + layer.epsilon) / own_variance, _LEAST))) / 2
    return LayerDistance(
        name=_layer_name(name),
        shift=_median(shift, _MOST_SHIFT),
        factor=math.exp(_median(logarithm, _MOST_LOGARITHM)),
    )


def _median(values: Array, most: float) -> float:
    return float(np.clip(np.median(np.nan_to_num(values, nan=most, posinf=most)), 0, most))


def _layer_name(node: str) -> str:
    """The name of the layer that a node of its computation is in."""
    parts = [part for part in node.split("/") if "PartitionedCall" not in part]
    return "/".join(part for part in parts[:-1] if part != "batchnorm") or node
