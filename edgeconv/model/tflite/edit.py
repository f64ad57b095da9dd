"""Changes to a .tflite file that do not change what it computes, and constants of floats.

Among them is the correction of 4-bit weights with a scale per block of inputs, for every kernel.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from edgeconv.model.tflite.flatbuffer import (
    MOST_FLATBUFFER_BYTES,
    entry_subgraphs,
    has_weights_outside,
    is_constant,
    is_outdated,
    operator_name,
    operators_of,
    parse,
    read,
    serialize,
    text,
    type_names,
)
from edgeconv.model.tflite.operators import is_quantized_tensor, shape_of, type_of
from edgeconv.model.tflite.summary import valid_names
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.schema_py_generated import (
        ModelT,
        OperatorT,
        SignatureDefT,
        SubGraphT,
        TensorMapT,
        TensorT,
    )
    from numpy.typing import NDArray

Side = Literal["inputs", "outputs"]

_WHERE = "the model"
# uint8 0 is int8 -128.
_UINT8_SHIFT = 128
_FLOAT32_BYTES = 4


def ensure_signature(data: bytes) -> bytes:
    """The same model with a signature; `data` itself where it has one.

    The signature is "serving_default" on the first subgraph. Its names are the tensors' names
    without TensorFlow's ":0" and "serving_default_", unique, of letters, digits, "_" and "." only.
    Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(data, where=_WHERE)
    if model.signatureDefs:
        return data
    model.signatureDefs = [_signature_of(model.subgraphs[0])]
    return serialize(model)


def update_format(data: bytes) -> bytes:
    """The same model in the form that converters write today; `data` itself where it has that.

    TensorFlow before 2.4 wrote operator codes to another field, which newer programs do not read.
    Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(data, where=_WHERE)
    return serialize(model) if is_outdated(data) else data


def with_weights_inside(data: bytes) -> bytes:
    """The same model with all weights in the flatbuffer, which ends at 2 GiB.

    `data` itself where that is so already, or where they do not fit. Raises `InputRefused` for
    bytes that are not a model.
    """
    if len(data) > MOST_FLATBUFFER_BYTES or not has_weights_outside(data):
        return data
    return serialize(parse(data, where=_WHERE))


def with_unique_names(data: bytes) -> bytes:
    """The same model in which every tensor has its own name; `data` itself where that is so.

    A tensor without a name is named after its operator, and a second of the same name is numbered.
    Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(data, where=_WHERE)
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    taken = Counter(text(tensor.name) for tensor in tensors)
    if "" not in taken and len(taken) == len(tensors):
        return data
    for graph in model.subgraphs:
        for operator in graph.operators:
            for index in operator.outputs:
                if index != -1 and not text(graph.tensors[index].name):
                    graph.tensors[index].name = operator_name(model, operator).lower()
    used: set[str] = set()
    for tensor in tensors:
        base = name = text(tensor.name) or "tensor"
        while name in used or (name != base and name in taken):
            name = f"{base}_{taken[base]}"
            taken[base] += 1
        used.add(name)
        tensor.name = name
    return serialize(model)


def with_names(
    data: bytes, key: str, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> bytes:
    """The same model with new names of the inputs and outputs of signature `key`, by the old ones.

    A model without a signature gets one first, see `ensure_signature`. Raises `InputRefused` for
    bytes that are not a model.
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

    Only those with dynamic dimensions after the first get another; `data` itself comes back without
    any. They stay dynamic: an interpreter starts with the default shape, whose 1 for a dynamic
    dimension is too small for many graphs. Raises `InputRefused` for bytes that are not a model.
    """
    if not any(_open_inputs(read(data, where=_WHERE), shapes)):
        return data
    model = parse(data, where=_WHERE)
    for tensor, shape in _open_inputs(model, shapes):
        tensor.shape = list(shape)
    return serialize(model)


def _open_inputs(
    model: ModelT, shapes: Mapping[str, Mapping[str, tuple[int, ...]]]
) -> Iterator[tuple[TensorT, tuple[int, ...]]]:
    """The inputs with dynamic dimensions after the first, and their shape among `shapes`."""
    for signature in model.signatureDefs or ():
        graph = model.subgraphs[signature.subgraphIndex]
        by_input = shapes.get(text(signature.signatureKey), {})
        for tensor_map in signature.inputs:
            tensor = graph.tensors[tensor_map.tensorIndex]
            signs = tensor.shapeSignature
            if text(tensor_map.name) in by_input and signs is not None and -1 in list(signs)[1:]:
                yield tensor, by_input[text(tensor_map.name)]


def with_fixed_sizes(data: bytes) -> bytes:
    """The same model with every dynamic dimension fixed to its default size, 1 for a batch.

    Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(data, where=_WHERE)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            tensor.shapeSignature = None
    return serialize(model)


def with_open_shapes(data: bytes) -> bytes:
    """The same model, in which what is quantized has the dynamic dimensions of what it was.

    litert-quantizer adds tensors that have none. `data` itself comes back if there is nothing to
    change, or if it is too large to edit. Raises `InputRefused` for bytes that are not a model.
    """
    if len(data) > MOST_FLATBUFFER_BYTES:
        return data
    if not any(_closed(read(data, where=_WHERE))):
        return data
    model = parse(data, where=_WHERE)
    for source, result in _closed(model):
        result.shapeSignature = source.shapeSignature
    return serialize(model)


def _closed(model: ModelT) -> Iterator[tuple[TensorT, TensorT]]:
    """What is quantized or unpacked from dynamic dimensions, with the result that has lost them."""
    for graph, operator in operators_of(model):
        if operator_name(model, operator) in ("DEQUANTIZE", "QUANTIZE"):
            source, result = (graph.tensors[i] for i in (operator.inputs[0], operator.outputs[0]))
            if result.shapeSignature is None and source.shapeSignature is not None:
                yield source, result


def with_uint8_io(data: bytes, *, inputs: bool, outputs: bool) -> bytes:
    """The same model with quantized int8 inputs and/or outputs as uint8.

    A QUANTIZE operator from uint8 to int8, or back, joins each: same scale, zero point 128 higher.
    Tensors of other types stay. Raises `InputRefused` for bytes that are not a model, and for a
    side without a quantized int8 tensor.
    """
    model = parse(data, where=_WHERE)
    requested: list[tuple[Side, bool]] = [("inputs", inputs), ("outputs", outputs)]
    sides = [side for side, is_requested in requested if is_requested]
    for side in sides:
        if not sum(_make_uint8(model, index, side) for index in entry_subgraphs(model)):
            raise InputRefused(
                f"{_WHERE} has no quantized int8 {side} to make uint8",
                hint="convert to full-integer int8 first",
            )
    return serialize(model) if sides else data


def _signature_of(graph: SubGraphT) -> SignatureDefT:
    from ai_edge_litert.schema_py_generated import SignatureDefT

    return SignatureDefT(
        signatureKey=SERVING_DEFAULT,
        subgraphIndex=0,
        inputs=tensor_maps(graph, graph.inputs, "input"),
        outputs=tensor_maps(graph, graph.outputs, "output"),
    )


def tensor_maps(graph: SubGraphT, indices: list[int], fallback: str) -> list[TensorMapT]:
    """A signature's valid, unique names for tensors of its graph."""
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
    """Add the uint8 tensor that replaces `old` under its name; returns its index."""
    from ai_edge_litert.schema_py_generated import TensorType

    inner = graph.tensors[old]
    twin = copy.deepcopy(inner)
    twin.type = TensorType.UINT8
    twin.quantization.zeroPoint = [int(inner.quantization.zeroPoint[0]) + _UINT8_SHIFT]
    twin.quantization.min = twin.quantization.max = None
    twin.buffer = empty_buffer(model)
    inner.name = f"{text(inner.name)}_int8"
    graph.tensors.append(twin)
    return len(graph.tensors) - 1


def empty_buffer(model: ModelT) -> int:
    """The index of a buffer without data, added if missing."""
    from ai_edge_litert.schema_py_generated import BufferT

    # Buffer 0 is empty only by convention.
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
    """The index of the code of a builtin operator at version 1, added if missing."""
    from ai_edge_litert.schema_py_generated import OperatorCodeT

    for index, code in enumerate(model.operatorCodes):
        if code.builtinCode == operator and code.version == 1:
            return index
    code = OperatorCodeT(deprecatedBuiltinCode=operator, builtinCode=operator, version=1)
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def store_values(model: ModelT, tensor: TensorT, values: NDArray[Any]) -> None:
    """Give a tensor these values, of any shape and dtype, in its own buffer."""
    import numpy as np
    from ai_edge_litert.schema_py_generated import BufferT

    users = sum(t.buffer == tensor.buffer for graph in model.subgraphs for t in graph.tensors)
    data = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
    if users == 1 and tensor.buffer:
        model.buffers[tensor.buffer] = BufferT(data=data)
        return
    model.buffers.append(BufferT(data=data))
    tensor.buffer = len(model.buffers) - 1


def require_version(model: ModelT, operator: OperatorT, version: int) -> None:
    """Raise the version that the operator declares to at least this."""
    code = model.operatorCodes[operator.opcodeIndex]
    if code.version >= version:
        return
    raised = copy.copy(code)
    raised.version = version
    for index, each in enumerate(model.operatorCodes):
        if vars(each) == vars(raised):
            operator.opcodeIndex = index
            return
    model.operatorCodes.append(raised)
    operator.opcodeIndex = len(model.operatorCodes) - 1


BLOCK = 32
# The smallest normal number of float16.
LEAST_SCALE = 2.0**-14
# Activations that are operators too, by their names in the schema.
SEPARABLE = ("RELU", "RELU_N1_TO_1", "RELU6")
# The newest version. Blocks came without a new one, and an older runtime would misread the weights.
_VERSION = 14


def is_in_blocks(tensor: TensorT) -> bool:
    """Whether these are 4-bit weights (channels, d) with float16 scales for blocks of inputs."""
    details: Any = None if tensor.quantization is None else tensor.quantization.details
    if type_of(tensor) != "int4" or not hasattr(details, "blockSize"):
        return False
    size, shape = int(details.blockSize), shape_of(tensor)
    return len(shape) == 2 and size > 0 and shape[1] % size == 0 and details.zeroPoints == -1


def block_scales(model: ModelT, graph: SubGraphT, tensor: TensorT) -> NDArray[np.float32]:
    """Float32 scales of a tensor that `is_in_blocks`, one per number, in its shape."""
    import numpy as np

    details = tensor.quantization.details
    stored = model.buffers[graph.tensors[details.scales].buffer].data
    scales = np.frombuffer(bytes(stored), "<f2").astype(np.float32)
    return np.repeat(scales, details.blockSize).reshape(shape_of(tensor))


def with_sound_blocks(data: bytes) -> bytes:
    """The same model, with equal results in LiteRT with XNNPACK and without.

    In LiteRT 2.3, the builtin kernel for weights in blocks ignores the fused activation, which gets
    its own operator here, and XNNPACK refuses the scale 0 of a block of zeros. The version is
    raised to one that older runtimes refuse. Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(data, where="the model")
    for graph in model.subgraphs:
        graph.operators = [
            each for operator in graph.operators for each in _correct(model, graph, operator)
        ]
    return serialize(model)


def _correct(model: ModelT, graph: SubGraphT, operator: OperatorT) -> list[OperatorT]:
    if operator_name(model, operator) != "FULLY_CONNECTED":
        return [operator]
    if not is_in_blocks(graph.tensors[operator.inputs[1]]):
        return [operator]
    require_version(model, operator, _VERSION)
    _give_zeros_a_scale(model, graph, graph.tensors[operator.inputs[1]])
    return [operator, *_separate_activation(model, graph, operator)]


def _give_zeros_a_scale(model: ModelT, graph: SubGraphT, tensor: TensorT) -> None:
    """Give blocks of the scale 0 another scale, and the number 0 for all their weights."""
    import numpy as np

    details: Any = tensor.quantization.details
    buffers = [model.buffers[each.buffer] for each in (graph.tensors[details.scales], tensor)]
    scales = np.frombuffer(bytes(buffers[0].data), "<f2").copy()
    zero = scales == 0
    if not np.any(zero):
        return
    scales[zero] = LEAST_SCALE
    numbers = np.frombuffer(bytes(buffers[1].data), np.uint8).reshape(len(scales), -1).copy()
    numbers[zero] = 0
    buffers[0].data = np.frombuffer(scales.tobytes(), np.uint8)
    buffers[1].data = numbers.reshape(-1)


def _separate_activation(model: ModelT, graph: SubGraphT, operator: OperatorT) -> list[OperatorT]:
    """The fused activation of `operator`, moved into its own operator; empty without one."""
    from ai_edge_litert.schema_py_generated import (
        ActivationFunctionType,
        BuiltinOperator,
        OperatorT,
    )

    fused = operator.builtinOptions.fusedActivationFunction
    names = [name for name in SEPARABLE if getattr(ActivationFunctionType, name) == fused]
    if not names:
        return []
    operator.builtinOptions.fusedActivationFunction = ActivationFunctionType.NONE
    outputs = operator.outputs
    before = copy.copy(graph.tensors[outputs[0]])
    before.name = f"{text(before.name)}/before_activation"
    graph.tensors.append(before)
    operator.outputs = [len(graph.tensors) - 1]
    code = code_of(model, getattr(BuiltinOperator, names[0]))
    return [OperatorT(opcodeIndex=code, inputs=operator.outputs, outputs=outputs)]


class OwnConstants:
    """Reads and writes constants of a parsed model.

    Files store equal constants once: several tensors share a buffer, or several operators read one
    tensor. What is written for one operator never changes another.
    """

    def __init__(self, model: ModelT) -> None:
        self._model = model
        self._uses: Counter[int] = Counter(m.buffer for m in model.metadata or ())
        for graph in model.subgraphs:
            read = [i for operator in graph.operators for i in operator.inputs if i != -1]
            self._uses.update(graph.tensors[i].buffer for i in (*read, *graph.outputs))

    def is_shared(self, graph: SubGraphT, tensor: int) -> bool:
        """Whether more than one operator, output or metadata entry reads the tensor's values."""
        return self._uses[graph.tensors[tensor].buffer] > 1

    def is_whole(self, graph: SubGraphT, tensor: int) -> bool:
        """Whether the tensor is a dense float32 constant with all numbers of its shape."""
        constant = graph.tensors[tensor]
        if type_names()[constant.type] != "float32" or not is_constant(self._model, constant):
            return False
        stored_bytes = len(self._model.buffers[constant.buffer].data)
        return constant.sparsity is None and stored_bytes == _FLOAT32_BYTES * math.prod(
            shape_of(constant)
        )

    def read(self, graph: SubGraphT, tensor: int) -> NDArray[np.float32]:
        """The float32 values of a tensor that `is_whole`, in its shape; read-only."""
        import numpy as np

        constant = graph.tensors[tensor]
        values = np.frombuffer(bytes(self._model.buffers[constant.buffer].data), "<f4")
        return values.reshape(shape_of(constant))

    def write(
        self, graph: SubGraphT, operator: OperatorT, slot: int, values: NDArray[np.float32]
    ) -> None:
        """Give the operator these float32 values, in the old shape, as input number `slot`."""
        from ai_edge_litert.schema_py_generated import BufferT

        if self.is_shared(graph, operator.inputs[slot]):
            self._uses[graph.tensors[operator.inputs[slot]].buffer] -= 1
            twin = copy.copy(graph.tensors[operator.inputs[slot]])
            self._model.buffers.append(BufferT())
            twin.buffer = len(self._model.buffers) - 1
            self._append(graph, operator, slot, twin)
        tensor = graph.tensors[operator.inputs[slot]]
        self._model.buffers[tensor.buffer].data = _stored(values)

    def write_bias(
        self, graph: SubGraphT, operator: OperatorT, values: NDArray[np.float32]
    ) -> None:
        """Give the operator these float32 values (channels,) as input number 2, new or not."""
        from ai_edge_litert.schema_py_generated import BufferT, TensorT, TensorType

        if len(operator.inputs) > 2 and operator.inputs[2] != -1:
            self.write(graph, operator, 2, values)
            return
        self._model.buffers.append(BufferT(data=_stored(values)))
        bias = TensorT(
            name=f"{text(graph.tensors[operator.outputs[0]].name)}/bias",
            shape=list(values.shape),
            type=TensorType.FLOAT32,
            hasRank=True,
            buffer=len(self._model.buffers) - 1,
        )
        operator.inputs = [*operator.inputs[:2], -1]
        self._append(graph, operator, 2, bias)

    def _append(self, graph: SubGraphT, operator: OperatorT, slot: int, tensor: TensorT) -> None:
        """Append a tensor under a unique name, and make the operator read it."""
        taken = {text(each.name) for each in graph.tensors}
        name, number = text(tensor.name), 0
        while name in taken:
            number += 1
            name = f"{text(tensor.name)}_{number}"
        tensor.name = name
        graph.tensors.append(tensor)
        inputs = list(operator.inputs)
        inputs[slot] = len(graph.tensors) - 1
        operator.inputs = inputs
        self._uses[tensor.buffer] += 1


def _stored(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    import numpy as np

    return np.frombuffer(np.ascontiguousarray(values, "<f4").tobytes(), np.uint8)
