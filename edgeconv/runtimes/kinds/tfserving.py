"""The trained model, served by TensorFlow Serving.

    tfserving:http://HOST:8501/v1/models/NAME[/versions/N]      its REST interface
    tfserving:grpc://HOST:8500/NAME[/N]                         its gRPC interface

It runs the model that the server has, whatever file is asked for. What is timed is a call with
the samples of one batch, from the first byte sent to the last one received: the network and the
server's own queue are in it, making the request and reading the answer are not.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused, ToolFailed, UsageError
from edgeconv.runtimes.choice import refuse_version
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

    from edgeconv.runtimes.interface import Arrays, Model, RuntimeChoice, RuntimeSettings
    from edgeconv.runtimes.serving import Client, ServedModel
    from edgeconv.types import Timing

# A socket takes no more than some weeks.
_LONGEST_TIMEOUT_S = 1e6


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[ServingRuntime]:
    """The runtime, once the server has said that it has the model.

    Raises `UsageError` for an address that is none, and `ToolFailed` where the server does not
    answer or has no such model.
    """
    refuse_version(choice)
    if not choice.place:
        raise UsageError(
            "the runtime tfserving needs an address",
            hint="as in tfserving:http://HOST:8501/v1/models/NAME",
        )
    yield ServingRuntime(parse_served_model(choice.place), settings.allowance.timeout_s)


class ServingRuntime:
    """A served model; see `edgeconv.runtimes.interface.Runtime`."""

    # Calls that wait for each other in the server's queue would only be slower.
    sessions = 2

    def __init__(self, address: ServedModel, timeout_s: float) -> None:
        self._address, self._timeout_s = address, min(timeout_s, _LONGEST_TIMEOUT_S)
        with contextlib.closing(self._client()) as client:
            self._version = client.version()
        # The server says nothing of the machine that it runs on.
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
            said = timings(lambda: (call(), None)[1], msgspec.structs.asdict(timing))
        return Timed(
            runtime="tfserving",
            version=f"{self._address.name}/{self._version}",
            load_us=connected_us,
            first_us=said["first_us"],
            samples_us=tuple(said["samples_us"]),
            warmup=said["warmup"],
        )

    def start(self, model: Model) -> ServingSession:
        """A connection of its own."""
        return ServingSession(self._client(), model)

    def _client(self) -> Client:
        kind = GrpcClient if self._address.scheme == "grpc" else RestClient
        return kind(self._address, self._timeout_s)


def _refuse_strings(inputs: Arrays) -> None:
    for name, array in inputs.items():
        if array.dtype.kind == "S":
            raise InputRefused(
                f"input {name!r} takes strings, and TensorFlow Serving is sent numbers only",
                hint="measure the trained model here: edgeconv bench --baseline SAVED_MODEL",
            )


class ServingSession:
    """A connection to the served model; see `edgeconv.runtimes.interface.RuntimeSession`."""

    def __init__(self, client: Client, model: Model) -> None:
        self._client, self._batch = client, model.batch
        self._signature = model.signature or SERVING_DEFAULT

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, over all samples. Raises `ToolFailed`, `InputRefused`."""
        _refuse_strings(inputs)
        given = []
        for batch in batches(inputs, self._batch):
            answer = self._client.call(self._signature, batch)()
            given.append(self._client.outputs(self._signature, answer))
        if len({frozenset(one) for one in given}) > 1:
            raise ToolFailed("the server gave other outputs for other samples")
        return join_batches(given)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
