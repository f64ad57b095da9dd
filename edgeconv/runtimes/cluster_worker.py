"""What runs in a worker of Ray: a runtime, and sessions of the models that parts come for.

It imports no interpreter: the runtime starts one in a supervised child, as it does elsewhere.
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
from edgeconv.store import scratch_directory
from edgeconv.types import Accelerator, Allowance, RuntimeChoice

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays, Runtime, RuntimeSession, Timed
    from edgeconv.types import Environment, Timing

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
    allowance: Allowance
    is_confined: bool


class SentModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model by its content: the sha256 of its file, and what `Model` has."""

    sha256: str
    name: str
    signature: str | None
    batch: int


class ClusterWorker:
    """An actor of Ray. Each answer is a pair: the result, and b"" or an error as JSON."""

    def __init__(self, opening: OpeningChoice) -> None:
        self._stack = contextlib.ExitStack()
        self._scratch = self._stack.enter_context(scratch_directory())
        self._opening = opening
        self._runtime: Runtime | None = None
        self._sessions: dict[SentModel, RuntimeSession] = {}

    def open(self) -> tuple[Environment | None, bytes]:
        """Open the runtime; the machine that it is on."""
        return _answer(lambda: self._opened().environment)

    def run(
        self, sent: SentModel, content: NDArray[np.uint8], inputs: Arrays
    ) -> tuple[dict[str, NDArray[np.generic]] | None, bytes]:
        """The model's outputs (n, ...) of samples (n, ...)."""
        return _answer(lambda: self._session(sent, content).run(inputs))

    def load(self, sent: SentModel, content: NDArray[np.uint8]) -> tuple[bool | None, bytes]:
        """Load the model."""
        return _answer(lambda: bool(self._session(sent, content)))

    def time(
        self, sent: SentModel, content: NDArray[np.uint8], inputs: Arrays, timing: Timing
    ) -> tuple[Timed | None, bytes]:
        """What `Runtime.time` gives."""
        return _answer(lambda: self._opened().time(self._model(sent, content), inputs, timing))

    def close(self) -> None:
        """End all children and delete the files."""
        for session in self._sessions.values():
            session.close()
        self._stack.close()

    def _opened(self) -> Runtime:
        if self._runtime is None:
            opening = self._opening
            settings = RuntimeSettings(
                scratch=self._scratch,
                threads=opening.threads,
                accelerator=opening.accelerator,
                python=opening.python,
                allowance=opening.allowance,
            )
            if opening.is_confined:
                self._stack.enter_context(using("required"))
            opened = open_runtime(opening.choice, settings)
            self._runtime = self._stack.enter_context(opened)
        return self._runtime

    def _session(self, sent: SentModel, content: NDArray[np.uint8]) -> RuntimeSession:
        """The model's session, which is now the last one used; the first one makes room."""
        session = self._sessions.pop(sent, None)
        if session is None:
            if len(self._sessions) >= _MOST_SESSIONS:
                self._sessions.pop(next(iter(self._sessions))).close()
            session = self._opened().start(self._model(sent, content))
        self._sessions[sent] = session
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
