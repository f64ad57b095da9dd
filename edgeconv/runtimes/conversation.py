"""Talking with runner.py in a supervised process: here, in another Python, or behind ssh.

The protocol is in the docstring of runner.py.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from edgeconv.errors import Cause, ToolFailed
from edgeconv.processes.sandbox import Access
from edgeconv.processes.talk import Talk
from edgeconv.processes.workers import Child
from edgeconv.runtimes.interface import Timed
from edgeconv.types import Accelerator, Allowance

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays, Model
    from edgeconv.types import Environment, Timing

Package = Literal["ai_edge_litert", "tflite_runtime", "tensorflow", "LiteRT.js"]

_GREETING = b"edgeconv runner 1\n"
# Where an array begins in shared memory: as a processor likes it.
_ALIGNMENT = 64


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner says of its machine, and of the runtime there, which may be in a browser."""

    runtime: str
    version: str
    machine: str
    cpu: str
    cores: int
    system: str
    python: str
    numpy: str
    browser: str = ""

    def environment(self, place: str = "") -> Environment:
        """The environment that measurements made there belong to."""
        from edgeconv.types import Environment

        return Environment(
            machine=self.machine,
            cpu=self.cpu,
            cores=self.cores,
            system=self.system,
            python=self.python,
            tools={self.runtime.replace("_", "-"): self.version, "numpy": self.numpy},
            host=place,
        )


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """How to start a serving runner.py, and what it is to run models with.

    `command` ends in "runner.py". Files of models are named as they are called there.
    `label` names the place in errors. One that `shares` memory runs on this machine, and gets
    its arrays through that where the system has it. `access` is what its process may touch beyond
    the model.
    """

    command: tuple[str, ...]
    package: Package
    label: str
    scratch: Path
    access: Access
    threads: int = 1
    accelerator: Accelerator = "interpreter"
    allowance: Allowance = Allowance()
    shares: bool = False

    def facts(self) -> Facts:
        """What the machine is. Raises `ToolFailed` where no runtime is to be had there."""
        with self._open(f"the runtime in {self.label}", self.access) as talk:
            said, _ = talk.ask({"do": "facts", "runtime": self.package})
        return msgspec.convert(said, Facts)

    def time(self, file: str, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time a model on its first batch of `inputs` in a fresh process. Raises `ToolFailed`."""
        batch = {name: array[: model.batch] for name, array in inputs.items()}
        request = {**self.request("time", file, model), **msgspec.structs.asdict(timing)}
        with self.opened(model) as talk:
            said, _ = talk.ask(request, batch)
        return msgspec.convert(said, Timed)

    def start(self, file: str, model: Model) -> RunnerSession:
        """Load a model to stay. Raises `ToolFailed`."""
        with contextlib.ExitStack() as unless_loaded:
            talk = unless_loaded.enter_context(self.opened(model))
            talk.ask(self.request("load", file, model))
            unless_loaded.pop_all()
        return RunnerSession(talk, self.package)

    def opened(self, model: Model, *reads: Path) -> Conversation:
        """A runner's process for a model, which may read that and these files."""
        access = self.access.reading(model.file.absolute(), *reads)
        return self._open(f"running {model.file.name} in {self.label}", access)

    def load(self, session: RunnerSession, file: str, model: Model) -> None:
        """Load another model in the process of a session. Raises `ToolFailed`."""
        session.talk.ask(self.request("load", file, model))

    def request(self, do: Literal["load", "time"], file: str, model: Model) -> dict[str, Any]:
        """The request to load a model, which is called `file` there, or to time it."""
        return {
            "do": do,
            "runtime": self.package,
            "model": file,
            "accelerator": self.accelerator,
            "signature": model.signature,
            "threads": self.threads,
            "batch": model.batch,
        }

    def _open(self, label: str, access: Access) -> Conversation:
        return Conversation(
            self.command,
            label=label,
            scratch=self.scratch,
            access=access,
            allowance=self.allowance,
            shares=self.shares,
        )


class RunnerSession:
    """A model loaded in a runner that stays; a `Session`."""

    def __init__(self, talk: Conversation, package: str) -> None:
        self.talk = talk
        self._package = package

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, over all samples. Raises `ToolFailed`."""
        return self.talk.ask({"do": "run", "runtime": self._package}, inputs)[1]

    def close(self) -> None:
        """End the process."""
        self.talk.close()


def failed(what: str, error: str) -> ToolFailed:
    """The error for what a runtime said when it failed."""
    unresolved = re.search(r"unresolved custom op: ([\w-]+)", error)
    cause = Cause(operators=(unresolved[1],)) if unresolved else Cause()
    return ToolFailed(f"{what} failed: {error}", cause=cause)


class Conversation(Talk):
    """A serving runner.py at work, asked one thing after the other.

    Each question may take as long as the allowance says.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        label: str,
        scratch: Path,
        access: Access,
        allowance: Allowance,
        shares: bool = False,
    ) -> None:
        self._memory = SharedMemory() if shares and SharedMemory.is_known() else None
        child = Child(
            command,
            label=label,
            cwd=Path(tempfile.mkdtemp(prefix="talk-", dir=scratch)),
            access=access,
            allowance=allowance,
            talks=True,
            shares=(self._memory.file,) if self._memory else (),
        )
        super().__init__(child, greeting=_GREETING)

    def close(self) -> None:
        """End the process."""
        super().close()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def ask(
        self, request: dict[str, Any], arrays: Arrays | None = None
    ) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The answer to a request, and its arrays.

        Raises `ToolFailed` where the runner says that it failed, or does not live to say so.
        """
        self.tell(request, arrays)
        return self.hear()

    def hear(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The answer to the oldest request that has none yet. Raises as `ask` does."""
        with self.waited_for():
            said = msgspec.json.decode(self.line())
            given = {name: self._array(*what) for name, *what in said.get("arrays", ())}
        if error := said.get("error"):
            raise failed(f"{self.label} {said.get('version', '')}", error)
        return said, given

    def tell(self, request: dict[str, Any], arrays: Arrays | None = None) -> None:
        """Send a request. Raises `ToolFailed` where the runner does not live to take it."""
        with self.waited_for():
            self._send(request, arrays or {})

    def _send(self, request: dict[str, Any], arrays: Arrays) -> None:
        from edgeconv.runtimes.runner import message_parts

        if self._memory is not None and arrays:
            request = {**request, "shared": self._memory.put(arrays)}
            self.write(next(message_parts(request, dict(arrays))))
            return
        for piece in message_parts(request, dict(arrays)):
            self.write(piece)

    def _array(self, dtype: str, shape: list[int]) -> NDArray[np.generic]:
        import numpy as np

        array: NDArray[np.generic] = np.empty(shape, np.dtype(dtype))
        self.fill(array.reshape(-1).view(np.uint8).data)
        return array


class SharedMemory:
    """A file without a name that holds the arrays of a request, grown as they grow."""

    def __init__(self) -> None:
        self.file = os.memfd_create("edgeconv")
        self._map: mmap.mmap | None = None

    @staticmethod
    def is_known() -> bool:
        """Whether this system has it."""
        return sys.platform == "linux" and hasattr(os, "memfd_create")

    def put(self, arrays: Arrays) -> dict[str, Any]:
        """Lay the arrays into it, and say where: what a request has as "shared"."""
        import numpy as np

        places, end = [], 0
        for array in arrays.values():
            places.append(end)
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        memory = self._at_least(max(end, 1))
        for place, array in zip(places, arrays.values(), strict=True):
            into = np.frombuffer(memory, array.dtype, array.size, place)
            into.reshape(array.shape)[...] = array
        return {"file": self.file, "bytes": len(memory), "at": places}

    def close(self) -> None:
        """Let go of it."""
        os.close(self.file)

    def _at_least(self, size: int) -> mmap.mmap:
        if self._map is None or len(self._map) < size:
            os.ftruncate(self.file, size)
            self._map = mmap.mmap(self.file, size)
        return self._map
