"""Short names of layers: the names of the Keras layers, as far as the names of tensors tell them.

TensorFlow names a tensor by scopes and an operation, a converter joins the names of all that it
fused: "model/block/conv/Relu;model/block/bn/FusedBatchNormV3;model/block/conv/Conv2D". The layer
is the last scope of the operation that the operator computes: "conv".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.model.tflite.flatbuffer import entry_subgraphs, is_constant, operator_name, text
from edgeconv.model.tflite.operators import type_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

# Calls of functions, and what only reads or passes on: no layer is called so.
_CALLS = re.compile(r"(?:(?:Stateful)?PartitionedCall|inference_\w+|serving_default)(?:_\d+)?")
_PASSED_ON = re.compile(
    r"(?:Identity|ReadVariableOp|Const|arith\.constant|tfl\.pseudo_(?:q?const))\d*(?:_\d+)?"
)
# What the quantizer adds to the name of a tensor.
_QUANTIZED = re.compile(r"_(?:quantized|dequant|requant)$")
_BRIDGES = frozenset({"QUANTIZE", "DEQUANTIZE"})
_NUMBER = re.compile(r"_\d+$")
# TensorFlow numbers equal names with an underscore, a converter without.
_ANY_NUMBER = re.compile(r"_?\d+$")
# Only these pass through a layer; the others compute shapes.
_VALUES = frozenset({"float32", "float16", "int8", "uint8", "int16"})
# A hostile name may have more scopes than any model.
_MOST_SCOPES = 32
# Operations that TensorFlow names in lower case, and its functions of several; others are in camel
# case. A Keras layer may have the name of an operation, as "add" has.
_FUNCTIONS = frozenset({"batchnorm", "moments", "einsum", "while", "cond"})
_OPERATIONS = frozenset(
    {
        *("add", "sub", "mul", "div", "pow", "square", "sqrt", "rsqrt"),
        *("mean", "sum", "min", "max", "range"),
        *("concat", "stack", "unstack", "split", "strided_slice", "transpose", "reverse"),
        *("zeros", "zeros_like", "ones", "ones_like"),
        *("convolution", "depthwise", "separable_conv2d", "conv2d_transpose"),
        *_FUNCTIONS,
    }
)
# The operation of TensorFlow that an operator with weights computes, in lower case.
_COMPUTES = {
    "CONV_2D": ("conv2d", "convolution", "conv1d"),
    "DEPTHWISE_CONV_2D": ("depthwise", "depthwiseconv2dnative"),
    "TRANSPOSE_CONV": ("conv2d_transpose", "conv2dbackpropinput", "conv_transpose"),
    "FULLY_CONNECTED": ("matmul", "einsum", "batchmatmulv"),
    "BATCH_MATMUL": ("matmul", "einsum", "batchmatmulv"),
    "CONV_3D": ("conv3d", "convolution"),
    "EMBEDDING_LOOKUP": ("gather", "gatherv", "resourcegather"),
    "GATHER": ("gather", "gatherv", "resourcegather"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": ("while",),
}


class _LayerPath(NamedTuple):
    """The scopes that an operator was made in, the outer first, and its operation there.

    `has_values`: it passes on the values of the layer, and not shapes.
    """

    scopes: tuple[str, ...]
    operation: str
    operator: str
    has_values: bool = True

    @property
    def inner(self) -> str:
        """What tells the operator from the others of its scopes."""
        return self.operation or self.operator.lower()


def short_names(model: ModelT) -> dict[str, str]:
    """The short name of every layer of the graphs that a caller can run, by its tensor's name.

    It is the name of the Keras layer, after the outer scopes that tell it from other layers. No two
    tensors' names have the same one, and it differs from every operator's name. Of the operators of
    one Keras layer only the one with weights has the bare name, if there is only one such; the
    others have their operation added: "dense/Softmax".
    """
    origins: dict[str, _LayerPath] = {}
    for index in entry_subgraphs(model):
        graph = model.subgraphs[index]
        for operator in graph.operators:
            outputs = [i for i in operator.outputs if i != -1]
            if outputs:
                name = text(graph.tensors[outputs[0]].name)
                origins.setdefault(name, _origin_of(model, graph, operator, name))
    origins = _without_keras_3_numbers(origins)
    taken = {*origins, *(origin.operator for origin in origins.values())}
    return {
        name: short if short == name or short not in taken else name
        for name, short in _shortened(_distinct(origins)).items()
    }


def _origin_of(model: ModelT, graph: SubGraphT, operator: OperatorT, name: str) -> _LayerPath:
    kind = operator_name(model, operator)
    if kind in _BRIDGES:
        return _LayerPath((), "", kind)
    paths = list(_paths(name))
    if not any(paths):
        # An output of the model is named after it. Its weights still have the layer's name.
        tensors = (graph.tensors[i] for i in operator.inputs if i != -1)
        constants = (text(t.name) for t in tensors if is_constant(model, t))
        paths = [path for constant in constants for path in _paths(constant) if len(path) > 1]
    computes = _COMPUTES.get(kind, (kind.lower().replace("_", ""),))
    path = next(
        (p for p in paths if _ANY_NUMBER.sub("", p[-1]).lower() in computes), next(iter(paths), ())
    )
    scopes = list(path)
    operation = scopes.pop() if scopes and _is_of(scopes[-1], _OPERATIONS) else ""
    # SeparableConv2D calls a function of that name, which a layer of the default name has too.
    if len(scopes) > 2 and operation.startswith("depthwise") and "separable" in scopes[-1]:
        scopes.pop()
    while len(scopes) > 1 and operation and _is_of(scopes[-1], _FUNCTIONS):
        operation = f"{scopes.pop()}/{operation}"
    types = {type_of(graph.tensors[i]) for i in operator.outputs if i != -1}
    return _LayerPath(tuple(scopes), operation, kind, bool(types & _VALUES))


def _paths(name: str) -> Iterator[tuple[str, ...]]:
    """The scopes and the operation of each of the names that a converter joined."""
    for part in name.split(";"):
        bare = re.sub(r":\d+$", "", _QUANTIZED.sub("", part)).removeprefix("tfl.")
        segments = bare.split("/")
        path = [each for each in segments if each and not _CALLS.fullmatch(each)]
        while path and _PASSED_ON.fullmatch(path[-1]):
            path.pop()
        if path:
            yield tuple(path[-_MOST_SCOPES:])


def _is_of(segment: str, names: frozenset[str]) -> bool:
    return segment[0].isupper() or _ANY_NUMBER.sub("", segment) in names


def _bare(segment: str) -> str:
    return _NUMBER.sub("", segment)


def _without_keras_3_numbers(origins: dict[str, _LayerPath]) -> dict[str, _LayerPath]:
    """The same with the names that Keras 3's layers have.

    Keras 3 opens the scope of each layer twice, to build and to call it, so that TensorFlow adds
    a number to the name of the second: "sequential_1/conv2d_1" is the layer conv2d.
    """
    scopes = [origin.scopes[:2] for origin in origins.values() if origin.scopes]
    names = {segment for each in scopes for segment in each}
    calls = {
        segment
        for segment in names
        if segment.endswith("_1") or (_NUMBER.search(segment) and _bare(segment) in names)
    }
    # A layer that is called again has a higher number than at first.
    first = {_bare(segment) for segment in calls}
    if not names or any(not _NUMBER.search(n) or _bare(n) not in first for n in names):
        return origins
    return {
        name: origin._replace(scopes=tuple(map(_bare, origin.scopes)))
        for name, origin in origins.items()
    }


def _distinct(origins: dict[str, _LayerPath]) -> dict[str, tuple[tuple[str, ...], int]]:
    """Different segments for each tensor's name, and how many of the last are needed."""
    members: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, origin in origins.items():
        members[origin.scopes].append(name)
    distinct: dict[str, tuple[tuple[str, ...], int]] = {}
    taken: set[tuple[str, ...]] = set()
    for scopes, names in members.items():
        main = _main(names, origins) if scopes else None
        for name in names:
            inner = () if name == main else (origins[name].inner,)
            segments = _numbered((*scopes, *inner), taken)
            taken.add(segments)
            distinct[name] = segments, min(len(segments), 1 + len(inner))
    return distinct


def _main(names: Sequence[str], origins: dict[str, _LayerPath]) -> str | None:
    """The operator that has the name of the layer alone; None where several could."""
    names = [name for name in names if origins[name].has_values]
    weighted = [name for name in names if origins[name].operator in _COMPUTES]
    only = weighted or names
    return only[0] if len(only) == 1 else None


def _numbered(segments: tuple[str, ...], taken: set[tuple[str, ...]]) -> tuple[str, ...]:
    number, numbered = 1, segments
    while numbered in taken:
        numbered = (*segments[:-1], f"{segments[-1]}_{number}")
        number += 1
    return numbered


def _shortened(distinct: dict[str, tuple[tuple[str, ...], int]]) -> dict[str, str]:
    """The fewest last segments that no other has at its end."""
    endings: dict[tuple[str, ...], int] = defaultdict(int)
    for segments, least in distinct.values():
        for ending in _endings(segments, least):
            endings[ending] += 1
    return {
        name: "/".join(next((e for e in _endings(segments, least) if endings[e] == 1), segments))
        for name, (segments, least) in distinct.items()
    }


def _endings(segments: tuple[str, ...], least: int) -> Iterable[tuple[str, ...]]:
    return (segments[-count:] for count in range(least, len(segments) + 1))
