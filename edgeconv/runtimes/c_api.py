"""The part of LiteRT's C interface that profiling a model needs; for use in a child process.

The wheel of ai-edge-litert has libLiteRt.so, which exports it, and no headers. A test compares the
functions used here with version 2.3. Structures are only passed on, because their layout changes
between versions.
"""

import ctypes
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeconv.types.errors import ToolFailed

Array = NDArray[np.generic]

_Handle = ctypes.c_void_p
_CPU = 1
# More than any version's structure takes.
_STRUCTURE_BYTES = 1024
_UNTOUCHED = 0xA5
# Bits of an event's type: an operator of the graph, or one inside a delegate.
_OPERATOR, _IN_DELEGATE = 2, 4 | 8
_NO_DESTRUCTOR = ctypes.CFUNCTYPE(None, _Handle)(lambda _: None)


class Event(NamedTuple):
    """An operator that ran: its name, its number in the graph or delegate, and microseconds."""

    name: str
    number: int
    delegated: bool
    elapsed_us: int


class ProfiledModel:
    """A compiled model with buffers, ready to run. Raises `ToolFailed` if it does not compile.

    The model at `path` has one signature and no open dimensions. `inputs` are arrays of the
    inputs' shapes by the signature's names, in the tensors' own dtypes.
    """

    def __init__(self, path: Path, inputs: Mapping[str, Array], threads: int) -> None:
        self._library = ctypes.CDLL(str(library_path()))
        self._index = ctypes.c_size_t(0)
        self._kept: list[object] = []
        self._environment = self._new("LiteRtCreateEnvironment", 0, None)
        model = self._new("LiteRtCreateModelFromFile", self._environment, str(path).encode())
        self._model = self._compiled(model, threads)
        self._profiler = self._new("LiteRtCompiledModelGetProfiler", self._model)
        signature = self._new("LiteRtGetModelSignature", model, self._index)
        self._inputs = self._buffers(signature, "Input")
        self._outputs = self._buffers(signature, "Output")
        for number, buffer in enumerate(self._inputs):
            self._fill(buffer, inputs[self._input_name(signature, number)])

    def run(self) -> None:
        """Run the model once. Raises `ToolFailed`."""
        self._call(
            "LiteRtRunCompiledModel",
            self._model,
            self._index,
            ctypes.c_size_t(len(self._inputs)),
            self._inputs,
            ctypes.c_size_t(len(self._outputs)),
            self._outputs,
        )

    def profiled_run(self) -> list[Event]:
        """Run the model once; the operators that ran, in order. Raises `ToolFailed`."""
        self._call("LiteRtResetProfiler", self._profiler)
        self._call("LiteRtStartProfiler", self._profiler)
        self.run()
        self._call("LiteRtStopProfiler", self._profiler)
        count = ctypes.c_int()
        self._call("LiteRtGetNumProfilerEvents", self._profiler, ctypes.byref(count))
        if not count.value:
            return []
        raw = np.full(count.value * _STRUCTURE_BYTES, _UNTOUCHED, np.uint8)
        self._call("LiteRtGetProfilerEvents", self._profiler, count, raw.ctypes.data_as(_Handle))
        return _operator_events(raw, count.value)

    def _compiled(self, model: ctypes.c_void_p, threads: int) -> ctypes.c_void_p:
        options = self._new("LiteRtCreateOptions")
        self._call("LiteRtSetOptionsHardwareAccelerators", options, _CPU)
        for name, content in (
            ("runtime_options_string", "enable_profiling = true\n"),
            ("xnnpack", f"num_threads = {threads}\n"),
        ):
            text = ctypes.create_string_buffer(content.encode())
            self._kept.append(text)
            pointer = ctypes.cast(text, _Handle)
            opaque = self._new("LiteRtCreateOpaqueOptions", name.encode(), pointer, _NO_DESTRUCTOR)
            self._call("LiteRtAddOpaqueOptions", options, opaque)
        return self._new("LiteRtCreateCompiledModel", self._environment, model, options)

    def _buffers(self, signature: ctypes.c_void_p, side: str) -> ctypes.Array[ctypes.c_void_p]:
        count = ctypes.c_size_t()
        self._call(f"LiteRtGetNumSignature{side}s", signature, ctypes.byref(count))
        buffers = [self._buffer(signature, side, number) for number in range(count.value)]
        return (_Handle * len(buffers))(*[buffer.value for buffer in buffers])

    def _buffer(self, signature: ctypes.c_void_p, side: str, number: int) -> ctypes.c_void_p:
        index = ctypes.c_size_t(number)
        tensor = self._new(f"LiteRtGetSignature{side}TensorByIndex", signature, index)
        kind = ctypes.create_string_buffer(_STRUCTURE_BYTES)
        self._call("LiteRtGetRankedTensorType", tensor, kind)
        needs = self._new(
            f"LiteRtGetCompiledModel{side}BufferRequirements", self._model, self._index, index
        )
        name = "LiteRtCreateManagedTensorBufferFromRequirements"
        return self._new(name, self._environment, kind, needs)

    def _input_name(self, signature: ctypes.c_void_p, number: int) -> str:
        name = self._new("LiteRtGetSignatureInputName", signature, ctypes.c_size_t(number))
        assert name.value is not None
        return ctypes.string_at(name.value).decode()

    def _fill(self, address: int | None, value: Array) -> None:
        buffer, size, memory = _Handle(address), ctypes.c_size_t(), _Handle()
        self._call("LiteRtGetTensorBufferSize", buffer, ctypes.byref(size))
        self._call("LiteRtGetTensorBufferHostMemory", buffer, ctypes.byref(memory))
        content = np.ascontiguousarray(value).tobytes()
        if len(content) > size.value or not memory.value:
            raise ToolFailed(
                f"an input has {len(content)} bytes, which do not fit the model's buffer"
            )
        ctypes.memmove(memory, content, len(content))

    def _new(self, function: str, *arguments: object) -> ctypes.c_void_p:
        """What `function` returns through its last argument."""
        handle = _Handle()
        self._call(function, *arguments, ctypes.byref(handle))
        return handle

    def _call(self, function: str, *arguments: object) -> None:
        try:
            status = getattr(self._library, function)(*arguments)
        except AttributeError as error:
            raise ToolFailed(f"this version of LiteRT's library has no {function}") from error
        if status:
            raise ToolFailed(f"{function} failed with status {status}")


def library_path() -> Path:
    """The shared library in the package ai_edge_litert. Raises `ToolFailed` without one."""
    spec = find_spec("ai_edge_litert")
    folders = (spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        for name in ("libLiteRt.so", "libLiteRt.dylib"):
            if Path(folder, name).is_file():
                return Path(folder, name)
    raise ToolFailed("the package ai_edge_litert has no shared library of LiteRT")


def _operator_events(raw: NDArray[np.uint8], count: int) -> list[Event]:
    """The events that are operators, of the `count` structures that the library wrote.

    Each begins with the name, the type, the start and the microseconds, and ends with two
    numbers and the source. Its size follows from the number of bytes written.
    """
    written = int(np.flatnonzero(raw != _UNTOUCHED)[-1]) + 1
    # The last field is an enumeration of 4 bytes, after which the next structure is aligned.
    size = -(-written // count // 8) * 8
    words = raw[: size * count].reshape(count, size).view(np.uint64)
    events = []
    for each in words:
        kind = int(each[1]) & 0xFFFFFFFF
        if kind & (_OPERATOR | _IN_DELEGATE):
            name = ctypes.string_at(int(each[0])).decode("utf-8", "replace")
            events.append(Event(name, int(each[-3]), bool(kind & _IN_DELEGATE), int(each[3])))
    return events
