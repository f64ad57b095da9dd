"""The gRPC interface of TensorFlow Serving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.runtimes.serving import not_available, refused, unreachable
from edgeconv.runtimes.serving_messages import (
    AVAILABLE,
    array_of,
    fill_spec,
    message,
    predict_request,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays
    from edgeconv.runtimes.serving import Address, Call

_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
# Whole batches of images go through; the default ends at 4 MiB.
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class GrpcClient:
    """A channel that is kept open; see `edgeconv.runtimes.serving.Client`."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        try:
            import grpc
        except ImportError as error:
            raise UsageError(
                "there is no grpcio here, which gRPC needs", hint="pip install grpcio"
            ) from error
        self._address, self._timeout_s, self._grpc = address, timeout_s, grpc
        self._channel = grpc.insecure_channel(address.host, _OPTIONS)
        self._predict = self._channel.unary_unary(_PREDICT)
        self._status = self._channel.unary_unary(_STATUS)

    def version(self) -> str:
        """The newest version that is available."""
        request = message("GetModelStatusRequest")()
        fill_spec(request.model_spec, self._address.name, self._address.version)
        answer = self._asked(self._status, request.SerializeToString())
        found = message("GetModelStatusResponse").FromString(answer).model_version_status
        available = [one.version for one in found if one.state == AVAILABLE]
        if not available:
            states = [f"{one.version} {one.status.error_message}" for one in found]
            raise not_available(self._address, ", ".join(states) or "it names no version")
        return str(max(available))

    def call(self, signature: str, inputs: Arrays) -> Call:
        """A call for the samples of one batch."""
        address = self._address
        request = predict_request(address.name, address.version, signature, inputs)
        body = request.SerializeToString()
        return lambda: self._asked(self._predict, body)

    def outputs(self, signature: str, answer: bytes) -> dict[str, NDArray[np.generic]]:  # noqa: ARG002
        """The outputs by name."""
        response = message("PredictResponse").FromString(answer)
        return {one.key: array_of(one.value, f"output {one.key!r}") for one in response.outputs}

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _asked(self, method: Any, body: bytes) -> bytes:
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
            return unreachable(self._address, f"what listens there is another server: {why}")
        if code == self._grpc.StatusCode.NOT_FOUND:
            return not_available(self._address, why)
        return refused(self._address, why)
