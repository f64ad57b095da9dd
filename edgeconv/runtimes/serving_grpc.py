"""The gRPC interface of TensorFlow Serving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused, ToolFailed, UsageError
from edgeconv.runtimes.serving import DTYPES, not_available, refused, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays
    from edgeconv.runtimes.serving import ServedModel
    from edgeconv.runtimes.serving_pb2 import ModelSpec, PredictRequest, TensorProto

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
# Batches of images exceed the default of 4 MiB.
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class GrpcClient:
    """A channel that stays open. Every method raises `ToolFailed` where the server fails."""

    def __init__(self, address: ServedModel, timeout_s: float) -> None:
        try:
            import grpc
        except ImportError as error:
            raise UsageError(
                "gRPC needs the package grpcio, which is not installed", hint="pip install grpcio"
            ) from error
        self._address, self._timeout_s, self._grpc = address, timeout_s, grpc
        self._channel = grpc.insecure_channel(address.host, _OPTIONS)
        self._predict = self._channel.unary_unary(_PREDICT)
        self._status = self._channel.unary_unary(_STATUS)

    def version(self) -> str:
        """The newest version that is available."""
        from edgeconv.runtimes.serving_pb2 import (
            GetModelStatusRequest,
            GetModelStatusResponse,
            ModelVersionStatus,
        )

        spec = _model_spec(self._address.name, self._address.version)
        request = GetModelStatusRequest(model_spec=spec).SerializeToString()
        answer = GetModelStatusResponse.FromString(self._call(self._status, request))
        versions = answer.model_version_status
        available = [v.version for v in versions if v.state == ModelVersionStatus.AVAILABLE]
        if not available:
            states = [f"{v.version} {v.status.error_message}" for v in versions]
            raise not_available(self._address, ", ".join(states) or "it names no version")
        return str(max(available))

    def call(self, signature: str, inputs: Arrays) -> Callable[[], bytes]:
        """What sends one batch, arrays (batch, *sample) by input, and gives the answer."""
        address = self._address
        request = predict_request(address.name, address.version, signature, inputs)
        body = request.SerializeToString()
        return lambda: self._call(self._predict, body)

    def outputs(self, signature: str, answer: bytes) -> dict[str, NDArray[np.generic]]:  # noqa: ARG002
        """The outputs (batch, *shape) by name."""
        from edgeconv.runtimes.serving_pb2 import PredictResponse

        outputs = PredictResponse.FromString(answer).outputs
        return {name: array_of(tensor, f"output {name!r}") for name, tensor in outputs.items()}

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _call(self, method: Any, body: bytes) -> bytes:
        try:
            answer: bytes = method(body, timeout=self._timeout_s)
        except self._grpc.RpcError as error:
            raise self._failure(error) from error
        return answer

    def _failure(self, error: Any) -> ToolFailed:
        code, why = error.code(), error.details() or error.code().name
        if code in (self._grpc.StatusCode.UNAVAILABLE, self._grpc.StatusCode.DEADLINE_EXCEEDED):
            return unreachable(self._address, why)
        if code == self._grpc.StatusCode.UNIMPLEMENTED:
            return unreachable(self._address, f"another server listens there: {why}")
        if code == self._grpc.StatusCode.NOT_FOUND:
            return not_available(self._address, why)
        return refused(self._address, why)


def predict_request(
    name: str, version: int | None, signature: str, inputs: Arrays
) -> PredictRequest:
    """The request for one call; inputs are arrays [samples, ...] of numbers or texts.

    Raises `InputRefused` for another dtype.
    """
    from edgeconv.runtimes.serving_pb2 import PredictRequest

    tensors = {key: tensor_of(array, f"input {key!r}") for key, array in inputs.items()}
    return PredictRequest(model_spec=_model_spec(name, version, signature), inputs=tensors)


def tensor_of(array: NDArray[np.generic], where: str) -> TensorProto:
    """`array` as a message. Raises `InputRefused` for a dtype that TensorFlow Serving lacks."""
    import numpy as np

    from edgeconv.runtimes.serving_pb2 import TensorProto, TensorShapeProto

    if array.dtype.name not in _NAMES:
        raise InputRefused(
            f"{where} has the type {array.dtype}, which TensorFlow Serving does not take"
        )
    sizes = [TensorShapeProto.Dim(size=size) for size in array.shape]
    return TensorProto(
        dtype=_NAMES[array.dtype.name],
        tensor_shape=TensorShapeProto(dim=sizes),
        tensor_content=np.ascontiguousarray(array).tobytes(),
    )


def array_of(tensor: TensorProto, where: str) -> NDArray[np.generic]:
    """The array of a message, in its shape and dtype. Raises `ToolFailed` if it is not numbers."""
    import numpy as np

    from edgeconv.runtimes.serving_pb2 import DataType

    if tensor.dtype not in DataType.values() or not tensor.dtype:
        raise ToolFailed(f"{where} is of TensorFlow's type {tensor.dtype}, which is not a number")
    name = DataType.Name(tensor.dtype)
    dtype, shape = DTYPES[name], tuple(dim.size for dim in tensor.tensor_shape.dim)
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)
    # Smaller integers share a field.
    values = getattr(tensor, f"{name.removeprefix('DT_').lower()}_val", tensor.int_val)
    flat = np.array(values, np.uint16).view(dtype) if name == "DT_HALF" else np.array(values, dtype)
    count = int(np.prod(shape))
    # Omitted values equal the last one, or are 0 where there is none.
    rest = np.full(count - len(flat), flat[-1] if len(flat) else 0, dtype)
    return np.concatenate([flat, rest]).reshape(shape)


def _model_spec(name: str, version: int | None, signature: str = "") -> ModelSpec:
    """Which model is meant; its newest version for None."""
    from edgeconv.runtimes.serving_pb2 import ModelSpec

    spec = ModelSpec(name=name, signature_name=signature)
    if version is not None:
        spec.version.value = version
    return spec
