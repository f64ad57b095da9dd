"""What runs in a worker of Ray: runtimes, and sessions of the models that parts come for.

It imports no interpreter: a runtime starts one in a supervised child, as it does elsewhere.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from edgeconv.errors import EdgeconvError
from edgeconv.processes.failures import ChildFailure
from edgeconv.processes.sandbox import using
from edgeconv.runtimes.choice import open_runtime
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.runtimes.leases import leased
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.store import scratch_directory
from edgeconv.types import Accelerator, Allowance, Environment, RuntimeChoice

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays, Runtime, RuntimeSession, Timed
    from edgeconv.types import Timing

Answer = TypeVar("Answer")

# Each is a process of some tens of megabytes and the model.
_MOST_SESSIONS = 8


class OpeningChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which runtime a worker opens, and the settings that are not of one machine.

    Where it `is_confined`, no child starts without a sandbox.
    """

    choice: RuntimeChoice
    threads: int
    accelerator: Accelerator
    python: str
    binary: str
    allowance: Allowance
    is_confined: bool


class SentModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model by its content: the sha256 of its file, and what `Model` has."""

    sha256: str
    name: str
    signature: str | None
    batch: int


class OpenedThere(msgspec.Struct, frozen=True, kw_only=True):
    """What `Runtime` and `LocalRuntime` say of a runtime that a worker opened."""

    environment: Environment
    has_times: bool
    is_present_litert: bool


class ClusterWorker:
    """An actor of Ray. Each answer is a pair: the result, and b"" or an error as JSON."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._scratch = self._stack.enter_context(scratch_directory())
        self._runtimes: dict[bytes, Runtime] = {}
        self._sessions: dict[tuple[bytes, SentModel], RuntimeSession] = {}

    def ready(self) -> None:
        """It has started."""

    def open(self, opening: OpeningChoice) -> tuple[OpenedThere | None, bytes]:
        """Open a runtime."""

        def opened() -> OpenedThere:
            runtime = self._opened(opening)
            return OpenedThere(
                environment=runtime.environment,
                has_times=runtime.has_times,
                is_present_litert=isinstance(runtime, LocalRuntime) and runtime.is_present_litert,
            )

        return _answer(opened)

    def run(
        self, opening: OpeningChoice, sent: SentModel, content: NDArray[np.uint8], inputs: Arrays
    ) -> tuple[dict[str, NDArray[np.generic]] | None, bytes]:
        """The model's outputs (n, ...) of samples (n, ...)."""
        return _answer(lambda: self._session(opening, sent, content).run(inputs))

    def load(
        self, opening: OpeningChoice, sent: SentModel, content: NDArray[np.uint8]
    ) -> tuple[bool | None, bytes]:
        """Load the model."""
        return _answer(lambda: bool(self._session(opening, sent, content)))

    def time(
        self,
        opening: OpeningChoice,
        sent: SentModel,
        content: NDArray[np.uint8],
        inputs: Arrays,
        timing: Timing,
    ) -> tuple[Timed | None, bytes]:
        """What `Runtime.time` gives."""
        return _answer(
            lambda: self._opened(opening).time(self._model(sent, content), inputs, timing)
        )

    def close(self) -> None:
        """End all children and delete the files."""
        for session in self._sessions.values():
            session.close()
        self._stack.close()

    def _opened(self, opening: OpeningChoice) -> Runtime:
        key = msgspec.json.encode(opening)
        if key not in self._runtimes:
            directory = Path(self._scratch) / f"runtime-{len(self._runtimes)}"
            directory.mkdir(exist_ok=True)
            settings = RuntimeSettings(
                scratch=directory,
                threads=opening.threads,
                accelerator=opening.accelerator,
                python=opening.python,
                binary=opening.binary,
                allowance=opening.allowance,
            )
            with contextlib.ExitStack() as unless_opened:
                if opening.is_confined:
                    unless_opened.enter_context(using("required"))
                # Other runs on this machine may use the device without the cluster.
                unless_opened.enter_context(leased([opening.choice], lambda _: None))
                opened = unless_opened.enter_context(open_runtime(opening.choice, settings))
                self._stack.push(unless_opened.pop_all())
            self._runtimes[key] = opened
        return self._runtimes[key]

    def _session(
        self, opening: OpeningChoice, sent: SentModel, content: NDArray[np.uint8]
    ) -> RuntimeSession:
        """The model's session, which is now the last one used; the first one makes room."""
        key = (msgspec.json.encode(opening), sent)
        session = self._sessions.pop(key, None)
        if session is None:
            if len(self._sessions) >= _MOST_SESSIONS:
                self._sessions.pop(next(iter(self._sessions))).close()
            session = self._opened(opening).start(self._model(sent, content))
        self._sessions[key] = session
        return session

    def _model(self, sent: SentModel, content: NDArray[np.uint8]) -> Model:
        file = Path(self._scratch) / sent.sha256 / sent.name
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content.tobytes())
        return Model(file=file, signature=sent.signature, batch=sent.batch)


def _answer(ask: Callable[[], Answer]) -> tuple[Answer | None, bytes]:
    try:
        return ask(), b""
    except EdgeconvError as error:
        return None, msgspec.json.encode(ChildFailure.of(error))
