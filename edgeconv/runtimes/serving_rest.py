"""The REST interface of TensorFlow Serving."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

from edgeconv.errors import ToolFailed
from edgeconv.runtimes.serving import DTYPES, not_available, refused, unreachable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays
    from edgeconv.runtimes.serving import PredictCall, ServedModel

# JSON has no types: these are the nearest that numpy has.
_DTYPES = {**DTYPES, "DT_BFLOAT16": "float32"}
_JSON = {"Content-Type": "application/json"}


class RestClient:
    """A connection that is kept open; see `edgeconv.runtimes.serving.Client`."""

    def __init__(self, address: ServedModel, timeout_s: float) -> None:
        kind = (
            http.client.HTTPSConnection
            if address.scheme == "https"
            else (http.client.HTTPConnection)
        )
        self._address = address
        self._connection = kind(address.host, timeout=timeout_s)
        self._signatures: dict[str, Any] | None = None

    def version(self) -> str:
        """The newest version that is available."""
        found = self._json("GET", self._address.path).get("model_version_status", [])
        available = [one for one in found if one.get("state") == "AVAILABLE"]
        if not available:
            states = [f"{one.get('version')} {one.get('state')}" for one in found]
            raise not_available(self._address, ", ".join(states) or "it names no version")
        return str(max(int(one["version"]) for one in available))

    def call(self, signature: str, inputs: Arrays) -> PredictCall:
        """A call for the samples of one batch, by input."""
        columns = {name: array.tolist() for name, array in inputs.items()}
        body = json.dumps({"signature_name": signature, "inputs": columns}).encode()
        path = f"{self._address.path}:predict"

        def call() -> bytes:
            status, answer = self._answer("POST", path, body)
            if status != http.client.OK:
                raise refused(self._address, _said(answer))
            return answer

        return call

    def outputs(self, signature: str, answer: bytes) -> dict[str, NDArray[np.generic]]:
        """The outputs by name; one that is alone comes without its name."""
        import numpy as np

        dtypes = self._output_dtypes(signature)
        given = _decoded(self._address, answer).get("outputs")
        if len(dtypes) == 1 and not isinstance(given, dict):
            given = {next(iter(dtypes)): given}
        if not isinstance(given, dict) or set(given) != set(dtypes):
            raise ToolFailed(f"{self._address} gave other outputs than {sorted(dtypes)}")
        return {name: np.array(given[name], dtype) for name, dtype in dtypes.items()}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _output_dtypes(self, signature: str) -> dict[str, str]:
        if self._signatures is None:
            said = self._json("GET", f"{self._address.path}/metadata")
            self._signatures = said["metadata"]["signature_def"]["signature_def"]
        if signature not in self._signatures:
            names = ", ".join(map(repr, self._signatures))
            raise ToolFailed(f"{self._address} has no signature {signature!r}; it has {names}")
        outputs = self._signatures[signature]["outputs"]
        odd = [name for name, info in outputs.items() if info["dtype"] not in _DTYPES]
        if odd:
            raise ToolFailed(f"{self._address} gives outputs that are no numbers: {odd}")
        return {name: _DTYPES[info["dtype"]] for name, info in outputs.items()}

    def _json(self, method: str, path: str) -> dict[str, Any]:
        status, answer = self._answer(method, path)
        if status != http.client.OK:
            raise not_available(self._address, f"{status} {_said(answer)}")
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
        # NaN and Infinity come as such, and Python takes them.
        said = json.loads(answer)
    except ValueError as error:
        raise ToolFailed(f"{address} is no TensorFlow Serving: it answers no JSON") from error
    if not isinstance(said, dict):
        raise ToolFailed(f"{address} is no TensorFlow Serving: it answers {str(said)[:80]!r}")
    return said


def _said(answer: bytes) -> str:
    """What an answer that is an error says."""
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return repr(answer[:200].decode("utf-8", "replace"))
