"""Where the time of an invoke goes, by operator."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from edgeconv.data import Samples, read_samples, write_samples
from edgeconv.data.strings import as_tensorflow_takes
from edgeconv.errors import ToolFailed, WorkerOutOfMemory, WorkerTimedOut
from edgeconv.measure.layers.operators import Operator, operators_of
from edgeconv.processes.sandbox import Access
from edgeconv.processes.tasks import start_task
from edgeconv.runtimes.tensors import raw, signature_of
from edgeconv.tflite.cut import with_fixed_shapes
from edgeconv.tflite.flatbuffer import operator_name, parse, text
from edgeconv.tflite.layer_names import short_names
from edgeconv.types import OperatorTime, Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from edgeconv.runtimes.c_api import Event, ProfiledModel
    from edgeconv.runtimes.interface import Arrays, Model
    from edgeconv.types import Allowance

# The most runs and seconds; half of the runs are not profiled, and give the total.
_RUNS = 100
_SECONDS = 2.0
_WARMUP = 10
_PAIRS_AT_LEAST = 5
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

    A model that cannot be profiled so (state between invokes, control flow) is cut after each
    operator, and the difference of two such models is the operator's time. Raises `InputRefused`
    where `inputs` (n, *shape) do not fit, and `ToolFailed` where the model does not run.
    """
    job = _prepared(model, inputs, threads, scratch)
    for function in (by_runtime, by_prefixes):
        label = f"profiling {model.file.name}"
        access = Access(reads=(Path(job.model).parent,))
        with start_task(
            function, job, label=label, scratch=scratch, access=access, allowance=allowance
        ) as task:
            try:
                return task.result()
            except ToolFailed as error:
                over = isinstance(error, (WorkerTimedOut, WorkerOutOfMemory))
                if over or function is by_prefixes:
                    raise
    raise AssertionError("the last function returns or raises")


def by_runtime(job: ProfileJob) -> Profile:
    """Use the runtime's profiler, in a child. Raises `ToolFailed` where it has no answer."""
    from edgeconv.runtimes.c_api import ProfiledModel

    path = Path(job.model)
    data = path.read_bytes()
    graph = _graph(data)
    if len(parse(data, where="the model").subgraphs) > 1:
        # The events of an inner graph do not name it.
        raise ToolFailed("the model has control flow")
    model = ProfiledModel(path, _loaded(job), job.threads)
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
        method="runtime",
        total_us=float(np.median(totals)),
        operators=_times(profiled[0], _filled_in(indices), elapsed, graph),
    )


def by_prefixes(job: ProfileJob) -> Profile:
    """Time the models that end after each operator, in a child. Raises `ToolFailed`."""
    from edgeconv.measure.layers.prefixes import prefix_times

    limits = (_RUNS, _SECONDS, _PAIRS_AT_LEAST)
    total_us, delegated, times_us = prefix_times(Path(job.model), _loaded(job), job.threads, limits)
    operators = tuple(
        _time(operator, is_native=operator.number not in delegated, mean_us=mean_us)
        for operator, mean_us in zip(_graph(Path(job.model).read_bytes()), times_us, strict=True)
    )
    return Profile(method="sub-models", total_us=total_us, operators=operators)


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


def _loaded(job: ProfileJob) -> dict[str, NDArray[np.generic]]:
    return as_tensorflow_takes(read_samples(Path(job.model).parent).arrays)


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
