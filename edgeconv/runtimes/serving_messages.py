"""What TensorFlow Serving's gRPC interface sends, without TensorFlow.

The messages are those of tensorflow-serving-api, which needs the whole of TensorFlow; a test
holds the ones here against them, field by field.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused, ToolFailed
from edgeconv.messages import message_class

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays

# See edgeconv.messages.
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "PredictRequest": {"model_spec": (1, "ModelSpec"), "inputs": (2, "TensorEntry*")},
    "PredictResponse": {"outputs": (1, "TensorEntry*"), "model_spec": (2, "ModelSpec")},
    "GetModelStatusRequest": {"model_spec": (1, "ModelSpec")},
    "GetModelStatusResponse": {"model_version_status": (1, "ModelVersionStatus*")},
    "ModelVersionStatus": {"version": (1, "int64"), "state": (2, "int32"), "status": (3, "Status")},
    "Status": {"error_code": (1, "int32"), "error_message": (2, "string")},
    "ModelSpec": {
        "name": (1, "string"),
        "version": (2, "Int64Value"),
        "signature_name": (3, "string"),
    },
    "Int64Value": {"value": (1, "int64")},
    "TensorEntry": {"key": (1, "string"), "value": (2, "TensorProto")},
    "TensorProto": {
        "dtype": (1, "int32"),
        "tensor_shape": (2, "TensorShapeProto"),
        "tensor_content": (4, "bytes"),
        "float_val": (5, "float*"),
        "double_val": (6, "double*"),
        "int_val": (7, "int32*"),
        "int64_val": (10, "int64*"),
        "bool_val": (11, "bool*"),
        "half_val": (13, "int32*"),
        "uint32_val": (16, "uint32*"),
        "uint64_val": (17, "uint64*"),
    },
    "TensorShapeProto": {"dim": (2, "Dim*"), "unknown_rank": (3, "bool")},
    "Dim": {"size": (1, "int64"), "name": (2, "string")},
    "PredictionLog": {"predict_log": (6, "PredictLog")},
    "PredictLog": {"request": (1, "PredictRequest")},
}
# TensorFlow's DataType by the number, and the field that holds values one by one.
_DTYPES = {
    1: ("float32", "float_val"),
    2: ("float64", "double_val"),
    3: ("int32", "int_val"),
    4: ("uint8", "int_val"),
    5: ("int16", "int_val"),
    6: ("int8", "int_val"),
    9: ("int64", "int64_val"),
    10: ("bool", "bool_val"),
    17: ("uint16", "int_val"),
    19: ("float16", "half_val"),
    22: ("uint32", "uint32_val"),
    23: ("uint64", "uint64_val"),
}
_NUMBERS = {dtype: number for number, (dtype, _) in _DTYPES.items()}
# ModelVersionStatus.State
AVAILABLE = 30


@cache
def message(name: str) -> Any:
    """The class of one of `MESSAGES`."""
    return message_class(MESSAGES, name)


def dtype_number(dtype: np.dtype[np.generic], where: str) -> int:
    """TensorFlow's number of a numpy dtype. Raises `InputRefused` for one it does not have."""
    if dtype.name not in _NUMBERS:
        raise InputRefused(f"{where} has the type {dtype}, which TensorFlow Serving does not take")
    return _NUMBERS[dtype.name]


def fill_tensor(tensor: Any, array: NDArray[np.generic], where: str) -> None:
    """Put `array` into an empty TensorProto. Raises `InputRefused` for a dtype it cannot have."""
    import numpy as np

    tensor.dtype = dtype_number(array.dtype, where)
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    tensor.tensor_content = np.ascontiguousarray(array).tobytes()


def array_of(tensor: Any, where: str) -> NDArray[np.generic]:
    """What a TensorProto holds. Raises `ToolFailed` where that is no numbers."""
    import numpy as np

    if tensor.dtype not in _DTYPES:
        raise ToolFailed(f"{where} is of TensorFlow's type {tensor.dtype}, which is no number")
    dtype, field = _DTYPES[tensor.dtype]
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)
    values = getattr(tensor, field)
    if dtype == "float16":
        flat = np.array(values, np.uint16).view(np.float16)
    else:
        flat = np.array(values, dtype)
    count = int(np.prod(shape))
    # Values that are left out are as the last one, or 0 where there is none.
    rest = np.full(count - len(flat), flat[-1] if len(flat) else 0, dtype)
    return np.concatenate([flat, rest]).reshape(shape)


def fill_spec(spec: Any, name: str, version: int | None) -> None:
    """Say in an empty ModelSpec which model is meant; its newest version for None."""
    spec.name = name
    if version is not None:
        spec.version.value = version


def predict_request(name: str, version: int | None, signature: str, inputs: Arrays) -> Any:
    """A PredictRequest for the samples of one call. Raises `InputRefused`."""
    request = message("PredictRequest")()
    fill_spec(request.model_spec, name, version)
    request.model_spec.signature_name = signature
    for key, array in inputs.items():
        fill_tensor(request.inputs.add(key=key).value, array, f"input {key!r}")
    return request
