"""The operators of a .tflite, which of them compute on floats, and how it stores its weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.model.tflite.flatbuffer import (
    entry_subgraphs,
    is_constant,
    is_custom,
    malformed,
    operator_name,
    operators_of,
    read,
    text,
    type_names,
)
from edgeconv.types import OperatorCount, RecipeName

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT


# The place of an operator in its graph, and its name.
_Member = tuple[int, str]
# Stands for an operator that a rule leaves in float.
RULED = ""
_FLOAT_TYPES = frozenset({"float32", "float16", "bfloat16", "float64"})
# They give the same numbers in another type.
BRIDGES = frozenset({"CAST", "DEQUANTIZE", "QUANTIZE"})
# They run another subgraph, or share data with one: no quantizer looks through them.
RUN_GRAPHS = frozenset({"CALL", "CALL_ONCE", "IF", "STABLEHLO_WHILE", "WHILE"})
# They read a tensor's dimensions, never its values.
SHAPE_ONLY = frozenset({"SHAPE", "RANK"})
# They convert a stored constant to another form.
_UNPACKERS = frozenset({"DEQUANTIZE", "DENSIFY"})


def count_operators(model: ModelT) -> tuple[OperatorCount, ...]:
    """How often each operator occurs at each version, over all subgraphs, sorted."""
    counts = Counter(
        (operator_name(model, operator), int(model.operatorCodes[operator.opcodeIndex].version))
        for _, operator in operators_of(model)
    )
    return tuple(
        OperatorCount(name=name, version=version, count=count)
        for (name, version), count in sorted(counts.items())
    )


def custom_operators(model: ModelT) -> tuple[str, ...]:
    """The custom codes in use, sorted."""
    used = {operator_name(model, o) for _, o in operators_of(model) if is_custom(model, o)}
    return tuple(sorted(used))


def float_operators(model: ModelT) -> tuple[str, ...]:
    """The names of the operators that compute on float activations, sorted.

    QUANTIZE, DEQUANTIZE and CAST, which give the same numbers in another type, count where they
    connect two such operators, and not at the model's inputs, outputs or constants.
    """
    return tuple(sorted(set[str]().union(*(group.names for group in grouped_floats(model)))))


def float_groups(data: bytes, ruled: Collection[str] = ()) -> tuple[frozenset[str], ...]:
    """The `float_operators` of a .tflite, together those that give floats to each other.

    Those of a loop's or branch's graph are together with the operator that runs it. One that writes
    a tensor named in `ruled` is `RULED` in its group. Raises `InputRefused` for bytes that are not
    a model.
    """
    groups = grouped_floats(read(data, where="the model"), ruled)
    return tuple(group.names for group in groups)


class FloatGroup(NamedTuple):
    """Operators that give floats to each other: names, graph, and places in it."""

    names: frozenset[str]
    graph: int
    places: tuple[int, ...]


def grouped_floats(model: ModelT, ruled: Collection[str] = ()) -> tuple[FloatGroup, ...]:
    """See `float_groups`."""
    entries = entry_subgraphs(model)
    groups = [
        FloatGroup(frozenset(dict(members).values()), index, tuple(sorted(dict(members))))
        for index, graph in enumerate(model.subgraphs)
        for members in _groups_of(model, graph, ruled, is_entry=index in entries)
    ]
    runners = RUN_GRAPHS.intersection(frozenset[str]().union(*(each.names for each in groups)))
    return tuple(
        each if each.graph in entries else each._replace(names=each.names | runners)
        for each in groups
    )


def _groups_of(
    model: ModelT, graph: SubGraphT, ruled: Collection[str], *, is_entry: bool
) -> list[set[_Member]]:
    floats = _float_activations(model, graph)
    ends = {*graph.inputs, *graph.outputs} if is_entry else set[int]()
    explained = set(ends)
    bridges = []
    groups = list[tuple[set[_Member], set[int]]]()
    for place, operator in enumerate(graph.operators):
        name = operator_name(model, operator)
        touched = floats.intersection((*operator.inputs, *operator.outputs))
        if not touched or name in SHAPE_ONLY:
            continue
        if name in BRIDGES:
            bridges.append((place, name, touched))
        else:
            explained |= touched
            # Readers of one input of the model give each other nothing.
            is_ruled = any(text(graph.tensors[i].name) in ruled for i in operator.outputs)
            _join(groups, (place, RULED if is_ruled else name), touched - ends)
    # Ids that are floats, masks of booleans and pictures of bytes get another type, and no more.
    cast = {index for _, name, touched in bridges if name == "CAST" for index in touched}
    for place, name, touched in bridges:
        if name != "CAST" and not touched & (explained | cast):
            _join(groups, (place, name), touched)
    return [members for members, _ in groups]


def _join(groups: list[tuple[set[_Member], set[int]]], member: _Member, tensors: set[int]) -> None:
    """Add an operator to the groups, and make one of those that share its tensors."""
    near = [group for group in groups if tensors & group[1]]
    groups[:] = [group for group in groups if group not in near]
    members, touched = zip(*near, strict=True) if near else ((), ())
    groups.append(({member}.union(*members), tensors.union(*touched)))


def _float_activations(model: ModelT, graph: SubGraphT) -> set[int]:
    floats = {i for i, t in enumerate(graph.tensors) if type_names()[t.type] in _FLOAT_TYPES}
    constant = {i for i, t in enumerate(graph.tensors) if is_constant(model, t)}
    for operator in graph.operators:
        if operator_name(model, operator) in _UNPACKERS and {*operator.inputs} <= {*constant, -1}:
            constant.update(operator.outputs)
    return floats - constant


class OperatorUse(NamedTuple):
    """One operator in a graph with its tensors, None for a missing optional one."""

    name: str
    inputs: tuple[TensorT | None, ...]
    outputs: tuple[TensorT | None, ...]
    options: Any

    def input(self, index: int) -> TensorT | None:
        """An input, None if there is none."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def output(self) -> TensorT | None:
        """The first output, None if there is none."""
        return self.outputs[0] if self.outputs else None

    def input_type(self, index: int) -> str:
        """The type of an input, "" if there is none."""
        return type_of(self.input(index))

    @property
    def output_type(self) -> str:
        """The type of the first output, "" if there is none."""
        return type_of(self.output)

    def rank(self, index: int) -> int:
        """How many dimensions an input has, 0 if there is none."""
        return len(shape_of(self.input(index)))

    def option(self, name: str) -> Any:
        """An option by the schema's name; None where the operator does not have it."""
        return getattr(self.options, name, None)

    def is_hybrid(self, weights: int) -> bool:
        """Whether it computes on floats with int8 weights, which are input number `weights`."""
        floats = self.input_type(0) == self.output_type == "float32"
        return floats and self.input_type(weights) == "int8"


def use_of(model: ModelT, graph: SubGraphT, operator: OperatorT) -> OperatorUse:
    """`operator` of `graph` with its tensors."""

    def tensors(indices: list[int]) -> tuple[TensorT | None, ...]:
        return tuple(None if index == -1 else graph.tensors[index] for index in indices)

    return OperatorUse(
        operator_name(model, operator),
        tensors(operator.inputs),
        tensors(operator.outputs),
        operator.builtinOptions,
    )


def type_of(tensor: TensorT | None) -> str:
    """The tensor's type by its numpy name, "" for None."""
    return "" if tensor is None else type_names()[tensor.type]


def shape_of(tensor: TensorT | None) -> tuple[int, ...]:
    """The tensor's shape with 1 for a dynamic dimension, empty for None."""
    return () if tensor is None or tensor.shape is None else tuple(int(d) for d in tensor.shape)


def scales_of(tensor: TensorT | None) -> tuple[float, ...]:
    """The tensor's quantization scales, empty where it has none."""
    quantization = None if tensor is None else tensor.quantization
    if quantization is None or quantization.scale is None:
        return ()
    return tuple(float(scale) for scale in quantization.scale)


def parameter_tensors(tensor: TensorT) -> frozenset[int]:
    """The tensors that hold the scales and zero points of weights quantized in blocks."""
    details: Any = None if tensor.quantization is None else tensor.quantization.details
    if not hasattr(details, "scales"):
        return frozenset()
    return frozenset({details.scales, details.zeroPoints} - {-1})


def has_channel_scales(tensor: TensorT | None) -> bool:
    """Whether a tensor is quantized with more than one scale."""
    return len(scales_of(tensor)) > 1


_FLOAT32_BYTES = 4
_FLOAT_BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}
_QUANTIZED_BITS = {"int2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
_FLOAT8_BITS = {"float8_e4m3fn": 8, "float8_e5m2": 8}
_FOUR_BITS = frozenset({"int4", "uint4", "int2"})
# Integers of 32 bits or more are biases, shapes and indices, with a scale or without.
_STORED_BITS = _FLOAT_BITS | _QUANTIZED_BITS | _FLOAT8_BITS | {"int16": 16}


class WeightBytes(NamedTuple):
    """Bytes of a model's weights: as stored, and as float32 in all, quantized and of float16."""

    stored_bytes: int = 0
    all_float32_bytes: int = 0
    quantized_float32_bytes: int = 0
    float16_float32_bytes: int = 0

    @property
    def quantized_share(self) -> float:
        """The fraction stored as integers of 8 bits or less; 0 without weights."""
        return self._share(self.quantized_float32_bytes)

    @property
    def float16_share(self) -> float:
        """The fraction stored as float16; 0 without weights."""
        return self._share(self.float16_float32_bytes)

    def _share(self, part_bytes: int) -> float:
        return part_bytes / self.all_float32_bytes if self.all_float32_bytes else 0.0


def weigh(model: ModelT, *, where: str) -> WeightBytes:
    """The sum of every constant that is a float weight or a quantized one.

    A shared buffer counts once. Raises `InputRefused` where a tensor has fewer bytes than its shape
    needs.
    """
    tensors = {tensor.buffer: tensor for tensor in reversed(_weight_tensors(model))}
    sizes = [WeightBytes(), *(_weigh_tensor(model, each, where) for each in tensors.values())]
    return WeightBytes(*map(sum, zip(*sizes, strict=True)))


def is_quantized_tensor(tensor: TensorT) -> bool:
    """Whether the tensor has quantized integers. Some float tensors have parameters too."""
    quantization = tensor.quantization
    if quantization is None or type_names()[tensor.type] in _FLOAT_BITS:
        return False
    has_scale = quantization.scale is not None and len(quantization.scale) > 0
    return has_scale or quantization.details is not None


def _weight_tensors(model: ModelT) -> list[TensorT]:
    weights = []
    for graph in model.subgraphs:
        others = {i for tensor in graph.tensors for i in parameter_tensors(tensor)}
        others |= _first_states(model, graph)
        weights += [
            tensor
            for index, tensor in enumerate(graph.tensors)
            if index not in others and is_constant(model, tensor) and _is_weight(tensor)
        ]
    return weights


def _first_states(model: ModelT, graph: SubGraphT) -> set[int]:
    """Zeros that nothing but a loop reads: what it begins with."""
    read_by: dict[bool, set[int]] = {True: set(), False: set()}
    for operator in graph.operators:
        read_by[operator_name(model, operator) in RUN_GRAPHS].update(operator.inputs)
    constant = {
        i for i in read_by[True] - read_by[False] - {-1} if is_constant(model, graph.tensors[i])
    }
    return {i for i in constant if not any(bytes(model.buffers[graph.tensors[i].buffer].data))}


def _is_weight(tensor: TensorT) -> bool:
    name = type_names()[tensor.type]
    if name in _FLOAT_BITS or name in _FLOAT8_BITS:
        return True
    return name in _STORED_BITS and is_quantized_tensor(tensor)


def _weigh_tensor(model: ModelT, tensor: TensorT, where: str) -> WeightBytes:
    name = type_names()[tensor.type]
    stored_bytes = len(model.buffers[tensor.buffer].data)
    elements = math.prod(int(d) for d in tensor.shape) if tensor.shape is not None else 1
    if tensor.sparsity is None and stored_bytes * 8 < elements * _STORED_BITS[name]:
        raise malformed(where, f"a tensor of {elements} {name} has only {stored_bytes} bytes")
    float32_bytes = max(elements, 0) * _FLOAT32_BYTES
    return WeightBytes(
        stored_bytes,
        float32_bytes,
        float32_bytes if name in _QUANTIZED_BITS else 0,
        float32_bytes if name == "float16" else 0,
    )


def likely_recipe(data: bytes, *, where: str) -> RecipeName:
    """The recipe that gives weights and activations of the types in this file.

    uint8 counts as int8. Raises `InputRefused`, which names the file as `where`, for bytes that
    are not a model.
    """
    model = read(data, where=where)
    activations = set(_quantized_types(model, constants=False))
    weights = set(_quantized_types(model, constants=True))
    if "int16" in activations:
        return "int16x8"
    if activations & {"int8", "uint8"}:
        return "int8x4" if weights & _FOUR_BITS else "int8"
    if not weights - {"int32", "int64"}:
        return "float16" if weigh(model, where=where).float16_share else "float32"
    if not _are_unpacked(model):
        return "dynamic"
    return "weight-only-int4" if weights & _FOUR_BITS else "weight-only-int8"


def _quantized_types(model: ModelT, *, constants: bool) -> Iterator[str]:
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if is_quantized_tensor(tensor) and is_constant(model, tensor) == constants:
                yield type_names()[tensor.type]


def _are_unpacked(model: ModelT) -> bool:
    """Whether the weights are dequantized before they are used."""
    return any(
        is_constant(model, graph.tensors[i]) and is_quantized_tensor(graph.tensors[i])
        for graph, operator in operators_of(model)
        if operator_name(model, operator) == "DEQUANTIZE"
        for i in operator.inputs
        if i != -1
    )
