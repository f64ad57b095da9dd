"""Run a .tflite: one file that needs nothing but the standard library, numpy, a runtime.

    python runner.py

It is copied to wherever a model is to run, so it imports nothing of edgeconv and
works with ai_edge_litert, tflite_runtime or tensorflow, whichever is asked for.

It answers requests that come on stdin on its stdout, in their order, until stdin closes:

    the first line of stdout     GREETING; what a login shell says before it is to be skipped
    a request, and an answer     a line of JSON, in which "arrays" is a list of [name, dtype
                                 as numpy's .str, shape], then the bytes of each array, in C
                                 order, without anything between or after them

What a runtime prints goes to stderr. With "shared" in a request, its arrays are in memory and not
in the stream: "file" is the number of an inherited open file of "bytes", "at" has the place of
each. "files" has the paths of .npy files of more inputs, which are mapped.

Every request has "do", and "runtime": the package "ai_edge_litert", "tflite_runtime" or
"tensorflow"; an answer has "runtime", its "version", and "error" where it failed.

facts    what the machine is: machine, cpu, cores, system, python, numpy
load     load the model for "run": path "model", with "threads", "signature" (null takes the
         only one, and in a model without any the tensors' own names), "batch", the samples of
         one invoke, and "accelerator": "interpreter", or "compiled", LiteRT's CompiledModel.
         The answer has load_us
run      run the inputs, (n, *sample) by name; the arrays of the answer are the outputs,
         (n, *shape) by name
time     load the model, as load does, and time it on the arrays, the samples of one invoke.
         warmup: invokes before timing at least, first one included; warmup_seconds: for so
         long at most, until the times are stable; repeats, seconds: timed invokes and
         seconds at most. The answer has load_us, first_us, warmup (how many invokes it
         took), samples_us (raw, one per timed invoke) and memory_bytes, the growth of the
         peak resident set from just before the model was loaded (null where the system
         cannot say)

Float samples are quantized for an integer input and integer outputs dequantized, by the model's
own scale and zero point, outside of the timed part. Strings are in arrays of dtype S, and each
has one byte more at its end, END, so that zeros there are not lost; edgeconv/data/strings.py says
the same.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import platform
import sys
import time
from typing import IO, Any, Callable, Dict, Iterator, Mapping

import numpy as np

Batch = Dict[str, Any]
GREETING = b"edgeconv runner 1\n"
# Times count as stable once the medians of two windows in a row differ by less.
STABLE_WITHIN = 0.02
LEAST_WINDOW = 5
# A processor that was idle takes some time to reach its frequency.
LEAST_WARMUP_S = 0.1
END = b"\x01"
# What a runtime that is not there raises, and the interpreters for a model that they cannot
# load, prepare or run.
FAILURES = (
    ImportError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, OSError, MemoryError
)  # fmt: skip


def serve(handler: Any = None) -> None:
    """Answer the requests of stdin on stdout, until it closes, by a `RequestHandler`."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What a runtime reads or prints must not come between.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sink.write(GREETING)
    sink.flush()
    handler = handler or RequestHandler()
    for line in iter(source.readline, b""):
        request = json.loads(line.decode("utf-8"))
        arrays = handler.shared(request) if "shared" in request else received(source, request)
        for piece in pieces(*handler.answer(request, arrays)):
            sink.write(piece)
        sink.flush()


def received(source: IO[bytes], request: dict[str, Any]) -> Batch:
    """The arrays that follow a request in the stream."""
    arrays = {}
    for name, dtype, shape in request.get("arrays", ()):
        kind = np.dtype(dtype)
        data = source.read(kind.itemsize * int(np.prod(shape, dtype=np.int64)))
        arrays[name] = np.frombuffer(data, kind).reshape(shape)
    return arrays


def pieces(said: dict[str, Any], arrays: Batch) -> Iterator[Any]:
    """The bytes of a request or an answer: its line, and then each of its arrays."""
    # Not by `np.ascontiguousarray` alone, which gives an array without dimensions one.
    ready = {name: np.ascontiguousarray(a).reshape(np.shape(a)) for name, a in arrays.items()}
    said = dict(said, arrays=[[name, a.dtype.str, list(a.shape)] for name, a in ready.items()])
    yield json.dumps(said).encode("utf-8") + b"\n"
    for array in ready.values():
        yield array.reshape(-1).view(np.uint8).data


class RequestHandler:
    """Answers requests, one after the other; a model stays loaded between them."""

    def __init__(self) -> None:
        self.model: Any = None
        self.batch = 1
        self.memory: Any = None

    def answer(self, request: dict[str, Any], arrays: Batch) -> tuple[dict[str, Any], Batch]:
        """The answer to a request, and its arrays."""
        said: dict[str, Any] = {"runtime": request["runtime"], "version": ""}
        given: Batch = {}
        do = getattr(self, "do_" + request["do"])
        try:
            package, said["version"] = import_runtime(request["runtime"])
            said.update(do(package, request, arrays, given))
        except FAILURES as error:
            said["error"] = "%s: %s" % (type(error).__name__, error)
        return said, given

    def shared(self, request: dict[str, Any]) -> Batch:
        """The arrays of a request that are in shared memory."""
        shared = request["shared"]
        if self.memory is None or len(self.memory) != shared["bytes"]:
            self.memory = mmap.mmap(shared["file"], shared["bytes"])
        arrays = {}
        for (name, dtype, shape), place in zip(request["arrays"], shared["at"]):
            count = int(np.prod(shape, dtype=np.int64))
            arrays[name] = np.frombuffer(self.memory, dtype, count, place).reshape(shape)
        return arrays

    def do_facts(self, *_: Any) -> dict[str, Any]:
        """What the machine is."""
        return {
            "machine": platform.machine(),
            "cpu": processor(),
            "cores": os.cpu_count() or 1,
            "system": "%s %s" % (platform.system(), platform.release()),
            "python": platform.python_version(),
            "numpy": np.__version__,
        }

    def do_time(
        self, package: Any, request: dict[str, Any], arrays: Batch, *_: Any
    ) -> dict[str, Any]:
        """Time one invoke of the arrays."""
        make = opener(package, request)
        before_bytes = reset_peak_bytes()
        model, load_us = timed(make)
        said = timings(model.settle(arrays), request)
        after_bytes = peak_bytes()
        known = before_bytes is not None and after_bytes is not None
        memory = max(0, (after_bytes or 0) - (before_bytes or 0)) if known else None
        return dict(said, load_us=load_us, memory_bytes=memory)

    def do_load(self, package: Any, request: dict[str, Any], *_: Any) -> dict[str, Any]:
        """Load a model, to stay."""
        self.batch = request["batch"]
        self.model, load_us = timed(opener(package, request))
        return {"load_us": load_us}

    def do_run(
        self, _: Any, request: dict[str, Any], arrays: Batch, given: Batch
    ) -> dict[str, Any]:
        """Run all samples in the loaded model."""
        for name, file in request.get("files", {}).items():
            arrays[name] = np.load(file, mmap_mode="r")
        given.update(joined([self.model.run(batch) for batch in batches(arrays, self.batch)]))
        return {}


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What the function gives, and how long it took, in microseconds."""
    started = time.perf_counter_ns()
    result = function()
    return result, (time.perf_counter_ns() - started) / 1e3


@functools.lru_cache(maxsize=None)
def import_runtime(name: str) -> tuple[Any, str]:
    """The module with `Interpreter`, and its version, which it takes a while to find."""
    if name == "ai_edge_litert":
        from importlib.metadata import version

        import ai_edge_litert.interpreter as package

        return package, version("ai-edge-litert")
    if name == "tflite_runtime":
        import tflite_runtime
        import tflite_runtime.interpreter as package

        return package, tflite_runtime.__version__
    if name == "tensorflow":
        import tensorflow

        return tensorflow.lite, tensorflow.__version__
    raise SystemExit("unknown runtime " + repr(name))


def opener(package: Any, request: dict[str, Any]) -> Callable[[], Any]:
    """What loads the model of a request."""
    path, threads, signature = request["model"], request["threads"], request["signature"]

    def plain() -> LoadedModel:
        return LoadedModel(package.Interpreter(model_path=path, num_threads=threads), signature)

    if request["accelerator"] == "interpreter":
        return plain
    # CompiledModel does not tell the scales.
    details = plain()
    return lambda: Compiled(path, signature, threads, details.inputs, details.outputs)


class LoadedModel:
    """A signature of a loaded model; arrays go in and come out by name.

    `inputs` and `outputs` are what the interpreter says of each, the outputs sorted.
    """

    def __init__(self, interpreter: Any, signature: str | None = None) -> None:
        self.interpreter = interpreter
        self.runner: Any = None
        if interpreter.get_signature_list():
            self.runner = interpreter.get_signature_runner(signature)
            self.inputs = self.runner.get_input_details()
            outputs = self.runner.get_output_details()
        else:
            self.inputs = {each["name"]: each for each in interpreter.get_input_details()}
            outputs = {each["name"]: each for each in interpreter.get_output_details()}
        self.outputs = dict(sorted(outputs.items()))

    def prepare(self, batch: Batch) -> Batch:
        """The samples in the dtypes of the model's inputs."""
        return {name: stored(value, self.inputs[name]) for name, value in batch.items()}

    def invoke(self, batch: Batch) -> Batch:
        """The outputs in their own dtypes. A state that the model keeps is kept."""
        if self.runner is None:
            self.settle(batch)()
            places = {name: details["index"] for name, details in self.outputs.items()}
            return {name: self.interpreter.get_tensor(place) for name, place in places.items()}
        raw: Batch = self.runner(**self.prepare(batch))
        return raw

    def run(self, batch: Batch) -> Batch:
        """The outputs, as float where they are quantized.

        Fused recurrent operators keep their state after an invoke, which would make the
        answer to one sample depend on the samples before it.
        """
        raw = self.invoke(batch)
        # Afterwards: before its first run a model has no place for them yet.
        self.interpreter.reset_all_variables()
        return {name: real(raw[name], details) for name, details in self.outputs.items()}

    def settle(self, batch: Batch) -> Callable[[], None]:
        """Give the inputs the shape of `batch`, set them, and return the bare invoke."""
        prepared, graph = self.prepare(batch), getattr(self.runner, "_subgraph_index", 0)
        resize, allocate, put, invoke = self.inner_methods(graph) if graph else self.methods()
        for name, value in prepared.items():
            resize(self.inputs[name]["index"], value.shape)
        allocate()
        for name, value in prepared.items():
            put(self.inputs[name]["index"], value)
        return invoke

    def methods(self) -> tuple[Callable[..., Any], ...]:
        """What resizes an input, allocates, sets an input, and invokes the model's first graph.

        An interpreter whose signature is in use refuses to be invoked by itself.
        """
        self.runner = None
        plain = self.interpreter
        resize = functools.partial(plain.resize_tensor_input, strict=False)
        return resize, plain.allocate_tensors, plain.set_tensor, plain.invoke

    def inner_methods(self, graph: int) -> tuple[Callable[..., Any], ...]:
        """The same of another graph: methods that a signature's runner uses reach it."""
        wrapper = self.runner._interpreter_wrapper
        return (
            lambda index, shape: wrapper.ResizeInputTensor(
                index, np.array(shape, np.int32), False, graph
            ),
            lambda: wrapper.AllocateTensors(graph),
            lambda index, value: wrapper.SetTensor(index, value, graph),
            lambda: wrapper.Invoke(graph),
        )


class Compiled:
    """A model in LiteRT's CompiledModel on the processor; it has what `LoadedModel` has."""

    def __init__(
        self, path: str, signature: str | None, threads: int, inputs: Batch, outputs: Batch
    ) -> None:
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.hardware_accelerator import HardwareAccelerator
        from ai_edge_litert.options import CpuOptions, Options

        for name, details in list(inputs.items()) + list(outputs.items()):
            if np.dtype(details["dtype"]).kind in "SO":
                raise ValueError("CompiledModel takes no strings, and %r holds these" % name)

        cpu = CpuOptions(num_threads=threads)
        options = Options(hardware_accelerators=HardwareAccelerator.CPU, cpu_options=cpu)
        self.model = CompiledModel.from_file(path, options=options)
        self.inputs, self.outputs = inputs, outputs
        self.index = self.model.get_signature_index(signature) if signature else 0
        self.key = signature or next(iter(self.model.get_signature_list()))
        self.shapes: dict[str, tuple[int, ...]] = {}

    def settle(self, batch: Batch) -> Callable[[], None]:
        """`LoadedModel.settle`, after which other samples of the same shape may be set as well."""
        names = self.model.get_signature_by_index(self.index)
        prepared = {name: stored(value, self.inputs[name]) for name, value in batch.items()}
        for position, name in enumerate(names["inputs"]):
            if prepared[name].shape != tuple(self.inputs[name]["shape"]):
                shape = prepared[name].shape
                self.model.resize_input_tensor(position, shape, self.index, strict=False)
        self.taken = dict(zip(names["inputs"], self.model.create_input_buffers(self.index)))
        self.given = dict(zip(names["outputs"], self.model.create_output_buffers(self.index)))
        for name, value in prepared.items():
            self.taken[name].write(value)
        taken, given = list(self.taken.values()), list(self.given.values())

        def invoke() -> None:
            self.model.run_by_index(self.index, taken, given)

        self.invoke = invoke
        self.shapes = {name: value.shape for name, value in batch.items()}
        return invoke

    def run(self, batch: Batch) -> Batch:
        """`LoadedModel.run`."""
        if self.shapes == {name: value.shape for name, value in batch.items()}:
            for name, value in batch.items():
                self.taken[name].write(stored(value, self.inputs[name]))
        else:
            self.settle(batch)
        self.invoke()
        return {name: self.read(name) for name in self.outputs}

    def read(self, name: str) -> Any:
        """One output after an invoke."""
        shape = self.given[name].get_tensor_details()["shape"]
        count = int(np.prod(shape, dtype=np.int64))
        raw = self.given[name].read(count, self.outputs[name]["dtype"]).reshape(shape)
        return real(raw, self.outputs[name])


def stored(value: Any, details: dict[str, Any]) -> Any:
    """Samples as the interpreter takes them for an input: quantized, or bytes without END."""
    if value.dtype.kind != "S":
        return quantize(value, details["dtype"], *details["quantization"])
    flat = np.empty(value.size, object)
    flat[:] = [each[:-1] for each in value.ravel().tolist()]
    return flat.reshape(value.shape)


def real(value: Any, details: dict[str, Any]) -> Any:
    """What the interpreter gives for an output: dequantized, or strings of dtype S with END."""
    if np.dtype(details["dtype"]).kind not in "SO":
        return dequantize(value, *details["quantization"])
    array = np.asarray(value, object)
    return np.array([each + END for each in array.ravel().tolist()], "S").reshape(array.shape)


def quantize(value: Any, dtype: Any, scale: float, zero_point: int) -> Any:
    """Numbers in a tensor's dtype, to the bit as LiteRT's QUANTIZE makes them.

    Multiplied by the float32 next to 1 / scale, rounded half to even, clipped to the dtype. A
    value is as it is where it has the dtype already, or the tensor no scale.
    """
    limits = None if value.dtype == dtype or not scale else np.iinfo(dtype)
    if limits is None:
        return np.ascontiguousarray(value)
    with np.errstate(over="ignore"):
        levels = np.rint(np.asarray(value, np.float32) * (np.float32(1) / np.float32(scale)))
    # The sum in float64: a float32 does not hold the limits of every dtype.
    levels = levels.astype(np.float64) + zero_point
    return np.clip(levels, limits.min, limits.max).astype(dtype)


def dequantize(value: Any, scale: float, zero_point: int) -> Any:
    """What a tensor's integers stand for as float32; as they are where it has no scale."""
    if not scale or value.dtype.kind == "f":
        return value
    return ((value.astype(np.float64) - zero_point) * scale).astype(np.float32)


def batches(inputs: Mapping[str, Any], size: int) -> Iterator[Batch]:
    """The samples `size` at a time."""
    count = len(next(iter(inputs.values())))
    for start in range(0, count, size):
        yield {name: value[start : start + size] for name, value in inputs.items()}


def joined(runs: list[Batch]) -> Batch:
    """The outputs of several batches by name, joined along the first axis."""
    parts = {name: [np.atleast_1d(run[name]) for run in runs] for name in runs[0]}
    return {name: np.concatenate(each) if each[1:] else each[0] for name, each in parts.items()}


def timings(invoke: Callable[[], None], request: dict[str, Any]) -> dict[str, Any]:
    """The time of the first invoke, of those after the warm-up, and how long that was."""
    _, first_us = timed(invoke)
    warm_us = warm_up(invoke, request["warmup"] - 1, request["warmup_seconds"])
    samples_us: list[float] = []
    clock = time.perf_counter_ns
    deadline = clock() + request["seconds"] * 1e9
    while len(samples_us) < request["repeats"] and (clock() < deadline or not samples_us):
        started = clock()
        invoke()
        samples_us.append((clock() - started) / 1e3)
    return {"first_us": first_us, "warmup": len(warm_us) + 1, "samples_us": samples_us}


def warm_up(invoke: Callable[[], None], least: int, seconds: float) -> list[float]:
    """Invoke until the times are stable, or for so many seconds; `least` times at least."""
    times_us: list[float] = []
    clock = time.perf_counter
    look_at, started = max(least, 2 * LEAST_WINDOW), clock()
    while len(times_us) < least or clock() < started + seconds:
        times_us.append(timed(invoke)[1])
        if len(times_us) >= look_at:
            if clock() > started + LEAST_WARMUP_S and is_stable(times_us):
                break
            # Medians of ever more times take ever longer.
            look_at = len(times_us) * 5 // 4
    return times_us


def is_stable(times_us: list[float]) -> bool:
    """Whether the last quarter of the times is, by its median, as the quarter before it."""
    size = max(LEAST_WINDOW, len(times_us) // 4)
    before, last = (
        float(np.median(part)) for part in (times_us[-2 * size : -size], times_us[-size:])
    )
    return abs(last - before) < STABLE_WITHIN * min(last, before)


def processor() -> str:
    """What the processor calls itself."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() in ("model name", "Model"):
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def reset_peak_bytes() -> int | None:
    """Start counting peak memory anew where the system can; the peak so far, in bytes."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass
    return peak_bytes()


def peak_bytes() -> int | None:
    """The peak resident set of this process in bytes, None where the system cannot say."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    serve()
