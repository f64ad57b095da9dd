"""The trained model, served by TensorFlow Serving.

    tfserving:http://HOST:8501/v1/models/NAME[/versions/N]      its REST interface
    tfserving:grpc://HOST:8500/NAME[/N]                         its gRPC interface

It runs the model that the server has, and ignores the file. It times a call with the samples of one
batch, from the first byte sent to the last one received. That includes the network and the server's
queue, and excludes making the request and reading the answer.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from edgeconv.runtimes.interface import Arrays, Model, RuntimeSettings, Timed
from edgeconv.runtimes.runner import batches, join_batches, timings
from edgeconv.types import Environment, RuntimeChoice, Timing
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeconv.plugins.devices.serving_pb2 import ModelSpec, PredictRequest, TensorProto


# The types that are numbers, as TensorFlow and as numpy call them.
DTYPES = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_HALF": "float16",
    "DT_BOOL": "bool",
    **{
        f"DT_{sign.upper()}INT{bits}": f"{sign}int{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}
_REST = re.compile(r"(https?)://([^/]+)(/.*)?/v1/models/([^/:]+)(?:/versions/(\d+))?/?")
_GRPC = re.compile(r"(grpc)://([^/]+)()/([^/:]+)(?:/(\d+))?/?")


class ServedModel(NamedTuple):
    """Where a model is served; `version` None is the newest. `prefix` precedes /v1/models."""

    scheme: str
    host: str
    prefix: str
    name: str
    version: int | None

    def __str__(self) -> str:
        if self.scheme == "grpc":
            version = "" if self.version is None else f"/{self.version}"
            return f"grpc://{self.host}/{self.name}{version}"
        return f"{self.scheme}://{self.host}{self.path}"

    @property
    def path(self) -> str:
        """The path of the model in the REST interface."""
        version = "" if self.version is None else f"/versions/{self.version}"
        return f"{self.prefix}/v1/models/{self.name}{version}"


def parse_served_model(text: str) -> ServedModel:
    """The served model that `text` names. Raises `UsageError`."""
    match = _REST.fullmatch(text) or _GRPC.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not the address of a served model",
            hint="as in tfserving:http://HOST:8501/v1/models/NAME or tfserving:grpc://HOST:8500/NAME",
        )
    scheme, host, prefix, name, version = match.groups()
    return ServedModel(scheme, host, prefix or "", name, int(version) if version else None)


def unreachable(address: ServedModel, why: str) -> ToolFailed:
    """The error where no server answers."""
    return ToolFailed(
        f"no TensorFlow Serving answers at {address}: {why}",
        hint="check that tensorflow_model_server runs there, with --port (gRPC) or --rest_api_port",
    )


def not_available(address: ServedModel, why: str) -> ToolFailed:
    """The error where the server answers but does not have the model."""
    return ToolFailed(
        f"{address} does not serve the model: {why}",
        hint="check --model_name and --model_base_path of tensorflow_model_server",
    )


def refused(address: ServedModel, why: str) -> ToolFailed:
    """The error where the server refuses a call."""
    return ToolFailed(
        f"{address} refused the samples: {why}",
        hint="check that it serves the model that was converted, with the same signature",
    )


# A socket takes no more than some weeks.
_LONGEST_TIMEOUT_S = 1e6


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[ServingRuntime]:
    """The runtime, once the server has said that it has the model.

    Raises `UsageError` for a bad address, and `ToolFailed` where the server does not
    answer or has no such model.
    """
    if not choice.location:
        raise UsageError(
            "the runtime tfserving needs an address",
            hint="as in tfserving:http://HOST:8501/v1/models/NAME",
        )
    yield ServingRuntime(parse_served_model(choice.location), settings.allowance.timeout_s)


class ServingRuntime:
    """A served model; see `edgeconv.runtimes.interface.Runtime`."""

    # More calls would only wait for each other in the server's queue.
    has_times = True
    gpu = ""
    has_pace = False
    sessions = 2

    def __init__(self, address: ServedModel, timeout_s: float) -> None:
        self._address, self._timeout_s = address, min(timeout_s, _LONGEST_TIMEOUT_S)
        with contextlib.closing(self._client()) as client:
            self._version = client.version()
        # The server does not describe its machine.
        self.environment = Environment(
            machine="unknown",
            cpu="unknown",
            cores=0,
            system="unknown",
            python="",
            tools={"served model": f"{address.name}, version {self._version}"},
            host=f"tfserving:{address}",
        )

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """The time of calls over a new connection. Raises `ToolFailed`."""
        _refuse_strings(inputs)
        batch = next(batches(inputs, model.batch))
        started = time.perf_counter_ns()
        with contextlib.closing(self._client()) as client:
            client.version()
            connected_us = (time.perf_counter_ns() - started) / 1e3
            call = client.call(model.signature or SERVING_DEFAULT, batch)
            times = timings(lambda: (call(), None)[1], msgspec.structs.asdict(timing))
        return Timed(
            runtime="tfserving",
            version=f"{self._address.name}/{self._version}",
            load_us=connected_us,
            first_us=times["first_us"],
            samples_us=tuple(times["samples_us"]),
            warmup=times["warmup"],
        )

    def start(self, model: Model) -> ServingSession:
        """Its own connection."""
        return ServingSession(self._client(), model)

    def _client(self) -> GrpcClient | RestClient:
        client = GrpcClient if self._address.scheme == "grpc" else RestClient
        return client(self._address, self._timeout_s)


def _refuse_strings(inputs: Arrays) -> None:
    for name, array in inputs.items():
        if array.dtype.kind == "S":
            raise InputRefused(
                f"input {name!r} takes strings, but edgeconv sends only numbers to TensorFlow "
                "Serving",
                hint="measure the trained model here: edgeconv bench --baseline SAVED_MODEL",
            )


class ServingSession:
    """A connection to the served model; see `edgeconv.runtimes.interface.RuntimeSession`."""

    def __init__(self, client: GrpcClient | RestClient, model: Model) -> None:
        self._client, self._batch = client, model.batch
        self._signature = model.signature or SERVING_DEFAULT

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, over all samples. Raises `ToolFailed`, `InputRefused`."""
        _refuse_strings(inputs)
        outputs, sizes = [], []
        for batch in batches(inputs, self._batch):
            sizes.append(len(next(iter(batch.values()))))
            answer = self._client.call(self._signature, batch)()
            outputs.append(self._client.outputs(self._signature, answer))
        if len({frozenset(names) for names in outputs}) > 1:
            raise ToolFailed("the names of the server's outputs differ between samples")
        return join_batches(outputs, sizes)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


# The REST interface of TensorFlow Serving.

# JSON has no types: these are the nearest that numpy has.
_DTYPES = {**DTYPES, "DT_BFLOAT16": "float32"}
_JSON = {"Content-Type": "application/json"}


class RestClient:
    """A connection that stays open. Every method raises `ToolFailed` where the server fails."""

    def __init__(self, address: ServedModel, timeout_s: float) -> None:
        connection: type[http.client.HTTPConnection] = http.client.HTTPConnection
        if address.scheme == "https":
            connection = http.client.HTTPSConnection
        self._address = address
        self._connection = connection(address.host, timeout=timeout_s)
        self._signatures: dict[str, Any] | None = None

    def version(self) -> str:
        """The newest version that is available."""
        versions = self._json("GET", self._address.path).get("model_version_status", [])
        available = [each for each in versions if each.get("state") == "AVAILABLE"]
        if not available:
            states = [f"{each.get('version')} {each.get('state')}" for each in versions]
            raise not_available(self._address, ", ".join(states) or "it names no version")
        return str(max(int(each["version"]) for each in available))

    def call(self, signature: str, inputs: Arrays) -> Callable[[], bytes]:
        """What sends one batch, arrays (batch, *sample) by input, and gives the answer."""
        columns = {name: array.tolist() for name, array in inputs.items()}
        body = json.dumps({"signature_name": signature, "inputs": columns}).encode()
        path = f"{self._address.path}:predict"

        def call() -> bytes:
            status, answer = self._answer("POST", path, body)
            if status != http.client.OK:
                raise refused(self._address, _error_text(answer))
            return answer

        return call

    def outputs(self, signature: str, answer: bytes) -> dict[str, NDArray[np.generic]]:
        """The outputs (batch, *shape) by name; the server sends an only output without its name."""
        dtypes = self._output_dtypes(signature)
        values = _decoded(self._address, answer).get("outputs")
        if len(dtypes) == 1 and not isinstance(values, dict):
            values = {next(iter(dtypes)): values}
        if not isinstance(values, dict) or set(values) != set(dtypes):
            raise ToolFailed(
                f"{self._address} gave outputs other than those that its metadata names: "
                f"{sorted(dtypes)}"
            )
        return {name: np.array(values[name], dtype) for name, dtype in dtypes.items()}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _output_dtypes(self, signature: str) -> dict[str, str]:
        if self._signatures is None:
            metadata = self._json("GET", f"{self._address.path}/metadata")
            self._signatures = metadata["metadata"]["signature_def"]["signature_def"]
        if signature not in self._signatures:
            names = ", ".join(map(repr, self._signatures))
            raise ToolFailed(f"{self._address} has no signature {signature!r}; it has {names}")
        outputs = self._signatures[signature]["outputs"]
        not_numbers = [name for name, info in outputs.items() if info["dtype"] not in _DTYPES]
        if not_numbers:
            raise ToolFailed(f"{self._address} gives outputs that are not numbers: {not_numbers}")
        return {name: _DTYPES[info["dtype"]] for name, info in outputs.items()}

    def _json(self, method: str, path: str) -> dict[str, Any]:
        status, answer = self._answer(method, path)
        if status != http.client.OK:
            raise not_available(self._address, f"{status} {_error_text(answer)}")
        return _decoded(self._address, answer)

    def _answer(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        try:
            self._connection.request(method, path, body, _JSON if body else {})
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise unreachable(self._address, str(error) or type(error).__name__) from error


def _decoded(address: ServedModel, answer: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(answer)
    except ValueError as error:
        raise ToolFailed(
            f"{address} is not a TensorFlow Serving: its answer is not JSON"
        ) from error
    if not isinstance(decoded, dict):
        raise ToolFailed(f"{address} is not a TensorFlow Serving: it answers {str(decoded)[:80]!r}")
    return decoded


def _error_text(answer: bytes) -> str:
    """The text of an error that the server answers."""
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return repr(answer[:200].decode("utf-8", "replace"))


# The gRPC interface of TensorFlow Serving.

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
        from edgeconv.plugins.devices.serving_pb2 import (
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
        from edgeconv.plugins.devices.serving_pb2 import PredictResponse

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
    from edgeconv.plugins.devices.serving_pb2 import PredictRequest

    tensors = {key: tensor_of(array, f"input {key!r}") for key, array in inputs.items()}
    return PredictRequest(model_spec=_model_spec(name, version, signature), inputs=tensors)


def tensor_of(array: NDArray[np.generic], where: str) -> TensorProto:
    """`array` as a message. Raises `InputRefused` for a dtype that TensorFlow Serving lacks."""
    from edgeconv.plugins.devices.serving_pb2 import TensorProto, TensorShapeProto

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
    from edgeconv.plugins.devices.serving_pb2 import DataType

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
    # Omitted values equal the last one, or are 0 if all are omitted.
    rest = np.full(count - len(flat), flat[-1] if len(flat) else 0, dtype)
    return np.concatenate([flat, rest]).reshape(shape)


def _model_spec(name: str, version: int | None, signature: str = "") -> ModelSpec:
    """Which model is meant; its newest version for None."""
    from edgeconv.plugins.devices.serving_pb2 import ModelSpec

    spec = ModelSpec(name=name, signature_name=signature)
    if version is not None:
        spec.version.value = version
    return spec
