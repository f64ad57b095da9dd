"""Changes to a .tflite file that leave what it computes as it is."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Literal

from edgeconv.errors import InputRefused
from edgeconv.tflite.flatbuffer import (
    entry_subgraphs,
    is_outdated,
    parse,
    serialize,
    text,
    type_names,
)
from edgeconv.tflite.names import valid_names
from edgeconv.tflite.weights import is_quantized_tensor
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ai_edge_litert.schema_py_generated import (
        ModelT,
        OperatorT,
        SignatureDefT,
        SubGraphT,
        TensorMapT,
        TensorT,
    )

Side = Literal["inputs", "outputs"]

_WHERE = "the model"
# What uint8 = 0 stands for is what int8 = -128 stands for.
_UINT8_SHIFT = 128


def ensure_signature(data: bytes) -> bytes:
    """The same model with a signature; `data` itself where it has one.

    The signature is "serving_default" on the first subgraph. Its names are the tensors',
    without TensorFlow's ":0" and "serving_default_", of letters, digits, "_" and "."
    only, and no two inputs (or outputs) share one. Raises `InputRefused` for bytes that
    are no model.
    """
    model = parse(data, where=_WHERE)
    if model.signatureDefs:
        return data
    graph = model.subgraphs[0]
    model.signatureDefs = [_signature_of(graph)]
    return serialize(model)


def update_format(data: bytes) -> bytes:
    """The same model in the form that converters write today; `data` itself where it has that.

    TensorFlow before 2.4 wrote operator codes to another field of the file, where newer programs
    do not look. Raises `InputRefused` for bytes that are no model.
    """
    model = parse(data, where=_WHERE)
    return serialize(model) if is_outdated(data) else data


def with_names(
    data: bytes, key: str, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> bytes:
    """The same model with other names of the inputs and outputs of signature `key`, by their own.

    A model without a signature gets one first, see `ensure_signature`. Raises `InputRefused` for
    bytes that are no model.
    """
    model = parse(ensure_signature(data), where=_WHERE)
    for signature in model.signatureDefs:
        if text(signature.signatureKey) == key:
            for maps, names in ((signature.inputs, inputs), (signature.outputs, outputs)):
                for tensor_map in maps:
                    own = text(tensor_map.name)
                    tensor_map.name = names.get(own, own)
    return serialize(model)


def with_input_shapes(data: bytes, shapes: Mapping[str, Mapping[str, tuple[int, ...]]]) -> bytes:
    """The same model with other default shapes of its inputs, by signature and input.

    Only those with dynamic dimensions beside the first get another; `data` itself comes back
    where there are none. They stay dynamic: the shape is only what an interpreter begins
    with, which has 1 for a dynamic dimension, and is too small for many a graph. Raises
    `InputRefused` for bytes that are no model.
    """
    model = parse(data, where=_WHERE)
    changed = False
    for signature in model.signatureDefs or ():
        graph = model.subgraphs[signature.subgraphIndex]
        wanted = shapes.get(text(signature.signatureKey), {})
        for tensor_map in signature.inputs:
            tensor = graph.tensors[tensor_map.tensorIndex]
            signs = tensor.shapeSignature
            if text(tensor_map.name) in wanted and signs is not None and -1 in list(signs)[1:]:
                tensor.shape = list(wanted[text(tensor_map.name)])
                changed = True
    return serialize(model) if changed else data


def with_uint8_io(data: bytes, *, inputs: bool, outputs: bool) -> bytes:
    """The same model, its quantised int8 inputs and/or outputs made uint8.

    A QUANTIZE operator from uint8 to int8, or back, joins each: same scale, zero point
    128 higher. Tensors of other types are left alone. Raises `InputRefused` for bytes
    that are no model, and where a side that was asked for has no quantised int8 tensor.
    """
    model = parse(data, where=_WHERE)
    sides = _sides(inputs=inputs, outputs=outputs)
    for side in sides:
        if not sum(_make_uint8(model, index, side) for index in entry_subgraphs(model)):
            raise InputRefused(
                f"{_WHERE} has no quantised int8 {side} that could be uint8",
                hint="uint8 needs a full-integer int8 model",
            )
    return serialize(model) if sides else data


def _sides(*, inputs: bool, outputs: bool) -> list[Side]:
    asked: list[tuple[Side, bool]] = [("inputs", inputs), ("outputs", outputs)]
    return [side for side, wanted in asked if wanted]


def _signature_of(graph: SubGraphT) -> SignatureDefT:
    from ai_edge_litert.schema_py_generated import SignatureDefT

    return SignatureDefT(
        signatureKey=SERVING_DEFAULT,
        subgraphIndex=0,
        inputs=tensor_maps(graph, graph.inputs, "input"),
        outputs=tensor_maps(graph, graph.outputs, "output"),
    )


def tensor_maps(graph: SubGraphT, indices: list[int], fallback: str) -> list[TensorMapT]:
    """A signature's names for tensors of its graph: valid, unique, made of the tensors' own."""
    from ai_edge_litert.schema_py_generated import TensorMapT

    names = valid_names([text(graph.tensors[i].name) for i in indices], fallback)
    return [TensorMapT(name=n, tensorIndex=i) for n, i in zip(names, indices, strict=True)]


def _make_uint8(model: ModelT, index: int, side: Side) -> int:
    """Make one side of a subgraph uint8; returns how many tensors that changed."""
    graph = model.subgraphs[index]
    ends = graph.inputs if side == "inputs" else graph.outputs
    changed = {
        old: _append_uint8_twin(model, graph, old)
        for old in dict.fromkeys(ends)
        if _is_quantized_int8(graph.tensors[old])
    }
    if side == "inputs":
        bridges = [_quantize_operator(model, new, old) for old, new in changed.items()]
        graph.operators = [*bridges, *graph.operators]
        graph.inputs = [changed.get(i, i) for i in ends]
    else:
        graph.operators += [_quantize_operator(model, old, new) for old, new in changed.items()]
        graph.outputs = [changed.get(i, i) for i in ends]
    for signature in model.signatureDefs or ():
        if signature.subgraphIndex == index:
            for tensor_map in getattr(signature, side):
                old = tensor_map.tensorIndex
                tensor_map.tensorIndex = changed.get(old, old)
    return len(changed)


def _is_quantized_int8(tensor: TensorT) -> bool:
    if type_names()[tensor.type] != "int8" or not is_quantized_tensor(tensor):
        return False
    zero_point = tensor.quantization.zeroPoint
    return zero_point is not None and len(zero_point) == 1


def _append_uint8_twin(model: ModelT, graph: SubGraphT, old: int) -> int:
    """Add the uint8 tensor that takes the place and the name of `old`; returns its index."""
    from ai_edge_litert.schema_py_generated import TensorType

    inner = graph.tensors[old]
    twin = copy.deepcopy(inner)
    twin.type = TensorType.UINT8
    twin.quantization.zeroPoint = [int(inner.quantization.zeroPoint[0]) + _UINT8_SHIFT]
    twin.quantization.min = twin.quantization.max = None
    twin.buffer = _empty_buffer(model)
    inner.name = f"{text(inner.name)}_int8"
    graph.tensors.append(twin)
    return len(graph.tensors) - 1


def _empty_buffer(model: ModelT) -> int:
    from ai_edge_litert.schema_py_generated import BufferT

    # Buffer 0 is the empty one by convention, and only by convention.
    if model.buffers[0].data is not None and len(model.buffers[0].data):
        model.buffers.append(BufferT())
        return len(model.buffers) - 1
    return 0


def _quantize_operator(model: ModelT, source: int, target: int) -> OperatorT:
    from ai_edge_litert.schema_py_generated import (
        BuiltinOperator,
        BuiltinOptions,
        OperatorT,
        QuantizeOptionsT,
    )

    return OperatorT(
        opcodeIndex=code_of(model, BuiltinOperator.QUANTIZE),
        inputs=[source],
        outputs=[target],
        builtinOptionsType=BuiltinOptions.QuantizeOptions,
        builtinOptions=QuantizeOptionsT(),
    )


def code_of(model: ModelT, operator: int) -> int:
    """The index of the code of a builtin operator at version 1, added where it is not there."""
    from ai_edge_litert.schema_py_generated import OperatorCodeT

    for index, code in enumerate(model.operatorCodes):
        if code.builtinCode == operator and code.version == 1:
            return index
    code = OperatorCodeT(deprecatedBuiltinCode=operator, builtinCode=operator, version=1)
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def require_version(model: ModelT, operator: OperatorT, version: int) -> None:
    """Raise the version that the operator declares to at least this."""
    code = model.operatorCodes[operator.opcodeIndex]
    if code.version >= version:
        return
    wanted = copy.copy(code)
    wanted.version = version
    for index, each in enumerate(model.operatorCodes):
        if vars(each) == vars(wanted):
            operator.opcodeIndex = index
            return
    model.operatorCodes.append(wanted)
    operator.opcodeIndex = len(model.operatorCodes) - 1
