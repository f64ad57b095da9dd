"""Takes operators that only move values out of the float islands of an integer model.

ai-edge-quantizer does not know every operator, and wraps those that it does not know in DEQUANTIZE
and QUANTIZE. One that moves or orders values gives the same for the integers.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from edgeconv.tflite.edit import code_of, require_version
from edgeconv.tflite.flatbuffer import is_constant, operator_name, parse, read, serialize, text
from edgeconv.tflite.operators import SHAPE_ONLY
from edgeconv.tflite.uses import scales_of, type_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT

_INTEGERS = ("int8", "int16")
_BRIDGES = {"QUANTIZE": (1, 2), "DEQUANTIZE": (2, 3)}
# The version of a QUANTIZE that takes integers.
_REQUANTIZES = 2
# The version from which each takes integers of 8 and of 16 bits; 0 where no kernel does.
_MOVERS = {
    "BATCH_TO_SPACE_ND": (2, 4),
    "DEPTH_TO_SPACE": (2, 0),
    "EXPAND_DIMS": (1, 1),
    "REDUCE_MAX": (2, 3),
    "REDUCE_MIN": (2, 3),
    "SPACE_TO_BATCH_ND": (2, 4),
    "SQUEEZE": (1, 1),
}


def without_float_bridges(data: bytes) -> bytes:
    """The same model, with integers for what only moves values or reads shapes.

    SHAPE and RANK, which every Keras `Flatten` of a dynamic batch has, read the integer tensor
    before a DEQUANTIZE; operators such as EXPAND_DIMS, which every Keras `Conv1D` has, also pass
    integers on. What is then used for nothing is removed; `data` itself comes back where there is
    nothing to change. Raises `InputRefused` for bytes that are not a model.
    """
    known = read(data, where="the model")
    if not any(_may_have_bridges(known, graph) for graph in known.subgraphs):
        return data
    model = parse(data, where="the model")
    changed = [_bypass(model, graph) for graph in model.subgraphs]
    return serialize(model) if any(changed) else data


def _may_have_bridges(model: ModelT, graph: SubGraphT) -> bool:
    """Whether an operator reads floats that were integers, or only moves values."""
    floats = {
        operator.outputs[0]
        for operator in graph.operators
        if operator_name(model, operator) == "DEQUANTIZE"
    }
    return any(
        operator_name(model, operator) in _MOVERS
        or (len(operator.inputs) and operator.inputs[0] in floats)
        for operator in graph.operators
    )


def _bypass(model: ModelT, graph: SubGraphT) -> bool:
    integers = {
        operator.outputs[0]: operator.inputs[0]
        for operator in graph.operators
        if operator_name(model, operator) == "DEQUANTIZE"
    }
    bypassed, moved = set[int](), set[int]()
    operators: list[OperatorT] = []
    for operator in graph.operators:
        name = operator_name(model, operator)
        source = integers.get(operator.inputs[0]) if len(operator.inputs) else None
        if source is None and name in _MOVERS:
            source = _quantized_before(model, graph, operator, operators)
        operators.append(operator)
        if source is None:
            continue
        if name in SHAPE_ONLY or _can_move(model, graph, operator, source):
            bypassed.add(operator.inputs[0])
            operator.inputs = [source, *operator.inputs[1:]]
        if name in _MOVERS and operator.inputs[0] == source:
            floating = operator.outputs[0]
            integers[floating] = _pass_on(model, graph, operator)
            moved.add(floating)
            number = operator.outputs[0]
            operators.append(_bridge(model, "DEQUANTIZE", number, floating, graph.tensors[number]))
    if not bypassed:
        return False
    graph.operators = operators
    for operator in operators:
        if operator_name(model, operator) == "QUANTIZE" and operator.inputs[0] in moved:
            operator.inputs = [integers[operator.inputs[0]]]
            require_version(model, operator, _REQUANTIZES)
    _remove_copies(model, graph)
    used = {i for operator in graph.operators for i in operator.inputs} | set(graph.outputs)
    needless = (bypassed | moved) - used
    graph.operators = [o for o in graph.operators if not needless.intersection(o.outputs)]
    return True


def _quantized_before(
    model: ModelT, graph: SubGraphT, operator: OperatorT, operators: list[OperatorT]
) -> int | None:
    """Quantize the float input of an operator as all that is made of its output is; the integers.

    A QUANTIZE is added to `operators`. None where there is no such input, or where what follows
    wants floats or other scales.
    """
    source = graph.tensors[operator.inputs[0]]
    if type_of(source) != "float32" or is_constant(model, source):
        return None
    targets = _quantized_after(model, graph, operator.outputs[0])
    if not targets or any(target is None for target in targets):
        return None
    first = targets[0]
    if first is None or not all(target and _are_alike(first, target) for target in targets):
        return None
    integers = copy.deepcopy(source)
    integers.name = f"{text(source.name)}_{type_of(first)}_{len(graph.tensors)}"
    integers.type, integers.quantization = first.type, copy.deepcopy(first.quantization)
    graph.tensors.append(integers)
    index = len(graph.tensors) - 1
    if not _can_move(model, graph, operator, index):
        graph.tensors.pop()
        return None
    operators.append(_bridge(model, "QUANTIZE", operator.inputs[0], index, integers))
    return index


def _quantized_after(model: ModelT, graph: SubGraphT, index: int) -> list[TensorT | None]:
    """What a float tensor becomes after operators that move values; None for what stays float."""
    if index in graph.outputs:
        return [None]
    targets: list[TensorT | None] = []
    for operator in graph.operators:
        if index not in operator.inputs:
            continue
        name = operator_name(model, operator)
        if name == "QUANTIZE":
            targets.append(graph.tensors[operator.outputs[0]])
        elif name in _MOVERS:
            targets += _quantized_after(model, graph, operator.outputs[0])
        elif name not in SHAPE_ONLY:
            targets.append(None)
    return targets


def _can_move(model: ModelT, graph: SubGraphT, operator: OperatorT, source: int) -> bool:
    tensor = graph.tensors[source]
    versions = _MOVERS.get(operator_name(model, operator))
    if versions is None or type_of(tensor) not in _INTEGERS or len(scales_of(tensor)) != 1:
        return False
    return versions[_INTEGERS.index(type_of(tensor))] > 0


def _pass_on(model: ModelT, graph: SubGraphT, operator: OperatorT) -> int:
    """Give an operator with an integer input an integer output of the same scale; its index."""
    source, floating = graph.tensors[operator.inputs[0]], graph.tensors[operator.outputs[0]]
    output = copy.deepcopy(floating)
    output.name = f"{text(floating.name)}_{type_of(source)}"
    output.type = source.type
    output.quantization = copy.deepcopy(source.quantization)
    graph.tensors.append(output)
    operator.outputs = [len(graph.tensors) - 1]
    name, width = operator_name(model, operator), _INTEGERS.index(type_of(source))
    require_version(model, operator, _MOVERS[name][width])
    return len(graph.tensors) - 1


def _bridge(model: ModelT, name: str, source: int, target: int, integer: TensorT) -> OperatorT:
    """A QUANTIZE or DEQUANTIZE between two tensors, one of which is `integer`."""
    from ai_edge_litert.schema_py_generated import BuiltinOperator, OperatorT

    code = code_of(model, getattr(BuiltinOperator, name))
    operator = OperatorT(opcodeIndex=code, inputs=[source], outputs=[target])
    require_version(model, operator, _BRIDGES[name][_INTEGERS.index(type_of(integer))])
    return operator


def _remove_copies(model: ModelT, graph: SubGraphT) -> None:
    """Remove every QUANTIZE to the scale that its input has, except of an output of the graph."""
    same = {
        operator.outputs[0]: operator.inputs[0]
        for operator in graph.operators
        if operator_name(model, operator) == "QUANTIZE"
        and operator.outputs[0] not in graph.outputs
        and _are_alike(graph.tensors[operator.inputs[0]], graph.tensors[operator.outputs[0]])
    }
    graph.operators = [o for o in graph.operators if not same.keys() & set(o.outputs)]
    for operator in graph.operators:
        operator.inputs = [_first(same, i) for i in operator.inputs]


def _first(same: dict[int, int], index: int) -> int:
    while index in same:
        index = same[index]
    return index


def _are_alike(source: TensorT, target: TensorT) -> bool:
    def points(tensor: TensorT) -> list[int]:
        return list(tensor.quantization.zeroPoint) if tensor.quantization else []

    return (
        source.type == target.type
        and bool(scales_of(source))
        and scales_of(source) == scales_of(target)
        and points(source) == points(target)
    )
