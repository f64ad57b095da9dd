"""The trained model, served by TensorFlow Serving.

    tfserving:http://HOST:8501/v1/models/NAME[/versions/N]      its REST interface
    tfserving:grpc://HOST:8500/NAME[/N]                         its gRPC interface

It runs the model that the server has, and ignores the file. It times a call with the samples of one
batch, from the first byte sent to the last one received. That includes the network and the server's
queue, and excludes making the request and reading the answer.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused, ToolFailed, UsageError
from edgeconv.runtimes.interface import Timed
from edgeconv.runtimes.runner import batches, join_batches
from edgeconv.runtimes.serving import parse_served_model
from edgeconv.runtimes.serving_grpc import GrpcClient
from edgeconv.runtimes.serving_rest import RestClient
from edgeconv.types import Environment
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays, Model, RuntimeSettings
    from edgeconv.runtimes.serving import ServedModel
    from edgeconv.types import RuntimeChoice, Timing

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
        import msgspec

        from edgeconv.runtimes.runner import timings

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
        outputs = []
        for batch in batches(inputs, self._batch):
            answer = self._client.call(self._signature, batch)()
            outputs.append(self._client.outputs(self._signature, answer))
        if len({frozenset(names) for names in outputs}) > 1:
            raise ToolFailed("the names of the server's outputs differ between samples")
        return join_batches(outputs)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
