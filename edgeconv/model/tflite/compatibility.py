"""The oldest TensorFlow Lite runtime that can run a .tflite, and the operators that decide it.

A runtime refuses an operator with a declared version that it lacks. Where the declared version is
too low for the operator's tensors, an older runtime loads the model, and fails or computes
nonsense. So the larger of the two versions counts.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from edgeconv.model.tflite.edit import require_version
from edgeconv.model.tflite.flatbuffer import (
    MOST_FLATBUFFER_BYTES,
    is_custom,
    operators_of,
    parse,
    read,
    serialize,
    text,
)
from edgeconv.model.tflite.needs import needed_version
from edgeconv.model.tflite.operators import OperatorUse, has_channel_scales, use_of
from edgeconv.types import OldestRuntime, RuntimeNeed

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

Release = tuple[int, int, int]

# The releases of version 1, 2, 3 … of an operator; "-" is a version that does not exist.
_RELEASES = {
    "ABS": "1.13.0 2.4.0 2.5.0 2.6.0 2.12.0",
    "ADD": "1.5.0 1.14.0 2.4.0 2.6.0 2.13.0 2.23.0",
    "ADD_N": "1.14.0",
    "ARG_MAX": "1.9.0 1.14.0 2.9.0",
    "ARG_MIN": "1.9.0 1.14.0 2.9.0",
    "ASSIGN_VARIABLE": "2.6.0",
    "ATAN2": "2.10.0",
    "AVERAGE_POOL_2D": "1.5.0 1.14.0 2.3.0",
    "BATCH_MATMUL": "2.3.0 2.3.0 2.4.0 2.5.0",
    "BATCH_TO_SPACE_ND": "1.6.0 1.14.0 2.3.0 2.13.0",
    "BIDIRECTIONAL_SEQUENCE_LSTM": "1.14.0 1.14.0 1.14.0",
    "BIDIRECTIONAL_SEQUENCE_RNN": "1.14.0 1.14.0 2.3.0",
    "BITCAST": "2.13.0",
    "BITWISE_XOR": "2.13.0",
    "BROADCAST_ARGS": "2.6.0",
    "BROADCAST_TO": "- 2.5.0 2.5.0",
    "BUCKETIZE": "2.8.0",
    "CALL_ONCE": "2.5.0",
    "CAST": "1.5.0 2.7.0 2.8.0 2.9.0 2.13.0 2.15.0 2.17.0 2.21.0",
    "CEIL": "1.14.0",
    "COMPLEX_ABS": "2.5.0",
    "CONCATENATION": "1.5.0 1.14.0 2.3.0 2.14.0 2.21.0",
    "CONV_2D": "1.5.0 1.14.0 1.14.0 2.3.0 2.4.0 2.9.0 2.12.0 2.15.0",
    "CONV_3D": "2.5.0",
    "CONV_3D_TRANSPOSE": "2.6.0",
    "COS": "1.14.0",
    "CUMSUM": "2.4.0",
    "DENSIFY": "2.2.0",
    "DEPTHWISE_CONV_2D": "1.5.0 1.12.0 1.14.0 2.2.0 2.3.0 2.3.0 2.13.0",
    "DEPTH_TO_SPACE": "2.1.0 2.5.0",
    "DEQUANTIZE": "1.13.1 1.14.0 1.15.0 2.2.0 2.7.0 2.18.0 2.21.0 2.22.0",
    "DILATE": "2.15.0",
    "DIV": "1.6.0 2.3.0",
    "DYNAMIC_UPDATE_SLICE": "2.9.0 2.17.0 2.19.0 2.20.0 2.21.0 2.22.0",
    "ELU": "1.14.0",
    "EMBEDDING_LOOKUP": "1.13.0 1.14.0 1.14.0 2.18.0 2.21.0",
    "EMBEDDING_LOOKUP_SPARSE": "1.5.0",
    "EQUAL": "1.14.0 1.14.0 2.3.0 2.13.0 2.21.0",
    "EXP": "1.7.0 2.13.0",
    "EXPAND_DIMS": "1.10.0",
    "FAKE_QUANT": "1.5.0 1.10.0",
    "FILL": "1.13.0 2.3.0 2.5.0 2.12.0",
    "FLOOR": "1.9.0",
    "FLOOR_DIV": "1.14.0 1.14.0 2.13.0",
    "FLOOR_MOD": "1.13.0 2.13.0",
    "FULLY_CONNECTED": "1.5.0 1.10.0 1.14.0 1.14.0 2.0.0 2.1.0 2.3.0 2.3.0 2.3.0 2.13.0 2.15.0 "
    "2.17.0 2.18.0 2.21.0",
    "GATHER": "1.6.0 1.14.0 1.15.0 2.4.0 2.5.0 2.13.0 2.15.0",
    "GATHER_ND": "1.14.0 2.3.0 2.5.0 2.13.0 2.16.0",
    "GELU": "2.8.0 2.9.0",
    "GREATER": "1.14.0 1.14.0",
    "GREATER_EQUAL": "1.14.0 1.14.0 2.13.0",
    "HARD_SWISH": "1.15.0",
    "HASHTABLE": "2.5.0",
    "HASHTABLE_FIND": "2.5.0",
    "HASHTABLE_IMPORT": "2.5.0",
    "HASHTABLE_LOOKUP": "1.5.0",
    "HASHTABLE_SIZE": "2.5.0",
    "IF": "1.15.0",
    "IMAG": "2.5.0",
    "L2_NORMALIZATION": "1.5.0 1.14.0",
    "L2_POOL_2D": "1.5.0",
    "LEAKY_RELU": "1.13.1 2.3.0",
    "LESS": "1.14.0 1.14.0 2.13.0",
    "LESS_EQUAL": "1.14.0 1.14.0",
    "LOCAL_RESPONSE_NORMALIZATION": "1.5.0",
    "LOG": "1.14.0 2.15.0",
    "LOGICAL_AND": "1.11.0",
    "LOGICAL_NOT": "1.11.0",
    "LOGICAL_OR": "1.11.0",
    "LOGISTIC": "1.14.0 1.14.0 2.3.0",
    "LOG_SOFTMAX": "1.14.0 1.14.0",
    "LSH_PROJECTION": "1.5.0",
    "LSTM": "1.7.0 1.10.0 1.14.0 2.3.0",
    "MATRIX_DIAG": "1.14.0",
    "MATRIX_SET_DIAG": "1.14.0",
    "MAXIMUM": "1.14.0 1.14.0 2.3.0 2.3.0",
    "MAX_POOL_2D": "1.5.0 1.14.0 2.3.0",
    "MEAN": "1.6.0 1.14.0 2.4.0",
    "MINIMUM": "1.14.0 1.14.0 2.3.0 2.3.0",
    "MIRROR_PAD": "1.13.1 2.3.0 2.13.0",
    "MUL": "1.5.0 1.14.0 1.15.0 2.3.0 2.6.0 2.11.0 2.13.0 2.23.0",
    "MULTINOMIAL": "2.8.0",
    "NEG": "1.9.0",
    "NON_MAX_SUPPRESSION_V4": "2.1.0",
    "NON_MAX_SUPPRESSION_V5": "2.1.0",
    "NOT_EQUAL": "1.14.0 1.14.0 2.3.0 2.21.0",
    "ONE_HOT": "1.11.0",
    "PACK": "1.11.0 1.14.0 2.3.0 2.14.0",
    "PAD": "1.5.0 1.14.0 2.4.0 2.6.0 2.20.0",
    "PADV2": "1.9.0 1.14.0 2.4.0 2.6.0 2.20.0",
    "POW": "1.10.0",
    "PRELU": "1.8.0",
    "QUANTIZE": "1.14.0 1.15.0 2.7.0 2.21.0 2.21.0 2.21.0",
    "RANDOM_STANDARD_NORMAL": "2.7.0",
    "RANDOM_UNIFORM": "2.8.0",
    "RANGE": "1.13.0 2.14.0",
    "RANK": "1.14.0",
    "READ_VARIABLE": "2.6.0",
    "REAL": "2.5.0",
    "REDUCE_ALL": "2.6.0",
    "REDUCE_ANY": "1.11.0",
    "REDUCE_MAX": "1.11.0 1.14.0 2.5.0",
    "REDUCE_MIN": "1.11.0 1.14.0 2.5.0",
    "REDUCE_PROD": "1.11.0 2.6.0",
    "REDUCE_WINDOW": "2.15.0",
    "RELU": "1.5.0 2.1.0 2.5.0",
    "RELU6": "1.5.0 1.14.0 2.5.0",
    "RELU_0_TO_1": "2.10.0",
    "RELU_N1_TO_1": "1.5.0",
    "RESHAPE": "1.5.0",
    "RESIZE_BILINEAR": "1.7.0 1.14.0 2.2.0 2.5.0",
    "RESIZE_NEAREST_NEIGHBOR": "1.13.1 1.14.0 2.3.0 2.4.0",
    "REVERSE_SEQUENCE": "1.14.0",
    "REVERSE_V2": "1.14.0 2.2.0 2.5.0",
    "RFFT2D": "2.5.0",
    "RIGHT_SHIFT": "2.13.0",
    "RNN": "1.5.0 1.14.0 2.3.0",
    "ROUND": "1.14.0",
    "RSQRT": "1.10.0 2.5.0 2.15.0",
    "SCATTER_ND": "2.1.0",
    "SEGMENT_SUM": "2.2.0",
    "SELECT": "1.14.0 1.14.0 2.12.0 2.14.0",
    "SELECT_V2": "2.2.0 2.14.0",
    "SHAPE": "1.10.0",
    "SIGN": "2.11.0 2.12.0",
    "SIN": "1.9.0",
    "SKIP_GRAM": "1.5.0",
    "SLICE": "1.14.0 1.14.0 1.14.0 2.4.0 2.5.0 2.14.0 2.21.0",
    "SOFTMAX": "1.5.0 1.14.0 2.3.0",
    "SPACE_TO_BATCH_ND": "1.6.0 1.14.0 2.3.0 2.13.0",
    "SPACE_TO_DEPTH": "1.5.0 1.14.0",
    "SPARSE_TO_DENSE": "1.9.0 1.14.0 1.15.0",
    "SPLIT": "1.5.0 1.14.0 1.14.0 2.3.0",
    "SPLIT_V": "1.13.1 2.3.0",
    "SQRT": "1.10.0 2.21.0",
    "SQUARE": "1.12.0",
    "SQUARED_DIFFERENCE": "1.13.1 2.5.0",
    "SQUEEZE": "1.6.0 2.5.0",
    "STABLEHLO_ADD": "2.16.0",
    "STABLEHLO_AND": "2.17.0",
    "STABLEHLO_CASE": "2.17.0",
    "STABLEHLO_CBRT": "2.17.0",
    "STABLEHLO_COMPOSITE": "2.17.0",
    "STABLEHLO_GATHER": "2.16.0",
    "STABLEHLO_MAXIMUM": "2.16.0",
    "STABLEHLO_MINIMUM": "2.16.0",
    "STABLEHLO_MULTIPLY": "2.16.0",
    "STABLEHLO_PAD": "2.16.0",
    "STABLEHLO_REDUCE_WINDOW": "2.16.0",
    "STABLEHLO_RNG_BIT_GENERATOR": "2.15.0",
    "STABLEHLO_SCATTER": "2.15.0",
    "STABLEHLO_SHIFT_LEFT": "2.17.0",
    "STRIDED_SLICE": "1.6.0 1.14.0 2.1.0 2.2.0 2.5.0 2.6.0 2.14.0 2.14.0",
    "SUB": "1.6.0 1.14.0 2.3.0 2.4.0 2.4.0",
    "SUM": "1.10.0 1.15.0",
    "SVDF": "1.5.0 1.14.0 2.2.0 2.3.0",
    "TANH": "1.14.0 1.14.0 2.3.0",
    "TILE": "1.10.1 2.2.0 2.8.0",
    "TOPK_V2": "1.7.0 1.14.0 2.13.0",
    "TRANSPOSE": "1.6.0 1.14.0 1.15.0 2.3.0 2.4.0 2.12.0 2.14.4 2.22.0",
    "TRANSPOSE_CONV": "1.9.0 2.2.0 2.3.0 2.12.0 2.15.0",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "1.13.1 1.14.0 2.3.0 2.12.0",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "1.14.0 1.14.0 2.3.0",
    "UNIQUE": "1.14.0",
    "UNPACK": "1.11.0 1.14.0 2.2.0 2.3.0 2.22.0",
    "UNSORTED_SEGMENT_MAX": "2.10.0",
    "UNSORTED_SEGMENT_MIN": "2.11.0",
    "UNSORTED_SEGMENT_PROD": "2.10.0",
    "UNSORTED_SEGMENT_SUM": "2.10.0",
    "VAR_HANDLE": "2.6.0",
    "WHERE": "1.14.0 2.8.0",
    "WHILE": "1.15.0",
    "ZEROS_LIKE": "1.12.0",
}


@cache
def releases() -> dict[tuple[str, int], Release]:
    """The first release that has an operator's version, by (name, version)."""
    return {
        (name, version): parse_release(release)
        for name, line in _RELEASES.items()
        for version, release in enumerate(line.split(), start=1)
        if release != "-"
    }


def parse_release(text: str) -> Release:
    """A release such as "2.3.0", as numbers."""
    major, minor, patch = text.split(".")
    return int(major), int(minor), int(patch)


# tflite-runtime 2.7 to 2.9 load an integer FULLY_CONNECTED with a scale per channel, and give
# zeros; 2.10 is correct. No version of the operator distinguishes the two.
_CHANNEL_DENSE: Release = (2, 10, 0)
# The entry of the metadata that TensorFlow's converter writes, of a fixed length.
_RELEASE, _RELEASE_BYTES = "min_runtime_version", 16
# What one operator needs, and the release that has it; None where that is unknown.
_Finding = tuple[RuntimeNeed, Release | None]


def oldest_runtime(data: bytes, where: str) -> OldestRuntime:
    """The oldest runtime for the .tflite in `data`, which `where` names in an error.

    Operators of undocumented versions or types are named as unknown; the runtime is then that of
    the others. Raises `InputRefused` for bytes that are not a model.
    """
    return _oldest(read(data, where=where))


def with_needs_declared(data: bytes) -> bytes:
    """The same model, which an older runtime than `oldest_runtime` refuses.

    Each operator declares the version that its tensors need, where that is known, and
    `min_runtime_version` is the release that has all of them. `data` itself where that is so
    already, or for a model that is too large to edit. Raises `InputRefused` for bytes that are not
    a model.
    """
    if len(data) > MOST_FLATBUFFER_BYTES:
        return data
    model = parse(data, where="the model")
    before = [(operator.opcodeIndex, operator) for _, operator in operators_of(model)]
    for graph, operator in operators_of(model):
        use = use_of(model, graph, operator)
        needed = needed_version(use)
        # A version that no runtime has would only make the file useless.
        if needed and (use.name, needed) in releases() and not is_custom(model, operator):
            require_version(model, operator, needed)
    is_raised = any(operator.opcodeIndex != index for index, operator in before)
    is_told = _tell_release(model, _oldest(model).version)
    return serialize(model) if is_raised or is_told else data


def _tell_release(model: ModelT, release: str) -> bool:
    """Write `min_runtime_version`, or remove it for ""; returns whether that changed anything."""
    import numpy as np
    from ai_edge_litert.schema_py_generated import BufferT, MetadataT

    entries = model.metadata or []
    entry = next((each for each in entries if text(each.name) == _RELEASE), None)
    if not release:
        model.metadata = [each for each in entries if each is not entry]
        return entry is not None
    data = np.frombuffer(release.encode().ljust(_RELEASE_BYTES, b"\0"), np.uint8)
    if entry is None:
        entry = MetadataT(name=_RELEASE)
        model.metadata = [*entries, entry]
    elif np.array_equal(model.buffers[entry.buffer].data, data):
        return False
    tensors = (tensor for graph in model.subgraphs for tensor in graph.tensors)
    if sum(each.buffer == entry.buffer for each in (*model.metadata, *tensors)) == 1:
        model.buffers[entry.buffer] = BufferT(data=data)
    else:
        model.buffers.append(BufferT(data=data))
        entry.buffer = len(model.buffers) - 1
    return True


def _oldest(model: ModelT) -> OldestRuntime:
    findings = {
        _find(model, use_of(model, graph, operator), operator)
        for graph, operator in operators_of(model)
    }
    oldest = max((release for _, release in findings if release is not None), default=None)
    return OldestRuntime(
        version="" if oldest is None else "{}.{}.{}".format(*oldest),
        operators=_needs(findings, oldest) if oldest is not None else (),
        unknown=_needs(findings, None),
    )


def _needs(findings: set[_Finding], release: Release | None) -> tuple[RuntimeNeed, ...]:
    needs = [need for need, needed in findings if needed == release]
    return tuple(sorted(needs, key=lambda need: (need.operator, need.version, need.declared)))


def _find(model: ModelT, use: OperatorUse, operator: OperatorT) -> _Finding:
    declared = int(model.operatorCodes[operator.opcodeIndex].version)
    # A custom operator is in no release: the app provides it.
    needed = None if is_custom(model, operator) else needed_version(use)
    version = max(declared, needed or 0)
    release = None if needed is None else releases().get((use.name, version))
    note = ""
    if release is not None and release < _CHANNEL_DENSE and _is_channel_dense(use):
        release, note = _CHANNEL_DENSE, "integer inputs and a scale per channel"
    need = RuntimeNeed(operator=use.name, version=version, declared=declared, note=note)
    return need, release


def _is_channel_dense(use: OperatorUse) -> bool:
    is_integer = use.input_type(0) in ("int8", "int16")
    return use.name == "FULLY_CONNECTED" and is_integer and has_channel_scales(use.input(1))
