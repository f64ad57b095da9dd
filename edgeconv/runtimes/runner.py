"""Run a .tflite: one file that needs only the standard library, numpy and a runtime.

    python runner.py

It is copied to where a model is to run, so it imports no edgeconv, and works with ai_edge_litert,
tflite_runtime and tensorflow in Python 3.7 and later. It answers requests from stdin on stdout, in
their order, until stdin closes:

    the first line of stdout     GREETING; the reader skips what a login shell prints before it
    a request, and an answer     a line of JSON, in which "arrays" is a list of [name, dtype
                                 as numpy's .str, shape], then the bytes of each array, in C
                                 order, without separators

What a runtime prints goes to stderr. With "shared" in a request, its arrays are in memory and not
in the stream: "file" is the number of an inherited open file of "bytes", "at" has the offset of
each array. "files" has the paths of .npy files of more inputs, which are mapped.

Every request has "do", and "runtime": the package "ai_edge_litert", "tflite_runtime", "tensorflow"
or "tflite_micro", which needs micro_interpreter.py in the same directory; an answer has "runtime",
its "version", and "error" where it failed. "gpu", the drivers of gpu_delegate.py in the same
directory, runs models in LiteRT's GPU delegate; the answer to a load has its facts as "gpu".

facts    what the machine is: machine, cpu, cores, system, python, numpy
load     load the model for "run": path "model", with "threads", "signature" (null takes the
         only one, and in a model without any the tensors' own names), "batch", the samples of
         one invoke, and "accelerator": "interpreter", or "compiled", LiteRT's CompiledModel.
         The answer has load_us
run      run the inputs, (n, *sample) by name; the arrays of the answer are the outputs,
         (n, *shape) by name. "states" has the output that is fed back to an input with the next
         batch, by input: of the samples only the first is taken there. "others" is how many more
         times the model is loaded, to run a share of the samples each at the same time
time     load the model, as load does, and time it on the arrays, the samples of one invoke.
         warmup: the least number of invokes before timing; warmup_seconds: the longest warm-up,
         which ends when the times are stable; repeats, seconds: the most timed invokes and
         seconds; every_seconds: the time from the beginning of a timed invoke to that of the
         next, at least, with sleep in between; 0 for none. The answer has load_us, first_us,
         warmup (the number of warm-up invokes), samples_us (raw, one per timed invoke),
         starts_us (when each began, from the first one on) and memory_bytes, the growth of the peak
         resident set from just before the model was loaded (null where it is unknown), and
         arena_bytes, what the model took of its arena (null where the runtime does not tell)

Float samples are quantized for an integer input and integer outputs dequantized, by the model's
own scale and zero point, outside of the timed part. Strings are in arrays of dtype S, each with the
byte END appended, so that its trailing zeros are kept; edgeconv/data/arrays.py does the same.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import os
import platform
import runpy
import sys
import time
import types
from typing import IO, Any, Callable, Dict, Iterator, Mapping, Tuple

import numpy as np

Batch = Dict[str, Any]
Answer = Tuple[Dict[str, Any], Batch]
GREETING = b"edgeconv runner 1\n"
# Times count as stable once the medians of two consecutive windows differ by less.
STABLE_WITHIN = 0.02
LEAST_WINDOW = 5
# An idle processor takes some time to reach its frequency.
LEAST_WARMUP_S = 0.1
END = b"\x01"
# What a missing runtime raises, and the interpreters for a model that they cannot load or run.
FAILURES = (
    ImportError, RuntimeError, ValueError, TypeError, AttributeError, OSError, MemoryError
)  # fmt: skip


def serve(handler: Any = None) -> None:
    """Answer the requests of stdin on stdout, until it closes, by a `RequestHandler`."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # A runtime must neither read from the conversation nor print into it.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sink.write(GREETING)
    sink.flush()
    handler = handler or RequestHandler()
    for line in iter(source.readline, b""):
        request = json.loads(line.decode("utf-8"))
        arrays = handler.shared(request) if "shared" in request else read_arrays(source, request)
        for part in message_parts(*handler.answer(request, arrays)):
            sink.write(part)
        sink.flush()


def read_arrays(source: IO[bytes], request: dict[str, Any]) -> Batch:
    """The arrays by name that follow a request in the stream."""
    arrays = {}
    for name, dtype, shape in request.get("arrays", ()):
        kind = np.dtype(dtype)
        data = source.read(kind.itemsize * element_count(shape))
        arrays[name] = np.frombuffer(data, kind).reshape(shape)
    return arrays


def element_count(shape: Any) -> int:
    """How many elements an array of this shape has."""
    return int(np.prod(shape, dtype=np.int64))


def message_parts(message: dict[str, Any], arrays: Batch) -> Iterator[Any]:
    """The bytes of a request or an answer: its line, and then each of its arrays."""
    # Not by `np.ascontiguousarray` alone, which gives an array without dimensions one.
    packed = {name: np.ascontiguousarray(a).reshape(np.shape(a)) for name, a in arrays.items()}
    listed = [[name, array.dtype.str, list(array.shape)] for name, array in packed.items()]
    yield json.dumps(dict(message, arrays=listed)).encode("utf-8") + b"\n"
    for array in packed.values():
        yield array.reshape(-1).view(np.uint8).data


class RequestHandler:
    """Answers requests, one after another; a model stays loaded between them."""

    def __init__(self) -> None:
        self.model: Any = None
        self.load: Any = None
        self.batch = 1
        self.memory: Any = None

    def answer(self, request: dict[str, Any], arrays: Batch) -> Answer:
        """The answer to a request, and its arrays by name."""
        answer: dict[str, Any] = {"runtime": request["runtime"], "version": ""}
        do = getattr(self, "do_" + request["do"])
        try:
            package, answer["version"] = import_runtime(request["runtime"])
            facts, outputs = do(package, request, arrays)
        except FAILURES as error:
            return dict(answer, error="%s: %s" % (type(error).__name__, error)), {}
        return dict(answer, **facts), outputs

    def shared(self, request: dict[str, Any]) -> Batch:
        """The arrays of a request that are in shared memory."""
        shared = request["shared"]
        if self.memory is None or len(self.memory) != shared["bytes"]:
            self.memory = mmap.mmap(shared["file"], shared["bytes"])
        arrays = {}
        for (name, dtype, shape), offset in zip(request["arrays"], shared["at"]):
            flat = np.frombuffer(self.memory, dtype, element_count(shape), offset)
            arrays[name] = flat.reshape(shape)
        return arrays

    def do_facts(self, *_: Any) -> Answer:
        """What the machine is."""
        return {
            "machine": platform.machine(),
            "cpu": processor(),
            "cores": os.cpu_count() or 1,
            "system": "%s %s" % (platform.system(), platform.release()),
            "python": platform.python_version(),
            "numpy": np.__version__,
        }, {}

    def do_time(self, package: Any, request: dict[str, Any], arrays: Batch) -> Answer:
        """Time one invoke of the arrays."""
        load = model_loader(package, request)
        before_bytes = reset_peak_bytes()
        model, load_us = time_call(load)
        times = timings(model.settle(arrays), request)
        after_bytes = peak_bytes()
        memory = None
        if before_bytes is not None and after_bytes is not None:
            memory = max(0, after_bytes - before_bytes)
        arena = getattr(getattr(model, "interpreter", None), "arena_bytes", None)
        times.update(load_us=load_us, memory_bytes=memory, arena_bytes=arena)
        return dict(times, gpu=getattr(model, "gpu", None)), {}

    def do_load(self, package: Any, request: dict[str, Any], arrays: Batch) -> Answer:  # noqa: ARG002
        """Load a model, to stay."""
        self.batch = request["batch"]
        self.load = model_loader(package, request)
        self.model, load_us = time_call(self.load)
        return {"load_us": load_us, "gpu": getattr(self.model, "gpu", None)}, {}

    def do_run(self, _: Any, request: dict[str, Any], arrays: Batch) -> Answer:
        """Run all samples in the loaded model."""
        for name, file in request.get("files", {}).items():
            arrays[name] = np.load(file, mmap_mode="r")
        run = feeding_back(self.model.run, request.get("states", {}))
        others = [self.load().run for _ in range(request.get("others", 0))]
        return {}, run_batches(run, arrays, self.batch, *others)


def time_call(function: Callable[[], Any]) -> tuple[Any, float]:
    """What the function returns, and how long it took, in microseconds."""
    started = time.perf_counter_ns()
    result = function()
    return result, (time.perf_counter_ns() - started) / 1e3


@functools.lru_cache(maxsize=None)
def import_runtime(name: str) -> tuple[Any, str]:
    """The module with `Interpreter`, and its version, which takes a while to find."""
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
    if name == "tflite_micro":
        from importlib.metadata import version

        interpreter = in_this_directory("micro_interpreter.py")["MicroInterpreter"]
        return types.SimpleNamespace(Interpreter=interpreter), version("tflite-micro")
    raise SystemExit("unknown runtime " + repr(name))


def in_this_directory(name: str) -> dict[str, Any]:
    """The names of another file next to this one."""
    return runpy.run_path(os.path.join(os.path.dirname(__file__), name))


def model_loader(package: Any, request: dict[str, Any]) -> Callable[[], Any]:
    """What loads the model of a request."""
    path, threads, signature = request["model"], request["threads"], request["signature"]

    def load() -> LoadedModel:
        return LoadedModel(package.Interpreter(model_path=path, num_threads=threads), signature)

    if request["accelerator"] == "interpreter":
        return load
    # CompiledModel does not tell the scales.
    details = load()
    both = details.inputs, details.outputs
    return lambda: Compiled(path, signature, threads, *both, gpu=request.get("gpu"))


class LoadedModel:
    """A signature of a loaded model; arrays go in and come out by name.

    `inputs` and `outputs` are the interpreter's details of each, the outputs sorted.
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

    def invoke(self, batch: Batch) -> Batch:
        """The outputs in their own dtypes. A state that the model keeps is kept."""
        if self.runner is None:
            self.settle(batch)()
            return {
                name: self.interpreter.get_tensor(details["index"])
                for name, details in self.outputs.items()
            }
        raw: Batch = self.runner(**to_tensors(batch, self.inputs))
        return raw

    def run(self, batch: Batch) -> Batch:
        """The outputs, as float32 where they are quantized.

        Fused recurrent operators keep their state after an invoke. Without the reset the answer
        to one sample would depend on the samples before it.
        """
        raw = self.invoke(batch)
        # Afterwards: before its first run a model has not allocated them yet.
        self.interpreter.reset_all_variables()
        return {name: from_tensor(raw[name], details) for name, details in self.outputs.items()}

    def settle(self, batch: Batch) -> Callable[[], None]:
        """Give the inputs the shape of `batch`, set them, and return the bare invoke."""
        tensors, graph = to_tensors(batch, self.inputs), getattr(self.runner, "_subgraph_index", 0)
        resize, allocate, put, invoke = self.inner_methods(graph) if graph else self.methods()
        for name, value in tensors.items():
            resize(self.inputs[name]["index"], value.shape)
        allocate()
        for name, value in tensors.items():
            put(self.inputs[name]["index"], value)
        return invoke

    def methods(self) -> tuple[Callable[..., Any], ...]:
        """What resizes an input, allocates, sets an input, and invokes the model's first graph.

        An interpreter refuses to be invoked itself while one of its signatures is in use.
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
    """A model in LiteRT's CompiledModel on the processor, or the GPU; see `LoadedModel`."""

    def __init__(
        self,
        path: str,
        signature: str | None,
        threads: int,
        inputs: Batch,
        outputs: Batch,
        gpu: dict[str, Any] | None = None,
    ) -> None:
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.hardware_accelerator import HardwareAccelerator
        from ai_edge_litert.options import CpuOptions, Options

        for name, details in list(inputs.items()) + list(outputs.items()):
            if np.dtype(details["dtype"]).kind in "SO":
                raise ValueError("CompiledModel takes no strings, and %r holds strings" % name)
        cpu = CpuOptions(num_threads=threads)
        self.gpu = None
        if gpu is not None:
            self.model, self.gpu = in_this_directory("gpu_delegate.py")["compiled"](path, gpu, cpu)
        else:
            options = Options(hardware_accelerators=HardwareAccelerator.CPU, cpu_options=cpu)
            self.model = CompiledModel.from_file(path, options=options)
        self.inputs, self.outputs = inputs, outputs
        self.index = self.model.get_signature_index(signature) if signature else 0
        self.shapes: dict[str, tuple[int, ...]] = {}

    def settle(self, batch: Batch) -> Callable[[], None]:
        """`LoadedModel.settle`, after which other samples of the same shape may be set as well."""
        names = self.model.get_signature_by_index(self.index)
        tensors = to_tensors(batch, self.inputs)
        for position, name in enumerate(names["inputs"]):
            shape = tensors[name].shape
            if shape != tuple(self.inputs[name]["shape"]):
                self.model.resize_input_tensor(position, shape, self.index, strict=False)
        buffers_in = self.model.create_input_buffers(self.index)
        buffers_out = self.model.create_output_buffers(self.index)
        self.buffers_in = dict(zip(names["inputs"], buffers_in))
        self.buffers_out = dict(zip(names["outputs"], buffers_out))
        for name, value in tensors.items():
            self.buffers_in[name].write(value)
        self.invoke = functools.partial(
            self.model.run_by_index, self.index, buffers_in, buffers_out
        )
        self.shapes = {name: value.shape for name, value in batch.items()}
        return self.invoke

    def run(self, batch: Batch) -> Batch:
        """`LoadedModel.run`."""
        if self.shapes == {name: value.shape for name, value in batch.items()}:
            for name, value in to_tensors(batch, self.inputs).items():
                self.buffers_in[name].write(value)
        else:
            self.settle(batch)
        self.invoke()
        return {name: self.read(name) for name in self.outputs}

    def read(self, name: str) -> Any:
        """One output after an invoke."""
        buffer, details = self.buffers_out[name], self.outputs[name]
        shape = buffer.get_tensor_details()["shape"]
        raw = buffer.read(element_count(shape), details["dtype"])
        return from_tensor(raw.reshape(shape), details)


def to_tensors(batch: Batch, inputs: Batch) -> Batch:
    """Samples by input as `to_tensor` makes them. Raises `ValueError` for an unknown input."""
    for name in batch:
        if name not in inputs:
            raise ValueError("the model has no input %r; it has %s" % (name, sorted(inputs)))
    return {
        name: to_tensor(unstacked(value, inputs[name]), inputs[name])
        for name, value in batch.items()
    }


def unstacked(value: Any, details: dict[str, Any]) -> Any:
    """One sample (1, *shape) without its first axis, for an input that has no batch dimension."""
    is_stacked = value.shape[:1] == (1,) and value.ndim == len(details["shape"]) + 1
    return value[0] if is_stacked else value


def to_tensor(value: Any, details: dict[str, Any]) -> Any:
    """Samples as the interpreter takes them for an input: quantized, or bytes without END."""
    if value.dtype.kind != "S":
        return quantize(value, details["dtype"], *details["quantization"])
    flat = np.empty(value.size, object)
    flat[:] = [each[:-1] for each in value.ravel().tolist()]
    return flat.reshape(value.shape)


def from_tensor(value: Any, details: dict[str, Any]) -> Any:
    """What the interpreter gives for an output: dequantized, or strings of dtype S with END."""
    if np.dtype(details["dtype"]).kind not in "SO":
        return dequantize(value, *details["quantization"])
    array = np.asarray(value, object)
    return np.array([each + END for each in array.ravel().tolist()], "S").reshape(array.shape)


def quantize(value: Any, dtype: Any, scale: float, zero_point: int) -> Any:
    """Numbers of any shape in a tensor's dtype, to the bit as LiteRT's QUANTIZE makes them.

    Multiplied by the float32 next to 1 / scale, rounded half to even, clipped to the dtype. A
    value stays as it is where it has the dtype already, or the tensor has no scale.
    """
    if value.dtype == dtype or not scale:
        return np.ascontiguousarray(value)
    limits = np.iinfo(dtype)
    with np.errstate(over="ignore"):
        levels = np.rint(np.asarray(value, np.float32) * (np.float32(1) / np.float32(scale)))
    # The sum in float64: a float32 does not hold the limits of every dtype.
    levels = levels.astype(np.float64) + zero_point
    return np.clip(levels, limits.min, limits.max).astype(dtype)


def dequantize(value: Any, scale: float, zero_point: int) -> Any:
    """The real numbers of a tensor's integers, float32; unchanged where it has no scale."""
    if not scale or value.dtype.kind == "f":
        return value
    return ((value.astype(np.float64) - zero_point) * scale).astype(np.float32)


def batches(inputs: Mapping[str, Any], size: int) -> Iterator[Batch]:
    """The samples `size` at a time: arrays (size, *sample) by input."""
    count = len(next(iter(inputs.values())))
    for start in range(0, count, size):
        yield {name: value[start : start + size] for name, value in inputs.items()}


def feeding_back(
    run: Callable[[Batch], Batch], states: Mapping[str, str]
) -> Callable[[Batch], Batch]:
    """`run` with its own outputs as inputs from the second batch on: `states` has them by input."""
    kept: Batch = {}

    def run_next(batch: Batch) -> Batch:
        outputs = run(dict(batch, **kept))
        kept.update({name: outputs[output] for name, output in states.items()})
        return outputs

    return run_next if states else run


def run_batches(
    run: Callable[[Batch], Batch],
    inputs: Mapping[str, Any],
    size: int,
    *others: Callable[[Batch], Batch],
) -> Batch:
    """What `run` gives for the samples `size` at a time: outputs (n, *shape) by name.

    With `others` that do the same, each has its share of the samples, in a thread of its own.
    """
    fed = list(batches(inputs, size))
    sizes = [len(next(iter(batch.values()))) for batch in fed]
    if not others:
        return join_batches([run(batch) for batch in fed], sizes)
    from concurrent.futures import ThreadPoolExecutor

    runs = (run, *others)
    share = -(-len(fed) // len(runs))

    def start(number: int) -> Any:
        part = fed[number * share : (number + 1) * share]
        return pool.submit(lambda: [runs[number](batch) for batch in part])

    with ThreadPoolExecutor(len(runs)) as pool:
        shares = [start(number) for number in range(len(runs))]
        return join_batches([answer for each in shares for answer in each.result()], sizes)


def join_batches(runs: list[Batch], sizes: list[int]) -> Batch:
    """The outputs of several batches by name, (n, *shape): `sizes` has the samples of each."""
    return {name: join_samples([run[name] for run in runs], sizes) for name in runs[0]}


def join_samples(parts: list[Any], sizes: list[int]) -> Any:
    """One output of several batches as an array (n, *shape) with a row for each sample.

    An output whose first dimension does not count the samples, such as a constant or a mean over
    the batch, belongs to each sample of its batch. Where the sizes of the parts depend on the
    data, the shorter ones are filled up with zeros.
    """
    arrays = [np.asarray(part) for part in parts]
    if not all(array.shape[:1] == (size,) for array, size in zip(arrays, sizes)):
        arrays = [
            np.broadcast_to(array, (size, *array.shape)) for array, size in zip(arrays, sizes)
        ]
    if not arrays[1:]:
        return np.ascontiguousarray(arrays[0])
    if any(array.shape[1:] != arrays[0].shape[1:] for array in arrays):
        most = np.max([array.shape[1:] for array in arrays], axis=0).tolist()
        arrays = [
            np.pad(array, [(0, 0)] + [(0, to - n) for n, to in zip(array.shape[1:], most)])
            for array in arrays
        ]
    return np.concatenate(arrays)


def timings(invoke: Callable[[], None], request: dict[str, Any]) -> dict[str, Any]:
    """The microseconds of the first invoke and of those after the warm-up, and its invokes."""
    _, first_us = time_call(invoke)
    warm_us = warm_up(invoke, request["warmup"] - 1, request["warmup_seconds"])
    samples_us: list[float] = []
    starts_ns: list[int] = []
    clock, every_ns = time.perf_counter_ns, int(request["every_seconds"] * 1e9)
    begun = clock()
    deadline = begun + request["seconds"] * 1e9
    while len(samples_us) < request["repeats"] and (clock() < deadline or not samples_us):
        # The first one is a period after the warm-up, so that it is no warmer than the others.
        sleep_until((starts_ns[-1] if starts_ns else begun) + every_ns)
        starts_ns.append(clock())
        samples_us.append(time_call(invoke)[1])
    return {
        "first_us": first_us,
        "warmup": len(warm_us) + 1,
        "samples_us": samples_us,
        "starts_us": [(each - starts_ns[0]) / 1e3 for each in starts_ns],
    }


def sleep_until(due_ns: int) -> None:
    """Sleep until `time.perf_counter_ns` is `due_ns`; not at all where it is already."""
    left_ns = due_ns - time.perf_counter_ns()
    while left_ns > 0:
        time.sleep(left_ns / 1e9)
        left_ns = due_ns - time.perf_counter_ns()


def warm_up(invoke: Callable[[], None], least: int, seconds: float) -> list[float]:
    """Invoke until the times are stable or `seconds` are over; `least` times at least."""
    times_us: list[float] = []
    clock = time.perf_counter
    look_at, started = max(least, 2 * LEAST_WINDOW), clock()
    while len(times_us) < least or clock() < started + seconds:
        times_us.append(time_call(invoke)[1])
        if len(times_us) >= look_at:
            if clock() > started + LEAST_WARMUP_S and is_stable(times_us):
                break
            # Medians of ever more times take ever longer.
            look_at = len(times_us) * 5 // 4
    return times_us


def is_stable(times_us: list[float]) -> bool:
    """Whether the median of the last quarter of the times is near that of the quarter before."""
    size = max(LEAST_WINDOW, len(times_us) // 4)
    before, last = float(np.median(times_us[-2 * size : -size])), float(np.median(times_us[-size:]))
    return abs(last - before) < STABLE_WITHIN * min(last, before)


def processor() -> str:
    """The processor's name."""
    path = "/proc/cpuinfo"
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                return value.strip()
    return platform.processor() or "unknown"


def reset_peak_bytes() -> int | None:
    """Restart the count of peak memory where the system can; the peak so far, in bytes."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak_bytes()


def peak_bytes() -> int | None:
    """The peak resident set of this process in bytes, None where the system cannot say."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    serve()
