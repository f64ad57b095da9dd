"""The REST interface of TensorFlow Serving."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

from edgeconv.errors import ToolFailed
from edgeconv.runtimes.serving import DTYPES, not_available, refused, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays
    from edgeconv.runtimes.serving import ServedModel

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
        import numpy as np

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
