"""Smaller weights of fused recurrent layers, which litert-quantizer leaves in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edgeconv.model.tflite.edit import require_version
from edgeconv.model.tflite.flatbuffer import is_constant, operator_name, parse, serialize, text
from edgeconv.model.tflite.operators import type_of
from edgeconv.model.tflite.stored_once import halve, store_int8, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT

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
