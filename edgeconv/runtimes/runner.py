"""Run a .tflite on samples, and time it. One file: the standard library, numpy, a runtime.

    python runner.py JOB.json

It is copied to wherever a model is to run, so it imports nothing of edgeconv and
works with ai_edge_litert, tflite_runtime or tensorflow, whichever is asked for.

The job is a JSON object:
  model      path of the .tflite
  runtime    "ai_edge_litert", "tflite_runtime" or "tensorflow": the package to use
  signature  the signature to run; null takes the only one, and in a model without any
             the tensors' own names
  inputs     {input name: path of a .npy of shape (n, *sample)}
  batch      how many samples make one invoke (the model's leading dimension)
  outputs    directory to write each output to, as 0.npy, 1.npy …; null: do not
  threads    how many threads the interpreter may use
  warmup     invokes before timing, first one included; 0: no timing
  repeats    timed invokes at most
  seconds    timed seconds at most
  answer     path to write the answer to

Float samples are quantised for an integer input and integer outputs dequantised, by
the model's own scale and zero point, outside of the timed part.

The answer is a JSON object: runtime, version, and either error, or output_names,
load_us, first_us and samples_us (raw, one per timed invoke; absent if not timed), and
model_memory_bytes, the growth of the peak resident set from just before the model was
loaded (absent where the system cannot say).
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Callable, Dict, Iterator

import numpy as np

Batch = Dict[str, Any]


def main(path: str) -> None:
    """Do the job in the file `path`."""
    with open(path, encoding="utf-8") as file:
        job = json.load(file)
    answer: dict[str, Any] = {"runtime": job["runtime"], "version": ""}
    try:
        package, answer["version"] = import_runtime(job["runtime"])
        answer.update(run(package, job))
    except (ImportError, RuntimeError, ValueError, KeyError, TypeError) as error:
        # What a runtime that is not there raises, and the interpreters for a model that
        # they cannot load, prepare or run.
        answer["error"] = "%s: %s" % (type(error).__name__, error)
    with open(job["answer"], "w", encoding="utf-8") as file:
        json.dump(answer, file)


def run(package: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Load and run the model as the job says; the answer without the runtime's name."""
    inputs = {name: np.load(file, mmap_mode="r") for name, file in job["inputs"].items()}
    before_bytes = reset_peak_bytes()
    started = time.perf_counter_ns()
    model = Model(package, job["model"], job["signature"], job["threads"])
    answer: dict[str, Any] = {"load_us": (time.perf_counter_ns() - started) / 1e3}
    answer["output_names"] = model.output_names
    if job["outputs"] is not None:
        write_outputs(model, inputs, job["batch"], job["outputs"])
    if job["warmup"]:
        answer["first_us"], answer["samples_us"] = timings(model, inputs, job)
    after_bytes = peak_bytes()
    if before_bytes is not None and after_bytes is not None:
        answer["model_memory_bytes"] = max(0, after_bytes - before_bytes)
    return answer


def import_runtime(name: str) -> tuple[Any, str]:
    """The module with `Interpreter`, and its version."""
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


class Model:
    """A loaded model: `run` takes and gives arrays by name, as float where it is quantised."""

    def __init__(self, package: Any, path: str, signature: str | None, threads: int) -> None:
        self.interpreter = package.Interpreter(model_path=path, num_threads=threads)
        if self.interpreter.get_signature_list():
            self.runner = self.interpreter.get_signature_runner(signature)
        else:
            self.runner = Unsigned(self.interpreter)
        self.inputs = self.runner.get_input_details()
        self.outputs = self.runner.get_output_details()
        self.output_names = sorted(self.outputs)

    def prepare(self, batch: Batch) -> Batch:
        """The samples in the dtypes of the model's inputs."""
        return {name: quantize(value, self.inputs[name]) for name, value in batch.items()}

    def run(self, batch: Batch) -> list[Any]:
        """The outputs in the order of `output_names`.

        Fused recurrent operators keep their state after an invoke, which would make the
        answer to one sample depend on the samples before it.
        """
        raw = self.runner(**self.prepare(batch))
        self.interpreter.reset_all_variables()
        return [dequantize(raw[name], self.outputs[name]) for name in self.output_names]

    def settle(self, batch: Batch) -> Callable[[], None]:
        """Give the inputs the shape of `batch`, set them, and return the bare invoke.

        The model cannot be `run` any more: an interpreter whose signature is in use
        refuses to be invoked by itself.
        """
        if getattr(self.runner, "_subgraph_index", 0):
            return self.settle_subgraph(batch)
        del self.runner
        for name, value in self.prepare(batch).items():
            index = self.inputs[name]["index"]
            self.interpreter.resize_tensor_input(index, value.shape, strict=False)
        self.interpreter.allocate_tensors()
        for name, value in self.prepare(batch).items():
            self.interpreter.set_tensor(self.inputs[name]["index"], value)
        invoke: Callable[[], None] = self.interpreter.invoke
        return invoke

    def settle_subgraph(self, batch: Batch) -> Callable[[], None]:
        """`settle` for a signature whose graph is not the model's first.

        The interpreter's own methods reach only the first; those that the runner of a
        signature uses take the graph as an argument.
        """
        wrapper, graph = self.runner._interpreter_wrapper, self.runner._subgraph_index
        for name, value in self.prepare(batch).items():
            shape = np.array(value.shape, dtype=np.int32)
            wrapper.ResizeInputTensor(self.inputs[name]["index"], shape, False, graph)
        wrapper.AllocateTensors(graph)
        for name, value in self.prepare(batch).items():
            wrapper.SetTensor(self.inputs[name]["index"], value, graph)

        def invoke() -> None:
            wrapper.Invoke(graph)

        return invoke


class Unsigned:
    """What a signature's runner is, for a model without signatures."""

    def __init__(self, interpreter: Any) -> None:
        self.interpreter = interpreter

    def get_input_details(self) -> dict[str, Any]:
        """The inputs by tensor name."""
        return {details["name"]: details for details in self.interpreter.get_input_details()}

    def get_output_details(self) -> dict[str, Any]:
        """The outputs by tensor name."""
        return {details["name"]: details for details in self.interpreter.get_output_details()}

    def __call__(self, **batch: Any) -> Batch:
        """The outputs by name."""
        inputs = self.get_input_details()
        for name, value in batch.items():
            self.interpreter.resize_tensor_input(inputs[name]["index"], value.shape, strict=False)
        self.interpreter.allocate_tensors()
        for name, value in batch.items():
            self.interpreter.set_tensor(inputs[name]["index"], value)
        self.interpreter.invoke()
        outputs = self.get_output_details()
        return {name: self.interpreter.get_tensor(outputs[name]["index"]) for name in outputs}


def quantize(value: Any, details: dict[str, Any]) -> Any:
    """`value` in the tensor's dtype: rounded half to even and clipped to its range."""
    dtype = np.dtype(details["dtype"])
    scale, zero_point = details["quantization"]
    if value.dtype == dtype or not scale:
        return np.ascontiguousarray(value)
    limits = np.iinfo(dtype)
    levels = np.rint(np.asarray(value, np.float64) / scale) + zero_point
    return np.clip(levels, limits.min, limits.max).astype(dtype)


def dequantize(value: Any, details: dict[str, Any]) -> Any:
    """`value` as float32 where the tensor is quantised, else as it is."""
    scale, zero_point = details["quantization"]
    if not scale or value.dtype.kind == "f":
        return value
    return ((value.astype(np.float64) - zero_point) * scale).astype(np.float32)


def batches(inputs: Batch, size: int) -> Iterator[Batch]:
    """The samples `size` at a time."""
    count = len(next(iter(inputs.values())))
    for start in range(0, count, size):
        yield {name: value[start : start + size] for name, value in inputs.items()}


def timings(model: Model, inputs: Batch, job: dict[str, Any]) -> tuple[float, list[float]]:
    """The first invoke's time, and those of the timed ones after the warm-up, in microseconds."""
    invoke = model.settle(next(batches(inputs, job["batch"])))
    clock = time.perf_counter_ns
    started = clock()
    invoke()
    first_us = (clock() - started) / 1e3
    for _ in range(job["warmup"] - 1):
        invoke()
    samples_us: list[float] = []
    deadline = clock() + job["seconds"] * 1e9
    while len(samples_us) < job["repeats"] and (clock() < deadline or not samples_us):
        started = clock()
        invoke()
        samples_us.append((clock() - started) / 1e3)
    return first_us, samples_us


def write_outputs(model: Model, inputs: Batch, size: int, directory: str) -> None:
    """Run all samples; each output becomes one array, batches joined along the first axis."""
    runs = [model.run(batch) for batch in batches(inputs, size)]
    for index in range(len(model.output_names)):
        parts = [np.atleast_1d(run[index]) for run in runs]
        np.save(os.path.join(directory, "%d.npy" % index), np.concatenate(parts))


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
    main(sys.argv[1])
