"""Where the time of an invoke goes, by operator."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeconv.data import Samples, read_samples, write_samples
from edgeconv.data.arrays import as_tensorflow_takes
from edgeconv.model.tflite.cut import with_fixed_shapes
from edgeconv.model.tflite.flatbuffer import operator_name, parse, text
from edgeconv.model.tflite.layer_names import short_names
from edgeconv.runtimes.c_api import Event, ProfiledModel
from edgeconv.runtimes.interface import Arrays, Model
from edgeconv.runtimes.tensors import raw, signature_of
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.types import Allowance, OperatorTime, Profile
from edgeconv.types.errors import ToolFailed

# The most runs and seconds; half of the runs are not profiled, and give the total.
_RUNS = 100
_SECONDS = 2.0
_WARMUP = 10
_XNNPACK = "XNNPACK"


class ProfileJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the child profiles: the model's file, in a directory with the samples of one invoke."""

    model: str
    threads: int


def profile_model(
    model: Model, inputs: Arrays, *, threads: int, scratch: Path, allowance: Allowance
) -> Profile:
    """The time of each operator of `model` on its first batch of `inputs`, in a child process.

    It is LiteRT's profiler, through its C interface. An operator's time is the mean over the middle
    half of the runs. The profiler cuts off fractions of microseconds: the residual has them. What
    XNNPACK adds to an operator (a reshape before a matrix product) is in that operator's time; an
    operator that it has fused into another is not in the list.

    Raises `InputRefused` where `inputs` (n, *shape) do not fit, and `ToolFailed` where the model
    does not run, or cannot be profiled: with state between invokes, or control flow.
    """
    job = _prepared(model, inputs, threads, scratch)
    label = f"profiling {model.file.name}"
    access = Access(reads=(Path(job.model).parent,))
    with start_task(
        by_runtime, job, label=label, scratch=scratch, access=access, allowance=allowance
    ) as task:
        return task.result()


def by_runtime(job: ProfileJob) -> Profile:
    """Use the runtime's profiler, in a child. Raises `ToolFailed` where it has no answer."""
    from edgeconv.runtimes.c_api import ProfiledModel

    path = Path(job.model)
    data = path.read_bytes()
    graph = _graph(data)
    graphs = parse(data, where="the model").subgraphs
    if len(graphs) > 1:
        # The events of an inner graph do not name it.
        raise ToolFailed("it has control flow, which the profiler does not tell apart")
    if any(tensor.isVariable for tensor in graphs[0].tensors):
        raise ToolFailed("it keeps a state between invokes, which LiteRT's profiler does not load")
    inputs = as_tensorflow_takes(read_samples(path.parent).arrays)
    model = ProfiledModel(path, inputs, job.threads)
    for _ in range(_WARMUP):
        model.run()
    totals, profiled = _alternating(model)
    indices = operators_of(profiled[0], graph)
    if all(index is None for index in indices):
        raise ToolFailed("none of the profiler's events belongs to an operator of the graph")
    elapsed = middle_mean(
        np.array([[event.elapsed_us for event in events] for events in profiled], np.float64)
    )
    return Profile(
        total_us=float(np.median(totals)),
        operators=_times(profiled[0], _filled_in(indices), elapsed, graph),
    )


def middle_mean(runs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each column of (n, columns) over the middle half of the rows by their sums.

    A slow phase of the machine slows all operators of a run. Chosen one by one, they would not add
    up to the time of any run.
    """
    count = len(runs)
    order = np.argsort(runs.sum(axis=1), kind="stable")
    middle: NDArray[np.float64] = runs[order[count // 4 : count - count // 4]].mean(axis=0)
    return middle


def _alternating(model: ProfiledModel) -> tuple[list[float], list[list[Event]]]:
    """Microseconds of runs that are not profiled, and the events of those that are."""
    totals: list[float] = []
    profiled: list[list[Event]] = []
    deadline = time.monotonic() + _SECONDS
    while len(totals) < _RUNS and (time.monotonic() < deadline or not totals):
        started = time.perf_counter_ns()
        model.run()
        totals.append((time.perf_counter_ns() - started) / 1e3)
        profiled.append(model.profiled_run())
    length = len(profiled[0])
    if not length or any(len(events) != length for events in profiled):
        raise ToolFailed("the profiler's events differ from run to run")
    return totals, profiled


def _filled_in(indices: Sequence[int | None]) -> list[int]:
    """The indices without None: an event of no operator belongs to the next, or the last, one."""
    filled: list[int] = []
    following = next(index for index in reversed(indices) if index is not None)
    for index in reversed(indices):
        following = following if index is None else index
        filled.append(following)
    return filled[::-1]


def _times(
    events: Sequence[Event],
    indices: Sequence[int],
    elapsed: NDArray[np.float64],
    graph: Sequence[Operator],
) -> tuple[OperatorTime, ...]:
    sums: dict[int, float] = {}
    native = {index for index, event in zip(indices, events, strict=True) if not event.delegated}
    for index, each in zip(indices, elapsed, strict=True):
        sums[index] = sums.get(index, 0.0) + float(each)
    return tuple(
        _time(graph[index], is_native=index in native, mean_us=total)
        for index, total in sorted(sums.items())
    )


def _time(operator: Operator, *, is_native: bool, mean_us: float) -> OperatorTime:
    return OperatorTime(
        index=operator.number,
        operator=operator.name,
        layer=operator.layer,
        tensor=operator.tensor,
        delegate="" if is_native else _XNNPACK,
        mean_us=mean_us,
    )


def _prepared(model: Model, inputs: Arrays, threads: int, scratch: Path) -> ProfileJob:
    """The model in a new directory, in the shapes of its first batch, with that batch."""
    specs = signature_of(model).inputs
    batch = raw({name: value[: model.batch] for name, value in inputs.items()}, specs)
    shapes = {name: value.shape for name, value in batch.items()}
    data = with_fixed_shapes(model.file.read_bytes(), model.signature, shapes)
    directory = Path(tempfile.mkdtemp(prefix="profile-", dir=scratch))
    (directory / "model.tflite").write_bytes(data)
    write_samples(Samples(batch, None, "the samples"), directory)
    return ProfileJob(model=str(directory / "model.tflite"), threads=threads)


def _graph(data: bytes) -> list[Operator]:
    """The operators of the model's only signature, in the order of execution."""
    model = parse(data, where="the model")
    graph = model.subgraphs[model.signatureDefs[0].subgraphIndex]
    short = short_names(model)
    tensors = [
        text(graph.tensors[operator.outputs[0]].name) if operator.outputs else ""
        for operator in graph.operators
    ]
    return [
        Operator(number, operator_name(model, operator), short.get(tensor, tensor), tensor)
        for number, (operator, tensor) in enumerate(zip(graph.operators, tensors, strict=True))
    ]


# XNNPACK's names of operators, by the operators of the graph that they compute, usual one first.
_XNNPACK_WORDS = {
    "AVERAGE_POOL_2D": ("average pooling",),
    "BATCH_MATMUL": ("batch matrix", "fully connected"),
    "CAST": ("convert",),
    "CONCATENATION": ("concatenate", "copy"),
    "CONV_2D": ("convolution", "fully connected", "gemm"),
    "DEPTHWISE_CONV_2D": ("dwconv", "convolution"),
    "DEPTH_TO_SPACE": ("depth to space", "transpose"),
    "DEQUANTIZE": ("convert",),
    "EXPAND_DIMS": ("reshape", "copy"),
    "FULLY_CONNECTED": ("fully connected",),
    "HARD_SWISH": ("hardswish", "hard swish", "unary"),
    "LOGISTIC": ("sigmoid", "unary"),
    "MAX_POOL_2D": ("max pooling",),
    "MEAN": ("mean", "average", "reduce"),
    "MUL": ("multiply",),
    "PAD": ("pad",),
    "QUANTIZE": ("convert",),
    "RELU": ("clamp", "unary"),
    "RELU6": ("clamp", "unary"),
    "RESHAPE": ("reshape", "copy"),
    "RESIZE_BILINEAR": ("resize bilinear",),
    "SPLIT": ("split", "slice"),
    "SQUARED_DIFFERENCE": ("squared difference",),
    "SQUEEZE": ("reshape", "copy"),
    "STRIDED_SLICE": ("slice",),
    "SUB": ("subtract",),
    "SUM": ("sum", "reduce"),
    "TRANSPOSE_CONV": ("deconvolution",),
}
_SURE = 4


class Operator(NamedTuple):
    """An operator of a graph: its number, and the names of it, its layer and its first output."""

    number: int
    name: str
    layer: str
    tensor: str = ""


def operators_of(events: Sequence[Event], graph: Sequence[Operator]) -> tuple[int | None, ...]:
    """For each event the place in `graph` of the operator that it is of; None where in doubt.

    An operator that the runtime's own kernels ran says its number. Those inside a delegate have
    numbers and names of the delegate's own, which leaves some out, splits others and adds
    copies; but both are in the order of execution, so that the pairing of most and likeliest
    names in that order is indices (S. Needleman and C. Wunsch, Journal of Molecular Biology 48
    (1970) 443-453, with gaps for nothing).
    """
    best = [[0] * (len(graph) + 1) for _ in range(len(events) + 1)]
    for i, event in reversed(list(enumerate(events))):
        for j, operator in reversed(list(enumerate(graph))):
            worth = _similarity(event, operator)
            paired = best[i + 1][j + 1] + worth if worth else 0
            best[i][j] = max(best[i + 1][j], best[i][j + 1], paired)
    return tuple(_traced(best, events, graph))


def _traced(
    best: list[list[int]], events: Sequence[Event], graph: Sequence[Operator]
) -> list[int | None]:
    indices: list[int | None] = [None] * len(events)
    i = j = 0
    while i < len(events) and j < len(graph):
        worth = _similarity(events[i], graph[j])
        if worth and best[i][j] == best[i + 1][j + 1] + worth:
            indices[i] = j
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return indices


def _similarity(event: Event, operator: Operator) -> int:
    """0 where the event cannot be of the operator, else more the surer it is."""
    if not event.delegated:
        return 100 * _SURE if event.number == operator.number else 0
    return _alike(event.name.lower(), operator.name)


@cache
def _alike(event_name: str, name: str) -> int:
    usual = name.lower().replace("_", " ")
    for rank, words in enumerate(_XNNPACK_WORDS.get(name, (usual,))):
        if words in event_name:
            return _SURE - rank
    return 0
