"""How the values of each activation tensor are spread: the second pass over the samples.

The first pass (`activation_ranges`) gives the exact ends, so that the bins of this one are
right from the first sample on and nothing has to be merged or rebinned. It has to be cheap: of
a large tensor each batch gives some blocks only, other ones from batch to batch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.model.tflite.flatbuffer import is_constant, operator_name, parse, text, type_names
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_litert.schema_py_generated import ModelT, SubGraphT
    from numpy.typing import NDArray

    from edgeconv.quantize.calibrate import Feed

# Eight to a step of 8 bits, as in the publication of the entropy method.
BINS = 2048
# Values of one tensor in one batch. A larger tensor is looked at in parts.
MOST_ELEMENTS = 2**15
# A line of the processor's cache, which is what a read costs.
_BLOCK = 16
# In bins. A float32 below `BINS` is exact to an eighth of this.
_TIE = 1e-3
# Below it a bin's width has no float32 reciprocal.
_LEAST_RANGE = 1e-30
# The outputs of these have a scale that the runtime fixes.
_FIXED_RANGE = frozenset({"SOFTMAX", "LOGISTIC", "TANH", "LOG_SOFTMAX", "L2_NORMALIZATION"})
# What is decided by comparing the outputs of these is decided by the largest of their inputs.
_RANKS = frozenset({"SOFTMAX", "LOGISTIC", "LOG_SOFTMAX"})
_SAME_VALUES = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE"})


class Histogram(NamedTuple):
    """How often a tensor's values fall near each of equally spaced ones.

    `counts` is (bins,) int64. `low` and `high` are the true minimum and maximum. Each bin is
    centerd on the value that it stands for, and one of them on exactly 0 where 0 is within; the
    first and the last used one stand for `low` and `high`, unless they stand for 0. So values
    that an activation function often makes, 0 or 6, are counted exactly.
    """

    counts: NDArray[np.int64]
    low: float
    high: float

    @property
    def step(self) -> float:
        """The width of a bin."""
        return (self.high - self.low) / (len(self.counts) - 2)

    @property
    def origin(self) -> float:
        """The value that a bin is centerd on exactly: 0, or `low` where 0 is not within."""
        return 0.0 if self.low <= 0 <= self.high else self.low

    @property
    def origin_bin(self) -> int:
        """The bin of `origin`."""
        return self._bins_in(self.origin - self.low)

    @property
    def centers(self) -> NDArray[np.float64]:
        """(bins,) the value that each bin stands for."""
        numbers = np.arange(len(self.counts), dtype=np.float64) - self.origin_bin
        centers = self.origin + numbers * self.step
        last = self.origin_bin + self._bins_in(self.high - self.origin)
        if self.origin_bin > 0:
            centers[0] = self.low
        if last > self.origin_bin:
            centers[last:] = self.high
        return centers

    @property
    def edges(self) -> NDArray[np.float64]:
        """(bins + 1,) where the bins begin and end."""
        numbers = np.arange(len(self.counts) + 1, dtype=np.float64) - self.origin_bin - 0.5
        return self.origin + numbers * self.step

    def _bins_in(self, distance: float) -> int:
        """How many bins away: to the nearest, and to the nearer one where float32 cannot tell."""
        return max(0, math.ceil(distance / self.step - 0.5 - _TIE))

    def add(self, values: NDArray[np.float32]) -> None:
        """Add the values, one-dimensional. What is beyond an end counts as the end."""
        # Subtracted first: far from 0, a float32 would not tell the bins apart.
        places = values - np.float32(self.origin) if self.origin else values
        places = places * np.float32(1 / self.step)
        places += np.float32(self.origin_bin + 0.5)
        with np.errstate(invalid="ignore"):
            bins = places.astype(np.int32)
        np.clip(bins, 0, len(self.counts) - 1, out=bins)
        self.counts[:] += np.bincount(bins, minlength=len(self.counts))


def histograms(
    float_model: bytes, feeds: Mapping[str, Feed], ranges: Mapping[str, Any], *, threads: int
) -> dict[str, Histogram]:
    """The histogram of every float activation tensor whose range may be narrowed, by name.

    `feeds` has the samples by signature, `ranges` is the result of `activation_ranges` for
    them. There is no histogram for a tensor with a single value, for one of `fixed_range_tensors`,
    and for one inside a loop or a branch, whose values the runtime does not show. About
    `MOST_ELEMENTS` of each tensor and batch are counted. In memory are the tensors of one batch,
    and the counts. Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(float_model, where="the model")
    counted = _empty(_float_tensors(model) - fixed_range_tensors(model), ranges)
    interpreter = open_interpreter(float_model, threads=threads, every_tensor=True)
    for signature in model.signatureDefs or ():
        key, graph = text(signature.signatureKey), int(signature.subgraphIndex)
        watched = [
            (index, counted[name])
            for index, name in _activations(model, graph)
            if name in counted and key in feeds
        ]
        if watched:
            _count_all(interpreter, key, graph, feeds[key], watched)
    return counted


def _empty(names: set[str], ranges: Mapping[str, Any]) -> dict[str, Histogram]:
    empty = {}
    for name in sorted(names & set(ranges)):
        low, high = float(np.min(ranges[name]["min"])), float(np.max(ranges[name]["max"]))
        if high - low > _LEAST_RANGE:
            empty[name] = Histogram(np.zeros(BINS, np.int64), low, high)
    return empty


def _float_tensors(model: ModelT) -> set[str]:
    """The names of float activations of the signatures' own graphs, and of none inside those."""
    entries = {int(signature.subgraphIndex) for signature in model.signatureDefs or ()}
    names = {name for graph in entries for _, name in _activations(model, graph)}
    inner = set(range(len(model.subgraphs))) - entries
    return names - {name for graph in inner for _, name in _activations(model, graph)}


def _activations(model: ModelT, graph: int) -> list[tuple[int, str]]:
    """Index and name of each float32 tensor of a graph that the graph is fed or makes."""
    subgraph = model.subgraphs[graph]
    computed = {index for operator in subgraph.operators for index in operator.outputs}
    computed |= set(subgraph.inputs)
    return [
        (index, text(tensor.name))
        for index, tensor in enumerate(subgraph.tensors)
        if index in computed
        and type_names()[tensor.type] == "float32"
        and not is_constant(model, tensor)
    ]


def _count_all(
    interpreter: Interpreter, key: str, graph: int, feed: Feed, watched: list[tuple[int, Histogram]]
) -> None:
    model = InProcessModel(interpreter, key)
    for number, batch in enumerate(feed):
        model.invoke(batch)
        for index, histogram in watched:
            # Only of the first graph can the runtime's own memory be read, without a copy.
            values = interpreter.get_tensor(index, graph) if graph else interpreter.tensor(index)()
            histogram.add(sampled(np.ravel(values), number, MOST_ELEMENTS))
            # The interpreter must not be run while an array of its memory is alive.
            del values
    interpreter.reset_all_variables()


def sampled(values: NDArray[np.float32], number: int, most_elements: int) -> NDArray[np.float32]:
    """About `most_elements` of the values, float32 [values]; all of them if there are no more.

    They are blocks at equal distances, another set for each `number`, so that consecutive numbers
    cover all. The distance shares no factor with the number of blocks, and so with no dimension
    of the tensor: each set has values of all channels.
    """
    if len(values) <= most_elements:
        return values
    count = len(values) // _BLOCK
    distance = -(-len(values) // most_elements)
    while math.gcd(distance, count) > 1:
        distance += 1
    blocks = values[: count * _BLOCK].reshape(count, _BLOCK)
    return blocks[number % distance :: distance].ravel()


def fixed_range_tensors(model: ModelT) -> frozenset[str]:
    """The names of tensors whose ranges no method should narrow.

    - Inputs: what is fed is known, and its largest values (white, loud) are intended.
    - Outputs: users read them, and compare the largest.
    - Inputs of a softmax, or of a sigmoid that makes an output: the largest
      decides, however rare it is, which no measure of mean error sees.
    - Outputs of softmax, sigmoid and tanh: the runtime fixes their scales.

    What such a tensor is only a reshape of shares its range and is kept too.
    """
    return frozenset().union(*(_kept_in(model, graph) for graph in model.subgraphs))


def _kept_in(model: ModelT, graph: SubGraphT) -> set[str]:
    operators = [(operator_name(model, operator), operator) for operator in graph.operators]
    fixed = {i for name, o in operators if name in _FIXED_RANGE for i in o.outputs}
    decisive = set(graph.outputs)
    decisive |= {i for name, o in operators if name == "SOFTMAX" for i in o.outputs}
    for name, operator in reversed(operators):
        if name in _RANKS | _SAME_VALUES and decisive & set(operator.outputs):
            decisive.add(operator.inputs[0])
    indices = decisive | fixed | set(graph.inputs)
    return {text(graph.tensors[i].name) for i in indices if i != -1}
