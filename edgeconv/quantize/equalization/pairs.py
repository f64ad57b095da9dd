"""Pairs of layers of a float graph that can exchange a factor for each channel between them.

The first layer's channel divided by a factor, and what the second makes of it multiplied by
the same, give the same outputs where everything between is positively homogeneous (Nagel et
al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction", section
4.1.1).
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.model.tflite.edit import OwnConstants
from edgeconv.model.tflite.flatbuffer import (
    entry_subgraphs,
    is_constant,
    operator_name,
    text,
    type_names,
)
from edgeconv.model.tflite.operators import SHAPE_ONLY, OperatorUse, shape_of, use_of

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT
    from numpy.typing import NDArray

_LAYERS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
_PADDING_VALID = 1
# What IF, WHILE, CALL and CALL_ONCE call the graphs that they run.
_CALLED = ("thenSubgraphIndex", "elseSubgraphIndex", "condSubgraphIndex", "bodySubgraphIndex")
_CALLS = (*_CALLED, "initSubgraphIndex", "subgraph")


class WeightLayer(NamedTuple):
    """A convolution or fully connected layer whose weights nothing else reads.

    `name` is that of its output tensor; `subgraph` and `operator` say where it is. It makes
    `outputs` channels of `inputs`: each of all, or, where `multiplier` is not 0, that many of
    each. `padded` says whether it adds zeros around its input.
    """

    name: str
    subgraph: int
    operator: int
    outputs: int
    inputs: int
    multiplier: int
    padded: bool

    def find(self, model: ModelT) -> tuple[SubGraphT, OperatorT]:
        """The layer's graph and operator."""
        graph = model.subgraphs[self.subgraph]
        return graph, graph.operators[self.operator]

    def by_output(self, weights: NDArray[Any]) -> NDArray[Any]:
        """The layer's weights as (outputs, -1)."""
        if self.multiplier:
            return weights.reshape(-1, self.outputs).T
        return weights.reshape(self.outputs, -1)

    def by_channel(self, weights: NDArray[Any], channels: int) -> NDArray[Any]:
        """The layer's weights as (-1, channels, -1), the middle for the channels of its input.

        Where an image was flattened into the input, they repeat for each pixel.
        """
        return weights.reshape(-1, channels, self.multiplier or 1)

    def as_matrix(self, weights: NDArray[np.float32], channels: int) -> NDArray[Any]:
        """The largest magnitude of the weights from each channel to each output.

        (outputs, channels), zero where an output does not depend on a channel.
        """
        import numpy as np

        if not self.multiplier:
            cube = np.abs(weights).reshape(self.outputs, -1, channels)
            return np.asarray(cube.max(axis=1))
        matrix = np.zeros((self.outputs, channels), np.float32)
        rows = np.arange(self.outputs)
        matrix[rows, rows // self.multiplier % channels] = abs(self.by_output(weights)).max(axis=1)
        return matrix


class ChannelPair(NamedTuple):
    """Two layers, and what is between them.

    `rectified` is the tensor that the first RELU between them gives, -1 where there is none.
    `shifts` says whether a constant that is taken off a channel of the first layer is missing
    wherever the second reads that channel, as long as no RELU cuts it off.
    """

    first: WeightLayer
    second: WeightLayer
    rectified: int
    shifts: bool

    @property
    def name(self) -> str:
        """The names of the layers' output tensors, as "first -> second"."""
        return f"{self.first.name} -> {self.second.name}"


class FoundPairs(NamedTuple):
    """The pairs of a model, and for each layer that is the first of none, why."""

    pairs: tuple[ChannelPair, ...]
    reasons: tuple[str, ...]


def find_pairs(model: ModelT) -> FoundPairs:
    """The pairs in all graphs that a caller can run, in the order of their operators.

    A layer is the first of at most one pair, and the second of at most one. Graphs that a
    control flow operator runs are left alone.
    """
    constants = OwnConstants(model)
    options = [o.builtinOptions for graph in model.subgraphs for o in graph.operators]
    called = {getattr(each, name) for each in options for name in _CALLS if hasattr(each, name)}
    pairs, reasons = [], []
    for index in entry_subgraphs(model):
        if index in called:
            continue
        for pair in _GraphPairs(model, index, constants).pairs():
            if isinstance(pair, str):
                reasons.append(pair)
            else:
                pairs.append(pair)
    return FoundPairs(tuple(pairs), tuple(reasons))


class _GraphPairs:
    """One graph, with the readers of its tensors."""

    def __init__(self, model: ModelT, index: int, constants: OwnConstants) -> None:
        self._model = model
        self._index = index
        self._graph: SubGraphT = model.subgraphs[index]
        self._constants = constants
        self._readers: dict[int, list[int]] = defaultdict(list)
        for position, operator in enumerate(self._graph.operators):
            if operator_name(model, operator) not in SHAPE_ONLY:
                for tensor in operator.inputs:
                    self._readers[tensor].append(position)
        named = [s for s in model.signatureDefs or () if s.subgraphIndex == index]
        self._ends = {m.tensorIndex for s in named for m in s.outputs} | set(self._graph.outputs)

    def pairs(self) -> list[ChannelPair | str]:
        """For every layer, the pair that it is the first of, or why there is none."""
        layers = [self._layer(i) for i, o in enumerate(self._graph.operators) if self._is_layer(o)]
        return [layer if isinstance(layer, str) else self._partner(layer) for layer in layers]

    def _is_layer(self, operator: OperatorT) -> bool:
        return operator_name(self._model, operator) in _LAYERS

    def _partner(self, first: WeightLayer) -> ChannelPair | str:
        operator = self._graph.operators[first.operator]
        between, position = [operator], first.operator
        reason = why_bent(operator)
        while not reason:
            tensor = operator.outputs[0]
            after = self._reader(tensor, position)
            if isinstance(after, str):
                return after
            position, operator = after, self._graph.operators[after]
            if operator.inputs[0] != tensor or not operator.outputs:
                return "the output is not the next operator's first input"
            if self._is_layer(operator):
                return self._joined(first, between, position)
            reason = why_blocked(self._model, self._graph, operator, first.outputs)
            between.append(operator)
        return reason

    def _reader(self, tensor: int, position: int) -> int | str:
        """The only operator that reads the tensor, which must come after its maker's position."""
        if tensor in self._ends:
            return "the output is the model's"
        readers = self._readers[tensor]
        if len(readers) > 1:
            return "several operators read the output"
        return (
            readers[0] if tensor != -1 and readers and readers[0] > position else "nothing follows"
        )

    def _joined(
        self, first: WeightLayer, between: list[OperatorT], position: int
    ) -> ChannelPair | str:
        second = self._layer(position)
        if isinstance(second, str):
            return f"in the next layer {second}"
        if second.inputs % first.outputs:
            return "the next layer does not read whole channels"
        rectified = [
            o.outputs[0]
            for o in between
            if "RELU" in (operator_name(self._model, o), fused_activation(o))
        ]
        carried = all(shifts(self._model, operator) for operator in between[1:])
        return ChannelPair(first, second, rectified[0] if rectified else -1, carried)

    def _layer(self, position: int) -> WeightLayer | str:
        """The layer, or why it is to be left alone."""
        operator = self._graph.operators[position]
        use = use_of(self._model, self._graph, operator)
        if not self._is_whole(use, operator, 1) or use.option("weightsFormat"):
            return "the weights are not stored as float32"
        if self._constants.is_shared(self._graph, operator.inputs[1]):
            return "the weights are shared"
        if use.input(2) is not None and not self._is_whole(use, operator, 2):
            return "the bias is not stored as float32"
        if not use.input_type(0) == use.output_type == "float32":
            return "it does not compute in float32"
        layer = self._described(position, use, shape_of(use.input(1)))
        return layer if isinstance(layer, str) else self._refused(layer, use) or layer

    def _is_whole(self, use: OperatorUse, operator: OperatorT, slot: int) -> bool:
        there = use.input(slot) is not None
        return there and self._constants.is_whole(self._graph, operator.inputs[slot])

    def _described(
        self, position: int, use: OperatorUse, shape: tuple[int, ...]
    ) -> WeightLayer | str:
        name = text(use.output.name) if use.output is not None else ""
        if use.name == "FULLY_CONNECTED" and len(shape) == 2:
            return WeightLayer(name, self._index, position, shape[0], shape[-1], 0, padded=False)
        if len(shape) != 4 or 0 in shape:
            return "the weights have an odd shape"
        padded = use.option("padding") != _PADDING_VALID and shape[1:3] != (1, 1)
        inputs = last_dimension(use.input(0))
        if use.name == "CONV_2D":
            layer = WeightLayer(name, self._index, position, shape[0], shape[3], 0, padded)
            return layer if inputs == shape[3] else "the convolution is grouped"
        if not inputs or shape[0] != 1 or shape[3] % inputs:
            return "the weights have an odd shape"
        return WeightLayer(
            name, self._index, position, shape[3], inputs, shape[3] // inputs, padded
        )

    def _refused(self, layer: WeightLayer, use: OperatorUse) -> str:
        """What is wrong with the layer's numbers, "" for nothing."""
        import numpy as np

        _, operator = layer.find(self._model)
        if not np.isfinite(self._constants.read(self._graph, operator.inputs[1])).all():
            return "the weights are not finite"
        if use.input(2) is not None and shape_of(use.input(2)) != (layer.outputs,):
            return "the bias has not one number for each channel"
        return ""


# Operators that a factor for each channel passes through unchanged.
#
# They are positively homogeneous, f(s x) = s f(x) for s > 0, and keep channels apart. Channels
# are the last axis, so that an element's channel is its place in memory modulo their number.
# Reshapes leave that alone, and a flattening can be followed like any other operator.

_ELEMENTWISE = frozenset({"LEAKY_RELU", "RELU"})
_RESHAPES = frozenset({"EXPAND_DIMS", "RESHAPE", "SQUEEZE"})
_POOLS = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D"})
_RESIZES = frozenset({"RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"})
_PADS = frozenset({"MIRROR_PAD", "PAD"})
_BLOCKS = frozenset({"BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND"})
# A constant that is added to a channel comes out of these as it went in.
_SHIFTING = _RESHAPES | _POOLS | _RESIZES | {"MEAN", "MIRROR_PAD"}


def why_blocked(model: ModelT, graph: SubGraphT, operator: OperatorT, channels: int) -> str:
    """Why factors for `channels` channels do not pass the operator; "" where they do.

    They come in by its first input.
    """
    use = use_of(model, graph, operator)
    if use.name in _ELEMENTWISE | _RESHAPES:
        return ""
    if use.name == "PRELU":
        slopes = use.input(1)
        known = slopes is not None and is_constant(model, slopes)
        return "" if known else "PRELU with computed slopes follows"
    if not _keeps_channels(model, use, channels):
        return f"{use.name} follows"
    return why_bent(operator)


def why_bent(operator: OperatorT) -> str:
    """Why the operator's fused activation is not homogeneous; "" where it is, or has none."""
    name = fused_activation(operator)
    return "" if name in {"NONE", "RELU"} else f"{name} follows"


def fused_activation(operator: OperatorT) -> str:
    """The schema's name of the activation that the operator ends with, "NONE" for none."""
    code = getattr(operator.builtinOptions, "fusedActivationFunction", 0)
    return _activations().get(code, f"activation {code}")


def shifts(model: ModelT, operator: OperatorT) -> bool:
    """Whether a constant that is taken off a channel is missing from its output as it is.

    For a RELU that is so where no value is smaller than the constant.
    """
    return operator_name(model, operator) in _SHIFTING | {"RELU"}


@cache
def _activations() -> dict[int, str]:
    from ai_edge_litert.schema_py_generated import ActivationFunctionType

    named = vars(ActivationFunctionType).items()
    return {code: name for name, code in named if name[0] != "_"}


def _keeps_channels(model: ModelT, use: OperatorUse, channels: int) -> bool:
    """Whether an operator over space leaves the last axis alone, which holds the channels."""
    width = last_dimension(use.input(0))
    if width is None or width % channels:
        return False
    axis = use.rank(0) - 1
    if use.name in _POOLS | _RESIZES:
        return axis == 3
    values = _integers(model, use.input(1))
    if values is None or values.size == 0:
        return False
    if use.name == "MEAN":
        return axis not in values % (axis + 1)
    if use.name in _PADS:
        return values.size == 2 * axis + 2 and not values[-2:].any()
    return use.name in _BLOCKS and values.size < axis


def last_dimension(tensor: TensorT | None) -> int | None:
    """The size of the tensor's last axis; None where there is none or it is dynamic."""
    shape = shape_of(tensor)
    if tensor is None or not shape:
        return None
    signs = tensor.shapeSignature
    dynamic = signs is not None and len(signs) and int(signs[-1]) == -1
    return None if dynamic or shape[-1] < 1 else shape[-1]


def _integers(model: ModelT, tensor: TensorT | None) -> NDArray[np.integer] | None:
    import numpy as np

    if tensor is None or not is_constant(model, tensor):
        return None
    if type_names()[tensor.type] not in {"int32", "int64"}:
        return None
    dtype = np.dtype(type_names()[tensor.type])
    data = bytes(model.buffers[tensor.buffer].data)
    return None if len(data) % dtype.itemsize else np.frombuffer(data, dtype)
