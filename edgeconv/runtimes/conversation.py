"""Requests to runner.py in a supervised process: here, in another Python, or behind ssh.

Its docstring has the protocol: a line of JSON for a line of JSON, and arrays behind them. Such a
child prints a greeting first, and ends when its stdin closes. Nothing else may be printed to its
stdout.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import re
import select
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from edgeconv.runtimes.interface import Delegated, Timed
from edgeconv.runtimes.vulkan import VulkanDrivers
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.workers import Child
from edgeconv.types import Accelerator, Allowance, Environment
from edgeconv.types.decoding import ready
from edgeconv.types.errors import Cause, ToolFailed, WorkerCrashed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays, Model
    from edgeconv.types import Timing

# How often a silent process is checked.
_LOOK_MS = 50
_PIECE_BYTES = 1 << 16
# An answer has texts and numbers; arrays follow it.
_LONGEST_LINE_BYTES = 1 << 28
# The most that Linux allows without privileges; the default is a sixteenth.
_PIPE_BYTES = 1 << 20
# A process that has closed its output ends soon.
_LOOKS_UNTIL_GONE = 100


class Talk:
    """A running child that answers one message after another. The context manager ends it.

    Its time counts within `waited_for`, from zero each time; its memory counts always.
    """

    def __init__(self, child: Child, *, greeting: bytes) -> None:
        """`child` was started with `talks`; `greeting` is its first line."""
        self.label = child.label
        self._greeting = greeting
        self._child = child
        self._child.rest()
        self.waited_for = self._child.waited_for
        self._to, self._from = self._child.pipes
        self._read = bytearray()
        self._is_greeted = False
        for pipe in (self._to, self._from):
            os.set_blocking(pipe.fileno(), False)
            _widen(pipe.fileno())
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._from, select.POLLIN)
        self._writable.register(self._to, select.POLLOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rename(self, label: str) -> None:
        """Change what errors call it."""
        self.label = self._child.label = label

    def close(self) -> None:
        """End the process."""
        self._child.kill()
        self._from.close()

    def write(self, data: memoryview | bytes) -> None:
        """Send bytes. Raises `ToolFailed` if the process has ended."""
        rest = memoryview(data)
        while rest:
            if not self._writable.poll(_LOOK_MS):
                self._child.check()
                continue
            try:
                rest = rest[os.write(self._to.fileno(), rest[: _PIECE_BYTES * 16]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                self._raise_gone()

    def line(self) -> bytes:
        """The next line with its line end. Raises as `write` does."""
        while not self._is_greeted:
            # A login shell may print something before the process does.
            self._is_greeted = self._line() == self._greeting
        return self._line()

    def fill(self, into: memoryview) -> None:
        """Fill `into` with the next bytes. Raises as `write` does."""
        taken = min(len(into), len(self._read))
        into[:taken] = self._read[:taken]
        del self._read[:taken]
        while taken < len(into):
            self._await()
            count = os.readv(self._from.fileno(), [into[taken:]])
            if not count:
                self._raise_gone()
            taken += count

    def _line(self) -> bytes:
        looked = 0
        while (end := self._read.find(b"\n", looked)) < 0:
            looked = len(self._read)
            self._await()
            piece = os.read(self._from.fileno(), _PIECE_BYTES)
            if not piece:
                self._raise_gone()
            self._read += piece
            if len(self._read) > _LONGEST_LINE_BYTES:
                raise ToolFailed(f"{self.label} answered more than {_LONGEST_LINE_BYTES:,} bytes")
        line = bytes(self._read[: end + 1])
        del self._read[: end + 1]
        return line

    def _await(self) -> None:
        """Block until there is something to read."""
        while not self._readable.poll(_LOOK_MS):
            self._child.check()

    def _raise_gone(self) -> None:
        for _ in range(_LOOKS_UNTIL_GONE):
            if self._child.has_ended():
                break
            select.select([], [], [], _LOOK_MS / 1e3)
        self._child.kill()
        self._child.raise_unless_well()
        raise WorkerCrashed(f"{self.label} ended without an answer\n{self._child.tail()}")


def _widen(pipe: int) -> None:
    """Let a pipe hold more, so that its ends wait for each other less often."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


Package = Literal["ai_edge_litert", "tflite_micro", "tflite_runtime", "tensorflow", "LiteRT.js"]

# Arrays in shared memory begin at multiples of it.
_ALIGNMENT = 64


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A runner's machine, and the runtime there, which may be in a browser that has a GPU."""

    runtime: str
    version: str
    machine: str
    cpu: str
    cores: int
    system: str
    python: str
    numpy: str
    browser: str = ""
    gpu: str = ""
    is_software: bool = False

    def environment(self, location: str = "") -> Environment:
        """The environment of measurements there."""
        return Environment(
            machine=self.machine,
            cpu=self.cpu,
            cores=self.cores,
            system=self.system,
            python=self.python,
            tools={self.runtime.replace("_", "-"): self.version, "numpy": self.numpy},
            host=location,
        )


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """How to start a runner.py, and the settings that it runs models with.

    Paths of models are those on its machine. `label` names it in errors. One that `shares` memory
    runs on this machine, and gets its arrays that way where the system has it. `access` is what its
    process may touch in addition to the model. With `gpu` models run in LiteRT's GPU delegate.
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
    gpu: VulkanDrivers | None = None

    def facts(self) -> Facts:
        """What the machine is. Raises `ToolFailed` if it does not have the runtime."""
        with self._open(f"the runtime in {self.label}", self.access) as talk:
            answer, _ = talk.ask({"do": "facts", "runtime": self.package})
        return msgspec.convert(answer, ready(Facts))

    def time(self, file: str, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time a model on its first batch of `inputs` in a new process. Raises `ToolFailed`."""
        batch = {name: array[: model.batch] for name, array in inputs.items()}
        request = {**self.request("time", file, model), **msgspec.structs.asdict(timing)}
        with self.opened(model) as talk:
            answer, _ = talk.ask(request, batch)
        return msgspec.convert(answer, ready(Timed))

    def start(self, file: str, model: Model, *reads: Path) -> RunnerSession:
        """Load a model to stay, in a process that may read more files. Raises `ToolFailed`."""
        with contextlib.ExitStack() as unless_loaded:
            talk = unless_loaded.enter_context(self.opened(model, *reads))
            loaded, _ = talk.ask(self.request("load", file, model))
            unless_loaded.pop_all()
        return RunnerSession(talk, self.package, delegated(loaded))

    def opened(self, model: Model, *reads: Path) -> Conversation:
        """A runner's process for a model, which may read it and these files."""
        access = self.access.reading(model.file.absolute(), *reads)
        return self._open(self.running(model), access)

    def running(self, model: Model) -> str:
        """What its process does with a model, for errors."""
        return f"running {model.file.name} in {self.label}"

    def load(self, session: RunnerSession, file: str, model: Model) -> None:
        """Load another model in the process of a session. Raises `ToolFailed`."""
        session.talk.ask(self.request("load", file, model))

    def request(self, do: Literal["load", "time"], file: str, model: Model) -> dict[str, Any]:
        """The request to load or time a model, whose path there is `file`."""
        return {
            "do": do,
            "runtime": self.package,
            "model": file,
            "accelerator": self.accelerator,
            "signature": model.signature,
            "threads": self.threads,
            "batch": model.batch,
            **({"gpu": msgspec.structs.asdict(self.gpu)} if self.gpu else {}),
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
    """A model that stays loaded in a runner; a `RuntimeSession`.

    `gpu` is what a GPU delegate took of the model that was loaded first.
    """

    def __init__(self, talk: Conversation, package: str, gpu: Delegated | None = None) -> None:
        self.talk = talk
        self.gpu = gpu
        self._package = package

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, over all samples. Raises `ToolFailed`."""
        return self.talk.ask({"do": "run", "runtime": self._package}, inputs)[1]

    def close(self) -> None:
        """End the process."""
        self.talk.close()


def delegated(loaded: dict[str, Any]) -> Delegated | None:
    """What a GPU delegate took, in the answer to a load; None if there is no delegate."""
    gpu = loaded.get("gpu")
    return msgspec.convert(gpu, ready(Delegated)) if gpu else None


def _failure(what: str, error: str) -> ToolFailed:
    """The error for the text of a runtime that failed."""
    unresolved = re.search(r"unresolved custom op: ([\w-]+)", error)
    cause = Cause(operators=(unresolved[1],)) if unresolved else Cause()
    return ToolFailed(f"{what} failed: {error}", cause=cause)


class Conversation(Talk):
    """A running runner.py, which gets one request after another.

    Each request may take the time of the allowance.
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
        super().__init__(child, greeting=b"edgeconv runner 1\n")

    def close(self) -> None:
        """End the process."""
        super().close()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def ask(
        self, request: dict[str, Any], arrays: Arrays | None = None
    ) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The answer to a request, and its arrays. Raises `ToolFailed` if the runner fails."""
        self.tell(request, arrays)
        return self.hear()

    def hear(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The answer to the oldest open request. Raises as `ask` does."""
        with self.waited_for():
            answer = msgspec.json.decode(self.line())
            arrays = {name: self._array(*what) for name, *what in answer.get("arrays", ())}
        if error := answer.get("error"):
            raise _failure(f"{self.label} {answer.get('version', '')}", error)
        return answer, arrays

    def tell(self, request: dict[str, Any], arrays: Arrays | None = None) -> None:
        """Send a request. Raises `ToolFailed` if the runner has ended."""
        from edgeconv.runtimes.runner import message_parts

        with self.waited_for():
            if self._memory is not None and arrays:
                request = {**request, "shared": self._memory.put(arrays)}
                self.write(next(message_parts(request, dict(arrays))))
            else:
                for part in message_parts(request, dict(arrays or {})):
                    self.write(part)

    def _array(self, dtype: str, shape: list[int]) -> NDArray[np.generic]:
        import numpy as np

        array: NDArray[np.generic] = np.empty(shape, np.dtype(dtype))
        self.fill(array.reshape(-1).view(np.uint8).data)
        return array


class SharedMemory:
    """An unnamed file in memory for the arrays of a request, which grows with them."""

    def __init__(self) -> None:
        self.file = os.memfd_create("edgeconv")
        self._map: mmap.mmap | None = None

    @staticmethod
    def is_known() -> bool:
        """Whether this system has it."""
        return sys.platform == "linux" and hasattr(os, "memfd_create")

    def put(self, arrays: Arrays) -> dict[str, Any]:
        """Write the arrays into it; returns the value of "shared" in a request."""
        import numpy as np

        offsets, end = [], 0
        for array in arrays.values():
            offsets.append(end)
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        memory = self._at_least(max(end, 1))
        for offset, array in zip(offsets, arrays.values(), strict=True):
            into = np.frombuffer(memory, array.dtype, array.size, offset)
            into.reshape(array.shape)[...] = array
        return {"file": self.file, "bytes": len(memory), "at": offsets}

    def close(self) -> None:
        """Close the file."""
        os.close(self.file)

    def _at_least(self, size: int) -> mmap.mmap:
        if self._map is None or len(self._map) < size:
            os.ftruncate(self.file, size)
            self._map = mmap.mmap(self.file, size)
        return self._map
