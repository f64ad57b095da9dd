"""Requests to runner.py in a supervised process: here, in another Python, or behind ssh.

Its docstring has the protocol: a line of JSON for a line of JSON, and arrays behind them. It is not
the files of `system.processes.tasks`, because a runner may have neither msgspec nor a disk in
common with this process. Nothing but the greeting and answers may be printed to its stdout.
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

from edgeconv.runtimes.interface import Arrays, Delegated, Model, Timed
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.workers import Child
from edgeconv.types import Accelerator, Allowance, Environment, Timing
from edgeconv.types.decoding import ready
from edgeconv.types.errors import Cause, ToolFailed, WorkerCrashed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray


# How often a silent process is checked.
_LOOK_MS = 50
_PIECE_BYTES = 1 << 16
# An answer has texts and numbers; arrays follow it.
_LONGEST_LINE_BYTES = 1 << 28
# The most that Linux allows without privileges; the default is a sixteenth.
_PIPE_BYTES = 1 << 20
# A process that has closed its output ends soon.
_LOOKS_UNTIL_GONE = 100
# The first line of runner.py, which imports nothing of edgeconv.
_GREETING = b"edgeconv runner 1\n"


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


class VulkanDrivers(msgspec.Struct, frozen=True, kw_only=True):
    """Descriptions of drivers, and the library that loads them.

    `files` are as `VK_DRIVER_FILES` has them, "" for those that the loader finds; `loader` is ""
    for the system's. `has_device`: whether they may be a real GPU's.
    """

    files: str = ""
    loader: str = ""
    has_device: bool = False

    def reads(self) -> tuple[Path, ...]:
        """The directories of the named files."""
        named = [Path(each) for each in (*self.files.split(os.pathsep), self.loader) if each]
        return tuple(dict.fromkeys(file.parent.absolute() for file in named))


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
        with Conversation(self, f"the runtime in {self.label}") as talk:
            answer, _ = talk.ask({"do": "facts", "runtime": self.package})
        return msgspec.convert(answer, ready(Facts))

    def probe(self, there: str = "") -> tuple[Facts, Delegated | None]:
        """The facts of the machine, and what a GPU delegate took, once RELU was right there.

        A runtime may be found, and fail with the first model. `there` is where the model is on
        another machine, see `relu_file`. Raises `ToolFailed`.
        """
        import numpy as np

        with relu_file(self.scratch) as file:
            model = Model(file=file)
            with self.opened(model) as talk:
                facts, _ = talk.ask({"do": "facts", "runtime": self.package})
                loaded, _ = talk.ask(self.request("load", there or str(file), model))
                inputs = {"x": np.array([[-3.0, 2.5]], np.float32)}
                _, outputs = talk.ask({"do": "run", "runtime": self.package}, inputs)
        if not np.array_equal(outputs["y"], [[0.0, 2.5]]):
            raise ToolFailed(f"{self.label} computes a wrong RELU")
        return msgspec.convert(facts, ready(Facts)), delegated(loaded)

    def time(self, file: str, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time a model on its first batch of `inputs` in a new process. Raises `ToolFailed`."""
        batch = {name: array[: model.batch] for name, array in inputs.items()}
        request = {**self.request("time", file, model), **msgspec.structs.asdict(timing)}
        with self.opened(model) as talk:
            answer, _ = talk.ask(request, batch)
        return msgspec.convert(answer, ready(Timed))

    def start(self, file: str, model: Model) -> RunnerSession:
        """Load a model to stay, in a new process. Raises `ToolFailed`."""
        return self.load(self.opened(model), file, model)

    def load(
        self,
        talk: Conversation,
        file: str,
        model: Model,
        give_back: Callable[[], None] | None = None,
    ) -> RunnerSession:
        """Load a model in a process, which is given back in the end if it can be, else ended.

        Raises `ToolFailed`.
        """
        with contextlib.ExitStack() as unless_loaded:
            unless_loaded.callback(talk.close)
            loaded, _ = talk.ask(self.request("load", file, model))
            unless_loaded.pop_all()
        return RunnerSession(talk, self.package, delegated(loaded), give_back or talk.close)

    def opened(self, model: Model, *reads: Path) -> Conversation:
        """A runner's process for a model, which may read it and these files."""
        access = self.access.reading(model.file.absolute(), *reads)
        return Conversation(self, self.running(model), access)

    def running(self, model: Model) -> str:
        """What its process does with a model, for errors."""
        return f"running {model.file.name} in {self.label}"

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


def relu_model() -> bytes:
    """A .tflite without signatures: y = max(0, x), both float32 of shape (1, 2)."""
    from ai_edge_litert import schema_py_generated as schema

    from edgeconv.model.tflite.flatbuffer import serialize

    relu = schema.BuiltinOperator.RELU
    tensors = [
        schema.TensorT(name=name, shape=[1, 2], type=schema.TensorType.FLOAT32) for name in "xy"
    ]
    operator = schema.OperatorT(opcodeIndex=0, inputs=[0], outputs=[1])
    code = schema.OperatorCodeT(deprecatedBuiltinCode=relu, builtinCode=relu, version=1)
    graph = schema.SubGraphT(tensors=tensors, inputs=[0], outputs=[1], operators=[operator])
    model = schema.ModelT(
        version=3, operatorCodes=[code], subgraphs=[graph], buffers=[schema.BufferT()]
    )
    return serialize(model)


@contextlib.contextmanager
def relu_file(scratch: Path) -> Iterator[Path]:
    """`relu_model` in a file, which is removed after the block."""
    with tempfile.TemporaryDirectory(dir=scratch) as here:
        file = Path(here) / "relu.tflite"
        file.write_bytes(relu_model())
        yield file


class RunnerSession:
    """A model that stays loaded in a runner; a `RuntimeSession`. `gpu`: what a delegate took."""

    def __init__(
        self, talk: Conversation, package: str, gpu: Delegated | None, end: Callable[[], None]
    ) -> None:
        """`end` is called in the end, unless a run fails, which ends the process."""
        self.talk, self.gpu = talk, gpu
        self._package, self._at_end = package, contextlib.ExitStack()
        self._at_end.callback(end)

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, over all samples. Raises `ToolFailed`."""
        try:
            return self.talk.ask({"do": "run", "runtime": self._package}, inputs)[1]
        except ToolFailed:
            self._at_end.pop_all()
            self.talk.close()
            raise

    def close(self) -> None:
        """End the process, or give it back."""
        self._at_end.close()


def delegated(loaded: dict[str, Any]) -> Delegated | None:
    """What a GPU delegate took, in the answer to a load; None if there is no delegate."""
    gpu = loaded.get("gpu")
    return msgspec.convert(gpu, ready(Delegated)) if gpu else None


def _failure(what: str, error: str) -> ToolFailed:
    """The error for the text of a runtime that failed."""
    unresolved = re.search(r"unresolved custom op: ([\w-]+)", error)
    cause = Cause(operators=(unresolved[1],)) if unresolved else Cause()
    return ToolFailed(f"{what} failed: {error}", cause=cause)


class Conversation:
    """A running runner.py, which gets one request after another. The context manager ends it.

    Each request may take the time of the runner's allowance; its memory counts always.
    """

    def __init__(self, runner: Runner, label: str = "", access: Access | None = None) -> None:
        """`label` and `access`: other ones than the runner's."""
        shares = runner.shares and SharedMemory.is_known()
        self._memory = SharedMemory() if shares else None
        self.label = label or runner.label
        self._child = Child(
            runner.command,
            label=self.label,
            cwd=Path(tempfile.mkdtemp(prefix="talk-", dir=runner.scratch)),
            access=access or runner.access,
            allowance=runner.allowance,
            talks=True,
            shares=(self._memory.file,) if self._memory else (),
        )
        self._child.rest()
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
        with self._child.waited_for():
            answer = msgspec.json.decode(self._next_line())
            arrays = {name: self._array(*what) for name, *what in answer.get("arrays", ())}
        if error := answer.get("error"):
            raise _failure(f"{self.label} {answer.get('version', '')}", error)
        return answer, arrays

    def tell(self, request: dict[str, Any], arrays: Arrays | None = None) -> None:
        """Send a request. Raises `ToolFailed` if the runner has ended."""
        from edgeconv.runtimes.runner import message_parts

        with self._child.waited_for():
            if self._memory is not None and arrays:
                request = {**request, "shared": self._memory.put(arrays)}
                self._write(next(message_parts(request, dict(arrays))))
            else:
                for part in message_parts(request, dict(arrays or {})):
                    self._write(part)

    def _array(self, dtype: str, shape: list[int]) -> NDArray[np.generic]:
        import numpy as np

        array: NDArray[np.generic] = np.empty(shape, np.dtype(dtype))
        self._fill(array.reshape(-1).view(np.uint8).data)
        return array

    def _write(self, data: memoryview | bytes) -> None:
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

    def _next_line(self) -> bytes:
        """The next line with its line end. Raises as `_write`."""
        while not self._is_greeted:
            # A login shell may print something before the process does.
            self._is_greeted = self._line() == _GREETING
        return self._line()

    def _fill(self, into: memoryview) -> None:
        """Fill `into` with the next bytes. Raises as `_write`."""
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
