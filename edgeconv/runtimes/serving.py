"""Where TensorFlow Serving serves a model, and what its two interfaces have in common."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edgeconv.errors import ToolFailed, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays

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
    """The address that `text` is. Raises `UsageError`."""
    found = _REST.fullmatch(text) or _GRPC.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} is no address of a served model",
            hint="as in tfserving:http://HOST:8501/v1/models/NAME or tfserving:grpc://HOST:8500/NAME",
        )
    scheme, host, prefix, name, version = found.groups()
    return ServedModel(scheme, host, prefix or "", name, int(version) if version else None)


class PredictCall(Protocol):
    """One call, made ready: what goes there and what comes back are bytes already."""

    def __call__(self) -> bytes:
        """The answer. Raises `ToolFailed`."""
        ...


class Client(Protocol):
    """A connection to a served model. Every method raises `ToolFailed` where it does not answer."""

    def version(self) -> str:
        """The version that answers. Raises `ToolFailed` where none is available."""
        ...

    def call(self, signature: str, inputs: Arrays) -> PredictCall:
        """A call for the samples of one batch."""
        ...

    def outputs(self, signature: str, answer: bytes) -> dict[str, NDArray[np.generic]]:
        """The outputs by name that an answer has."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


def unreachable(address: ServedModel, why: str) -> ToolFailed:
    """The error where nothing answers."""
    return ToolFailed(
        f"no TensorFlow Serving answers at {address}: {why}",
        hint="see that tensorflow_model_server runs there, with --port (gRPC) or --rest_api_port",
    )


def not_available(address: ServedModel, why: str) -> ToolFailed:
    """The error where the server answers, and has not got the model."""
    return ToolFailed(
        f"{address} has no model to answer with: {why}",
        hint="see --model_name and --model_base_path of tensorflow_model_server",
    )


def refused(address: ServedModel, why: str) -> ToolFailed:
    """The error where the server does not take a call."""
    return ToolFailed(
        f"{address} refused the samples: {why}",
        hint="see that it serves the model that was converted, and the same signature",
    )
