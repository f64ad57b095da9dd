"""What TensorFlow Lite for Microcontrollers has no kernel for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.model.tflite.flatbuffer import is_custom, operator_name, type_names
from edgeconv.model.tflite.summary import spec_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT

# The operators of MicroMutableOpResolver in tflite-micro of October 2026.
_BUILTIN_NAMES = """
    ABS ADD ADD_N ARG_MAX ARG_MIN ASSIGN_VARIABLE AVERAGE_POOL_2D BATCH_MATMUL BATCH_TO_SPACE_ND
    BROADCAST_ARGS BROADCAST_TO CALL_ONCE CAST CEIL CONCATENATION CONV_2D COS CUMSUM
    DEPTH_TO_SPACE DEPTHWISE_CONV_2D DEQUANTIZE DIV DYNAMIC_UPDATE_SLICE ELU EMBEDDING_LOOKUP
    EQUAL EXP EXPAND_DIMS FILL FLOOR FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GATHER_ND GREATER
    GREATER_EQUAL HARD_SWISH IF L2_NORMALIZATION L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL LOG
    LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC LOG_SOFTMAX MAXIMUM MAX_POOL_2D MEAN MINIMUM
    MIRROR_PAD MUL NEG NOT_EQUAL PACK PAD PADV2 PRELU QUANTIZE READ_VARIABLE REDUCE_ALL REDUCE_MAX
    REDUCE_MIN RELU RELU6 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 ROUND RSQRT
    SELECT_V2 SHAPE SIN SLICE SOFTMAX SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE
    SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB SUM SVDF TANH TRANSPOSE TRANSPOSE_CONV
    UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK VAR_HANDLE WHILE ZEROS_LIKE
"""
BUILTIN = frozenset(_BUILTIN_NAMES.split())
# Its custom operators, with their methods of the resolver.
CUSTOM = {
    "CIRCULAR_BUFFER": "AddCircularBuffer",
    "SignalDelay": "AddDelay",
    "SignalEnergy": "AddEnergy",
    "SignalFftAutoScale": "AddFftAutoScale",
    "SignalFilterBank": "AddFilterBank",
    "SignalFilterBankLog": "AddFilterBankLog",
    "SignalFilterBankSpectralSubtraction": "AddFilterBankSpectralSubtraction",
    "SignalFilterBankSquareRoot": "AddFilterBankSquareRoot",
    "SignalFramer": "AddFramer",
    "SignalIrfft": "AddIrfft",
    "SignalOverlapAdd": "AddOverlapAdd",
    "SignalPCAN": "AddPCAN",
    "SignalRfft": "AddRfft",
    "SignalStacker": "AddStacker",
    "SignalWindow": "AddWindow",
    "TFLM_DECODE": "AddDecode",
    "TFLite_Detection_PostProcess": "AddDetectionPostprocess",
    "ethos-u": "AddEthosU",
}
# Operators whose second input is their weights.
WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"})
# What SELECT_V2 chooses from.
_SELECTED = frozenset({"int8", "int16", "float32"})
_INTEGERS = frozenset({"int8", "uint8", "int4", "int2"})


def missing_in_micro(model: ModelT) -> tuple[str, ...]:
    """The operators that it lacks, and those whose kernels refuse a model or compute it wrong.

    The latter are those of float16 (in a float16 model), of floats with integer weights (in a
    dynamic model), integers dequantized per channel (in a weight-only model), a choice between
    indices (of an embedding), and batches made of an open one (in a dilated convolution).
    """
    used = {
        (operator_name(model, o), is_custom(model, o)) for g in model.subgraphs for o in g.operators
    }
    missing = sorted(name for name, custom in used if name not in (CUSTOM if custom else BUILTIN))
    return (*missing, *_missing_kernels(model))


def _missing_kernels(model: ModelT) -> list[str]:
    """Its operators on types for which it has no kernel."""
    missing = set()
    for graph in model.subgraphs:
        types = [type_names()[tensor.type] for tensor in graph.tensors]
        for operator in graph.operators:
            name = operator_name(model, operator)
            inputs = [types[index] for index in operator.inputs if index != -1]
            if name == "DEQUANTIZE" and len(spec_of("", _first(graph, operator)).scale) > 1:
                # It silently uses the first scale for all of them.
                missing.add(f"{name} with a scale for each channel")
            if name == "SPACE_TO_BATCH_ND" and _is_open(graph.tensors[operator.outputs[0]]):
                # It takes the stored shape, which has a batch of 1, and writes beyond its end.
                missing.add(f"{name} of an open batch (convert with --batch 1)")
            if "float16" in inputs:
                missing.add(f"{name} of float16")
            if name == "SELECT_V2" and inputs[1] not in _SELECTED:
                missing.add(f"{name} of {inputs[1]}")
            if name in WEIGHTED and inputs[0] == "float32" and set(inputs[1:2]) & _INTEGERS:
                missing.add(f"{name} of floats with integer weights")
    return sorted(missing)


def _is_open(tensor: TensorT) -> bool:
    return -1 in (tensor.shapeSignature if tensor.shapeSignature is not None else ())


def _first(graph: SubGraphT, operator: OperatorT) -> TensorT:
    return graph.tensors[operator.inputs[0]]
