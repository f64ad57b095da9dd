"""4-bit weights with a scale per block of inputs, corrected for every kernel."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from edgeconv.model.tflite.edit import code_of, require_version
from edgeconv.model.tflite.flatbuffer import operator_name, parse, serialize, text
from edgeconv.model.tflite.operators import shape_of, type_of

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT
    from numpy.typing import NDArray

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
