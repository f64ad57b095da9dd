"""Where TensorFlow Serving serves a model, and what its two interfaces have in common."""

from __future__ import annotations

import re
from typing import NamedTuple

from edgeconv.errors import ToolFailed, UsageError

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
