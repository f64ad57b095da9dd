"""The layers of a float graph: its operators, by the names of their outputs.

Here is also which layers stayed in float, and how recurrent layers store their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from edgeconv.model.tflite.edit import BLOCK, require_version
from edgeconv.model.tflite.flatbuffer import (
    entry_subgraphs,
    is_constant,
    operator_name,
    operators_of,
    parse,
    read,
    serialize,
    text,
    type_names,
)
from edgeconv.model.tflite.kernels import COMPARISONS, IntegerType, has_kernel
from edgeconv.model.tflite.layer_names import short_names
from edgeconv.model.tflite.needs import needed_version
from edgeconv.model.tflite.operators import (
    BRIDGES,
    RULED,
    FloatGroup,
    grouped_floats,
    shape_of,
    type_of,
    use_of,
)
from edgeconv.model.tflite.stored_once import halve, store_int8, unpacked
from edgeconv.types import FloatOperators

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

    Shape = tuple[int, ...]
    from ai_edge_litert.schema_py_generated import TensorT

    from edgeconv.types.conversion import FloatReason

# What a layer gives: the others are indices, booleans and texts.
FLOAT_KINDS = frozenset({"float32", "complex64"})
# Their kernels support weights of 4 bits, the second input.
WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
# Their kernels support smaller weights of any kind, the second input.
COMPRESSIBLE = WEIGHTED | {"BATCH_MATMUL", "EMBEDDING_LOOKUP", "TRANSPOSE_CONV"}
# The channels of their weights are the last axis, of others the first.
_LAST_AXIS = frozenset({"BATCH_MATMUL", "DEPTHWISE_CONV_2D"})


class FloatLayer(NamedTuple):
    """An operator that computes on floats.

    `name` is that of its first output tensor, `outputs` all of them. `weights` counts the numbers
    of its largest constant, `compressible` those of its float32 or float16 weights that a kernel
    supports in a smaller type; 0 without any. `can_have_four_bits`: a kernel supports its weights
    in 4 bits; `can_have_blocks`: with a scale for every 32 inputs too. `channels` counts the scales
    of these weights where each channel has its own, and `buffer` is where they are stored, which
    several layers may share. `short_name` is that of `edgeconv.model.tflite.layer_names`, which
    rules take as well.
    """

    name: str
    operator: str
    outputs: tuple[str, ...]
    weights: int
    can_have_four_bits: bool
    can_have_blocks: bool = False
    compressible: int = 0
    short_name: str = ""
    channels: int = 0
    buffer: int = 0


def float_layers(data: bytes) -> tuple[FloatLayer, ...]:
    """The layers of every graph that a caller can run, in the order of the graphs.

    Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    names = short_names(model)
    return tuple(
        layer._replace(short_name=names[layer.name])
        for index in entry_subgraphs(model)
        for layer in _layers_of(model, model.subgraphs[index])
    )


def multiplications(data: bytes) -> int:
    """How many multiplications the weights of all layers take part in, for one invoke.

    Of dynamic dimensions the stored shape counts, in which they are 1.
    """
    model = read(data, where="the model")
    return sum(
        _products(model, graph, operator)
        for graph in model.subgraphs
        for operator in graph.operators
        if len(operator.inputs) > 1 and len(operator.outputs)
    )


def _products(model: ModelT, graph: SubGraphT, operator: OperatorT) -> int:
    weights = _constant(model, graph, operator.inputs[1])
    if operator_name(model, operator) not in WEIGHTED or not weights:
        return 0
    shape = shape_of(graph.tensors[operator.outputs[0]])
    # Each number of an output channel takes all weights of that channel once.
    return weights * math.prod(shape[:-1])


def _layers_of(model: ModelT, graph: SubGraphT) -> Iterator[FloatLayer]:
    unpacked = _unpacked(model, graph)
    for operator in graph.operators:
        outputs = tuple(text(graph.tensors[i].name) for i in operator.outputs if i != -1)
        floats = any(
            type_names()[graph.tensors[i].type] in FLOAT_KINDS for i in operator.outputs if i != -1
        )
        if outputs and floats:
            name = operator_name(model, operator)
            constants = [_constant(model, graph, index) for index in operator.inputs]
            weights = sum(constants[1:2])
            kernel = name in WEIGHTED and weights > 0
            yield FloatLayer(
                outputs[0],
                name,
                outputs,
                weights=max(constants, default=0),
                can_have_four_bits=kernel,
                can_have_blocks=kernel and name == "FULLY_CONNECTED" and _divides(graph, operator),
                compressible=_compressible(name, operator, weights, unpacked),
                channels=_channels(name, graph, operator),
                buffer=graph.tensors[operator.inputs[1]].buffer if weights else 0,
            )


def _compressible(name: str, operator: OperatorT, weights: int, unpacked: dict[int, int]) -> int:
    if name not in COMPRESSIBLE:
        return 0
    return weights or sum(unpacked.get(index, 0) for index in operator.inputs[1:2])


def _channels(name: str, graph: SubGraphT, operator: OperatorT) -> int:
    if name not in COMPRESSIBLE or len(operator.inputs) < 2 or operator.inputs[1] == -1:
        return 0
    sizes = shape_of(graph.tensors[operator.inputs[1]])
    return sizes[-1 if name in _LAST_AXIS else 0] if sizes else 1


def _unpacked(model: ModelT, graph: SubGraphT) -> dict[int, int]:
    """How many numbers each tensor has that is unpacked from stored float16, by its index."""
    return {
        output: _constant(model, graph, source, "float16")
        for operator in graph.operators
        if operator_name(model, operator) == "DEQUANTIZE"
        for source, output in zip(operator.inputs, operator.outputs, strict=False)
    }


def _divides(graph: SubGraphT, operator: OperatorT) -> bool:
    shape = shape_of(graph.tensors[operator.inputs[1]])
    return len(shape) == 2 and shape[1] % BLOCK == 0


def _constant(model: ModelT, graph: SubGraphT, index: int, dtype: str = "float32") -> int:
    """How many numbers a stored tensor of this type has; 0 for any other."""
    if index == -1:
        return 0
    tensor = graph.tensors[index]
    if type_names()[tensor.type] != dtype or not is_constant(model, tensor):
        return 0
    return math.prod(shape_of(tensor))


# The inputs of an LSTM that are matrices of weights, of the four gates and of the projection.
_LSTM_WEIGHTS = (*range(1, 9), 16)


def macs(model: ModelT, graph: SubGraphT, operator: OperatorT) -> int:
    """The multiplications of one invoke, 0 for operators without sums of products.

    Dynamic dimensions count as they are stored, which is 1. Those of a loop are of one step.
    """
    count = _COUNTS.get(operator_name(model, operator))
    if count is None:
        return 0
    shapes = [_shape(graph, index) for index in operator.inputs]
    outputs = [_shape(graph, index) for index in operator.outputs]
    try:
        return count(shapes, outputs[0])
    except IndexError:
        # An operator without the inputs of its kind, which no runtime runs.
        return 0


def _shape(graph: SubGraphT, index: int) -> Shape:
    """The shape of a tensor; of an optional one that is missing, no elements."""
    return shape_of(graph.tensors[index]) if index != -1 else (0,)


def _dense(inputs: list[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[1][-1:])


def _lstm(inputs: list[Shape], _: Shape) -> int:
    weights: int = sum(math.prod(inputs[index]) for index in _LSTM_WEIGHTS if index < len(inputs))
    steps: int = math.prod(inputs[0][:-1])
    return weights * steps


# By the shapes of the inputs and of the output.
_COUNTS: dict[str, Callable[[list[Shape], Shape], int]] = {
    "BATCH_MATMUL": lambda inputs, output: math.prod(inputs[0]) * output[-1],
    "CONV_2D": lambda inputs, output: math.prod(output) * math.prod(inputs[1][1:]),
    "CONV_3D": lambda inputs, output: math.prod(output) * math.prod(inputs[1][:-1]),
    "DEPTHWISE_CONV_2D": lambda inputs, output: math.prod(output) * math.prod(inputs[1][1:3]),
    "FULLY_CONNECTED": _dense,
    "SVDF": lambda inputs, _: inputs[0][0] * (math.prod(inputs[1]) + math.prod(inputs[2])),
    "TRANSPOSE_CONV": lambda inputs, _: math.prod(inputs[2][:-1]) * math.prod(inputs[1]),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
}


_NAMED = 3


class FloatsLeft(NamedTuple):
    """What computes in float, and the share of the work that is done in integers, 0 to 1."""

    operators: tuple[FloatOperators, ...] = ()
    integer_share: float = 1.0


def floats_left(data: bytes, ruled: Collection[str], integers: IntegerType) -> FloatsLeft:
    """The operators that compute on float activations, those without a kernel first.

    `ruled` are tensors of layers that rules keep in float. The work of an operator is its
    multiplications, or its output values where it has none; of a loop that of one step. Raises
    `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    short = short_names(model)
    found: dict[tuple[FloatReason, str], list[str]] = {}
    in_float = 0
    for group in grouped_floats(model, ruled):
        graph = model.subgraphs[group.graph]
        for place in group.places:
            operator = graph.operators[place]
            name = operator_name(model, operator)
            if name in BRIDGES:
                continue
            in_float += _work(model, graph, operator)
            names = [text(graph.tensors[index].name) for index in operator.outputs if index != -1]
            reason = _reason(name, group, integers, is_ruled=bool({*names} & {*ruled}))
            first = next(iter(names), name)
            found.setdefault((reason, name), []).append(short.get(first, first))
    total = _whole_work(model)
    operators = tuple(
        FloatOperators(
            name=name,
            count=len(layers),
            layers=tuple(dict.fromkeys(layers))[:_NAMED],
            reason=reason,
        )
        for (reason, name), layers in sorted(
            found.items(), key=lambda each: (_ORDER.index(each[0][0]), each[0][1])
        )
    )
    return FloatsLeft(operators, 1 - in_float / total if total else 1.0)


_ORDER: tuple[FloatReason, ...] = ("no kernel", "rule", "engine", "neighbor")


def _reason(name: str, group: FloatGroup, integers: IntegerType, *, is_ruled: bool) -> FloatReason:
    if is_ruled or name in COMPARISONS:
        return "rule"
    if not has_kernel(name, integers):
        return "no kernel"
    others = (each for each in group.names - BRIDGES if not has_kernel(each, integers))
    return "neighbor" if RULED in group.names or any(others) else "engine"


def work_of_invoke(data: bytes) -> int:
    """The work of all operators, counted as in `floats_left`. Raises `InputRefused`."""
    return _whole_work(read(data, where="the model"))


def _whole_work(model: ModelT) -> int:
    return sum(
        _work(model, graph, operator)
        for graph in model.subgraphs
        for operator in graph.operators
        if operator_name(model, operator) not in BRIDGES
    )


def _work(model: ModelT, graph: SubGraphT, operator: OperatorT) -> int:
    values = sum(math.prod(shape_of(graph.tensors[i])) for i in operator.outputs if i != -1)
    return macs(model, graph, operator) or max(0, values)


SmallWeights = Literal["int8", "weight-only-int8", "float16"]
_LSTM = "UNIDIRECTIONAL_SEQUENCE_LSTM"
# The fused recurrent operators keep their state from one invoke to the next.
STATEFUL = frozenset(
    {
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        "BIDIRECTIONAL_SEQUENCE_RNN",
        "LSTM",
        "RNN",
        "SVDF",
        _LSTM,
        "UNIDIRECTIONAL_SEQUENCE_RNN",
    }
)
# Its inputs that are weights: of the inputs, of the state, of the cell, and of the projection.
_WEIGHTS = (*range(1, 12), 16)
# The version from which it takes int8 weights and a float input.
_INT8_VERSION = 2


def with_small_lstms(data: bytes, kind: SmallWeights, kept: Collection[str] = ()) -> bytes:
    """The same model with the weights of fused LSTM layers as int8 or float16.

    "int8" weights have one symmetric scale each, and the runtime multiplies them with inputs that
    it quantizes. "float16" ones, and "weight-only-int8" ones, which have a symmetric scale for each
    unit, are unpacked before they are used. Layers whose output is among `kept` stay, and so do
    those that share a weight. `data` itself comes back without such layers. Raises `InputRefused`
    for bytes that are not a model.
    """
    model = read(data, where="the model")
    if not any(operator_name(model, operator) == _LSTM for _, operator in operators_of(model)):
        return data
    model = parse(data, where="the model")
    changed = False
    for graph in model.subgraphs:
        for operator in list(graph.operators):
            if operator_name(model, operator) != _LSTM:
                continue
            slots = _weights(model, graph, operator)
            if not slots or text(graph.tensors[operator.outputs[0]].name) in kept:
                continue
            changed = True
            if kind == "int8":
                for slot in slots:
                    _quantize(model, graph.tensors[operator.inputs[slot]])
                require_version(model, operator, _INT8_VERSION)
            else:
                store = halve if kind == "float16" else _quantize_units
                _unpack(model, graph, operator, slots, store)
    return serialize(model) if changed else data


def with_asymmetric_inputs(data: bytes) -> bytes:
    """The same model, whose floats get a zero point where int8 weights multiply them.

    Kernels without one round what is never negative to 7 bits; XNNPACK's always has one. `data`
    itself comes back without such operators. Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(data, where="the model")
    changed = False
    for graph in model.subgraphs:
        for operator in graph.operators:
            use = use_of(model, graph, operator)
            hybrid = use.is_hybrid(2 if use.name == _LSTM else 1)
            if hybrid and use.option("asymmetricQuantizeInputs") is False:
                operator.builtinOptions.asymmetricQuantizeInputs = True
                require_version(model, operator, needed_version(use) or 1)
                changed = True
    return serialize(model) if changed else data


def _weights(model: ModelT, graph: SubGraphT, operator: OperatorT) -> list[int]:
    """The numbers of the inputs that are weights; none unless all are float32 and its own."""
    read = [index for each in graph.operators for index in each.inputs]
    slots = [slot for slot in _WEIGHTS if _is_given(operator, slot)]
    for slot in slots:
        tensor = graph.tensors[operator.inputs[slot]]
        is_stored = type_of(tensor) == "float32" and is_constant(model, tensor)
        if not is_stored or tensor.sparsity is not None or read.count(operator.inputs[slot]) > 1:
            return []
    return slots


def _is_given(operator: OperatorT, slot: int) -> bool:
    return slot < len(operator.inputs) and operator.inputs[slot] != -1


def _quantize(model: ModelT, tensor: TensorT) -> None:
    store_int8(model, tensor, scales=1)


def _quantize_units(model: ModelT, tensor: TensorT) -> None:
    is_vector = len(tensor.shape) < 2
    store_int8(model, tensor, scales=1 if is_vector else int(tensor.shape[0]))


def _unpack(
    model: ModelT,
    graph: SubGraphT,
    operator: OperatorT,
    slots: list[int],
    store: Callable[[ModelT, TensorT], None],
) -> None:
    """Let an operator read weights that `store` made small through a DEQUANTIZE each."""
    inputs = list(operator.inputs)
    for slot in slots:
        inputs[slot] = unpacked(model, graph, inputs[slot], store)
    operator.inputs = inputs
