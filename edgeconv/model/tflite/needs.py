"""The version of an operator that its tensors and options need, apart from the declared one.

A quantizer may make an operator int8 and leave its version at 1. An older runtime then loads the
model, and fails or computes nonsense. The rules are those of TensorFlow's converter (op_version.cc
and op_signature.cc in tensorflow/compiler/mlir/lite/tools/versioning, to 2.23). A version includes
the earlier ones, so the largest of all rules counts.
"""

from collections.abc import Callable, Iterable, Iterator

from edgeconv.model.tflite.operators import (
    OperatorUse,
    has_channel_scales,
    scales_of,
    shape_of,
    type_of,
)

Needs = Callable[[OperatorUse], Iterable[int | None]]


# Operators got these late and one by one: without a rule, the version is unknown.
RECENT_TYPES = frozenset({"int2", "int4", "uint4", "bfloat16", "float8_e4m3fn", "float8_e5m2"})
_INT8, _INT8_INT16 = {"int8": 2}, {"int8": 2, "int16": 3}
_ANY_INT8 = {"int8": 2, "uint8": 2}

# The version that a type of the first input needs.
_SHARED_BY_TYPE: tuple[tuple[dict[str, int], str], ...] = (
    (
        _INT8_INT16,
        "AVERAGE_POOL_2D BATCH_MATMUL GREATER_EQUAL LESS LOGISTIC MAX_POOL_2D MEAN MIRROR_PAD "
        "REDUCE_MAX REDUCE_MIN RELU6 RSQRT SOFTMAX TANH TOPK_V2",
    ),
    (
        _INT8,
        "DEPTH_TO_SPACE GREATER L2_NORMALIZATION LESS_EQUAL LOG_SOFTMAX SPACE_TO_DEPTH SPLIT_V "
        "SQUARED_DIFFERENCE SUM TRANSPOSE_CONV",
    ),
    ({"int8": 2, "int16": 2}, "EXP FLOOR_MOD LOG REDUCE_PROD SQRT"),
    ({"int8": 2, "bool": 3}, "ARG_MAX ARG_MIN"),
    (
        {"int8": 2, "int16": 4},
        "BATCH_TO_SPACE_ND MAXIMUM MINIMUM RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR "
        "SPACE_TO_BATCH_ND",
    ),
    ({"int8": 2, "int16": 3, "bool": 5}, "PAD PADV2"),
)
_BY_TYPE: dict[str, dict[str, int]] = {
    **{name: types for types, names in _SHARED_BY_TYPE for name in names.split()},
    "ABS": {**_ANY_INT8, "int32": 5},
    "ADD": {"int8": 2, "int64": 4, "float16": 6},
    "BROADCAST_TO": {"int8": 3, "int16": 3},
    "CONCATENATION": {**_INT8_INT16, "uint32": 4, "int4": 5},
    "DEQUANTIZE": {**_INT8_INT16, "float16": 3, "int4": 6, "int2": 7, "uint4": 8},
    "DYNAMIC_UPDATE_SLICE": {"float16": 3, "int16": 4, "int4": 5, "bfloat16": 6},
    "EMBEDDING_LOOKUP": {"int4": 4, "int2": 5},
    "EQUAL": {"int8": 2, "string": 3, "int16": 5},
    "FILL": {"bool": 2, "string": 2, "int8": 3, "int16": 3, "float16": 4},
    "FLOOR_DIV": {"float32": 2, "int8": 3, "int16": 3},
    "GATHER": {"int8": 2, "bool": 3, "int16": 4, "int4": 7},
    "GATHER_ND": {"string": 2, "int16": 3, "bool": 5},
    "GELU": _ANY_INT8,
    "LEAKY_RELU": {"int16": 2},
    "MUL": {"int8": 2, "int16": 4, "int64": 5, "complex64": 6, "uint32": 7, "float16": 8},
    "NOT_EQUAL": {"int8": 2, "string": 3, "int16": 4},
    "PACK": {**_INT8_INT16, "uint32": 4},
    "QUANTIZE": {"int4": 4, "uint4": 5},
    "RANGE": {"int64": 2},
    "RELU": {**_ANY_INT8, "int16": 3},
    "REVERSE_V2": {"bool": 2, "int8": 3},
    "SELECT": {"int8": 2, "uint32": 4},
    "SELECT_V2": {"uint32": 2},
    "SIGN": {"int32": 2},
    "SLICE": {"int8": 2, "string": 3, "int16": 4, "uint32": 6, "int4": 7},
    "SPARSE_TO_DENSE": {"int64": 2, "int8": 3, "uint8": 3},
    "SPLIT": {"int8": 2, "int32": 3, "int16": 4},
    "SQUEEZE": {"string": 2},
    "STRIDED_SLICE": {"int8": 2, "bool": 3, "string": 5, "uint32": 7},
    "SUB": {"int8": 2, "int64": 4},
    "SVDF": {"int8": 3},
    "TILE": {"string": 2, "int8": 3},
    "TRANSPOSE": {"int8": 2, "bool": 3, "int16": 5, "int4": 7, "bfloat16": 8},
    "UNPACK": {**_ANY_INT8, "bool": 3, "int16": 4, "float16": 5, "bfloat16": 5},
}
# There are no rules for their int8 activations.
_LSTMS = frozenset({"BIDIRECTIONAL_SEQUENCE_LSTM", "LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"})
# The input whose type decides, where it is not the first.
_DECIDING_INPUT = {
    "EMBEDDING_LOOKUP": 1,
    "FILL": 1,
    "SPARSE_TO_DENSE": 2,
    "SPLIT": 1,
    "TRANSPOSE_CONV": 1,
}
# (more dimensions than, version)
_BY_RANK = {
    "PAD": ((4, 4),),
    "PADV2": ((4, 4),),
    "SELECT": ((4, 3),),
    "SLICE": ((4, 5),),
    "STRIDED_SLICE": ((4, 4),),
    "TRANSPOSE": ((4, 4), (5, 6), (6, 8)),
}
# Operators that broadcast over more than four dimensions from this version on.
_WIDE_BROADCAST = {"DIV": 2, "MAXIMUM": 3, "MINIMUM": 3, "SUB": 3}
_CAST = {
    "uint32": 2,
    "int8": 3,
    "uint16": 4,
    "float16": 5,
    "float64": 5,
    "bfloat16": 7,
    "int2": 8,
    "uint4": 8,
}


def needed_version(use: OperatorUse) -> int | None:
    """The version that the operator needs, 1 by default; None for a type without a rule."""
    versions = [version for version in _needs(use) if version]
    recent = {type_of(tensor) for tensor in (*use.inputs, *use.outputs)} & RECENT_TYPES
    if recent and not _has_rule(use, recent):
        return None
    if use.name in _LSTMS and use.input_type(0) == "int8":
        return None
    return max(versions, default=1)


def _has_rule(use: OperatorUse, recent: set[str]) -> bool:
    if use.name == "CAST":
        return recent <= set(_CAST) or (use.input_type(0), use.output_type) == ("int4", "float32")
    if use.name in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        return recent == {"int4"} and use.input_type(0) == "int8"
    if use.name == "FULLY_CONNECTED":
        return recent == {"int2"} or (recent == {"int4"} and use.input_type(0) in ("int8", "int16"))
    return recent <= set(_BY_TYPE.get(use.name, ()))


def _needs(use: OperatorUse) -> Iterator[int | None]:
    deciding = use.input_type(_DECIDING_INPUT.get(use.name, 0))
    yield _BY_TYPE.get(use.name, {}).get(deciding)
    yield from (version for most, version in _BY_RANK.get(use.name, ()) if use.rank(0) > most)
    if use.name in _WIDE_BROADCAST and len({shape_of(tensor) for tensor in use.inputs}) > 1:
        yield _WIDE_BROADCAST[use.name] if max(use.rank(0), use.rank(1)) > 4 else None
    if use.name in _SPECIAL:
        yield from _SPECIAL[use.name](use)


def _has_narrow_bias(use: OperatorUse, activations: str, bias: int) -> bool:
    """Whether int16 activations have an int32 bias, which was int64 in older versions.

    The converter's rule needs the later version wherever the type is declared; but its output with
    int64 runs in 2.14.
    """
    return activations == "int16" and use.input_type(bias) == "int32"


def _conv_2d(use: OperatorUse) -> Iterator[int | None]:
    x, weights = use.input_type(0), use.input_type(1)
    yield {("int8", "int8"): 3, ("int8", "int4"): 7}.get((x, weights))
    yield 4 if x == "int16" else None
    yield 8 if _has_narrow_bias(use, x, 2) else None
    if use.is_hybrid(1):
        yield 5 if has_channel_scales(use.input(1)) else 2
    if use.rank(0) == use.rank(1) == 4:
        grouped = shape_of(use.input(0))[3] != shape_of(use.input(1))[3]
        yield 6 if grouped else None


def _depthwise_conv_2d(use: OperatorUse) -> Iterator[int | None]:
    x, weights = use.input_type(0), use.input_type(1)
    yield {("int8", "int8"): 3, ("int8", "int4"): 7}.get((x, weights))
    yield 5 if x == "int16" else None
    if use.is_hybrid(1):
        yield 6 if has_channel_scales(use.input(1)) else 4
    dilations = (use.option("dilationWFactor"), use.option("dilationHFactor"))
    yield 2 if any(dilation not in (None, 1) for dilation in dilations) else None


def _fully_connected(use: OperatorUse) -> Iterator[int | None]:
    x, weights = use.input_type(0), use.input_type(1)
    yield 14 if weights == "int2" else None
    yield {("int8", "int4"): 10, ("int16", "int4"): 13}.get((x, weights))
    yield {"int8": 4, "int16": 7}.get(x)
    yield 11 if _has_narrow_bias(use, x, 2) else None
    if use.is_hybrid(1):
        yield 9 if use.option("asymmetricQuantizeInputs") else 3
        yield 12 if has_channel_scales(use.input(1)) else None
    yield 8 if getattr(use.input(1), "sparsity", None) is not None else None
    yield 6 if len(use.inputs) == 2 else None
    yield 5 if use.option("keepNumDims") else None
    yield 2 if use.option("weightsFormat") else None


def _transpose_conv(use: OperatorUse) -> Iterator[int | None]:
    yield 5 if _has_narrow_bias(use, use.input_type(2), 3) else None
    yield 4 if use.option("fusedActivationFunction") else None
    yield 3 if use.input_type(3) else None


def _added(not_power_of_two: int, not_quantized: int | None) -> Needs:
    def needs(use: OperatorUse) -> Iterator[int | None]:
        if use.input_type(0) == "int16":
            yield not_power_of_two if use.option("potScaleInt16") is False else None
            yield None if scales_of(use.input(0)) else not_quantized

    return needs


def _abs(use: OperatorUse) -> Iterator[int | None]:
    if use.input_type(0) == "int16":
        yield 3 if scales_of(use.input(0)) else 4


def _mul(use: OperatorUse) -> Iterator[int | None]:
    scales = [scales_of(tensor) for tensor in (use.input(0), use.input(1), use.output)]
    yield 7 if use.input_type(0) == "int16" and not (scales[0] or scales[1]) else None
    if all(scales):
        left, right, product = (each[0] for each in scales)
        yield 3 if left * right >= product else None


def _strided_slice(use: OperatorUse) -> Iterator[int | None]:
    yield 8 if use.option("offset") else None
    yield 6 if use.option("ellipsisMask") or use.option("newAxisMask") else None


def _resize(use: OperatorUse) -> Iterator[int | None]:
    aligned = use.option("alignCorners") and use.name == "RESIZE_NEAREST_NEIGHBOR"
    yield 3 if use.option("halfPixelCenters") or aligned else None


def _gather(use: OperatorUse) -> Iterator[int | None]:
    yield 5 if use.name == "GATHER" and use.option("batchDims") else None
    yield {"GATHER": 6, "GATHER_ND": 4}[use.name] if use.input_type(1) == "int16" else None


def _dequantize(use: OperatorUse) -> Iterator[int | None]:
    yield 5 if has_channel_scales(use.input(0)) else None


def _quantize(use: OperatorUse) -> Iterator[int | None]:
    yield {"int16": 2, "int4": 4, "uint4": 5}.get(use.output_type)
    yield 3 if has_channel_scales(use.output) else None


def _cast(use: OperatorUse) -> Iterator[int | None]:
    yield from (_CAST.get(each) for each in (use.input_type(0), use.output_type))
    yield 6 if use.input_type(0) == "int4" else None


def _asymmetric(weights: int, plain: int, asymmetric: int) -> Needs:
    """For int8 weights with float activations, quantized on the fly."""

    def needs(use: OperatorUse) -> Iterator[int | None]:
        if use.is_hybrid(weights):
            yield asymmetric if use.option("asymmetricQuantizeInputs") else plain

    return needs


def _lstm(hybrid: int, asymmetric: int) -> Needs:
    def needs(use: OperatorUse) -> Iterator[int | None]:
        yield from _asymmetric(2, hybrid, asymmetric)(use)
        yield 2 if use.option("kernelType") else None
        yield 4 if use.option("diagonalRecurrentTensors") else None
        yield 5 if (use.input_type(0), use.input_type(2)) == ("int16", "int8") else None

    return needs


_SPECIAL: dict[str, Needs] = {
    "ABS": _abs,
    "ADD": _added(3, 5),
    "BATCH_MATMUL": _asymmetric(1, 1, 4),
    "BATCH_TO_SPACE_ND": lambda use: (3 if use.rank(0) != 4 else None,),
    "BIDIRECTIONAL_SEQUENCE_LSTM": _asymmetric(1, 2, 3),
    "BIDIRECTIONAL_SEQUENCE_RNN": _asymmetric(1, 2, 3),
    "BROADCAST_TO": lambda _: (2,),
    "CAST": _cast,
    "CONV_2D": _conv_2d,
    "DEPTHWISE_CONV_2D": _depthwise_conv_2d,
    "DEQUANTIZE": _dequantize,
    "DYNAMIC_UPDATE_SLICE": lambda use: (2 if use.input_type(2) == "int64" else None,),
    "EMBEDDING_LOOKUP": lambda use: (4 if has_channel_scales(use.input(1)) else None,),
    "FAKE_QUANT": lambda use: (2 if use.option("narrowRange") else None,),
    "FULLY_CONNECTED": _fully_connected,
    "GATHER": _gather,
    "GATHER_ND": _gather,
    "LSTM": _lstm(3, 4),
    "MUL": _mul,
    "QUANTIZE": _quantize,
    "RESIZE_BILINEAR": _resize,
    "RESIZE_NEAREST_NEIGHBOR": _resize,
    "RNN": _asymmetric(1, 2, 3),
    "SPACE_TO_BATCH_ND": lambda use: (3 if use.rank(0) != 4 else None,),
    "STRIDED_SLICE": _strided_slice,
    "SUB": _added(5, None),
    "SVDF": _asymmetric(1, 2, 4),
    "TRANSPOSE_CONV": _transpose_conv,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm(2, 3),
    "UNIDIRECTIONAL_SEQUENCE_RNN": _asymmetric(1, 2, 3),
    "WHERE": lambda use: (2 if use.input_type(0) != "bool" else None,),
}
