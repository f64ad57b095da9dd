"""Where the time of an invoke goes, by operator."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

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
from edgeconv.types import OperatorTime, Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_edge_litert.schema_py_generated import OperatorT, SubGraphT
    from numpy.typing import NDArray

    from edgeconv.runtimes.c_api import Event, ProfiledModel
    from edgeconv.runtimes.interface import Arrays, Model
    from edgeconv.types import Allowance

# So many runs and seconds at most; as many are profiled as not, which give the total.
_RUNS = 100
_SECONDS = 2.0
_WARMUP = 10
_PAIRS_AT_LEAST = 5
_XNNPACK = "XNNPACK"


class ProfileJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the child is to do: the model's file; the samples of one invoke are stored beside it."""

    model: str
    threads: int


class OperatorShare(msgspec.Struct, frozen=True, kw_only=True):
    """One operator as the child timed it: its number in the graph, and microseconds."""

    number: int
    delegate: str
    elapsed_us: float


class ProfileAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the child measured."""

    method: Literal["runtime", "sub-models"]
    total_us: float
    shares: tuple[OperatorShare, ...]


def profile_model(
    model: Model, inputs: Arrays, *, threads: int, scratch: Path, allowance: Allowance
) -> Profile:
    """The time of each operator of `model` on its first batch of `inputs`, in a child process.

    LiteRT's own profiler is asked, which its C interface has. An operator's time is the mean over
    the middle half of the runs. The profiler counts whole microseconds and cuts fractions off, so
    that a quick one's is too low; the residual has it. What XNNPACK does for an operator
    besides (a reshape before a matrix product) is in that operator's time; an operator that it
    has fused into another one is not in the list.

    Where the model cannot be profiled like this (state between invokes, control flow), models
    that end after each operator are timed in turn, and each operator has what it takes longer
    than the one before. Raises `InputRefused` where `inputs` do not fit, and `ToolFailed` where
    the model does not run.
    """
    job, graph = _prepared(model, inputs, threads, scratch)
    for function in (by_runtime, by_prefixes):
        label = f"profiling {model.file.name}"
        access = Access(reads=(Path(job.model).parent,))
        with start_task(
            function, job, label=label, scratch=scratch, access=access, allowance=allowance
        ) as task:
            try:
                return _profile(task.result(), graph)
            except ToolFailed as error:
                over = isinstance(error, (WorkerTimedOut, WorkerOutOfMemory))
                if over or function is by_prefixes:
                    raise
    raise AssertionError("the last function returns or raises")


def by_runtime(job: ProfileJob) -> ProfileAnswer:
    """Ask the runtime's profiler; runs in a child. Raises `ToolFailed` where it cannot tell."""
    from edgeconv.runtimes.c_api import ProfiledModel

    path = Path(job.model)
    data = path.read_bytes()
    graph = _graph(data)
    if len(parse(data, where="the model").subgraphs) > 1:
        # The events of a graph inside another say not which one they are of.
        raise ToolFailed("the model has control flow")
    model = ProfiledModel(path, _loaded(job), job.threads)
    for _ in range(_WARMUP):
        model.run()
    totals, profiled = _alternating(model)
    places = operators_of(profiled[0], graph)
    if all(place is None for place in places):
        raise ToolFailed("none of the profiler's events is of an operator of the graph")
    elapsed = middle_mean(
        np.array([[event.elapsed_us for event in events] for events in profiled], np.float64)
    )
    return ProfileAnswer(
        method="runtime",
        total_us=float(np.median(totals)),
        shares=_shares(profiled[0], _settled(places), elapsed, graph),
    )


def by_prefixes(job: ProfileJob) -> ProfileAnswer:
    """Time models that end after each operator, in turn; runs in a child. Raises `ToolFailed`."""
    from edgeconv.measure.layers.prefixes import prefix_times

    limits = (_RUNS, _SECONDS, _PAIRS_AT_LEAST)
    total_us, delegated, times_us = prefix_times(Path(job.model), _loaded(job), job.threads, limits)
    shares = [
        OperatorShare(number=i, delegate=_XNNPACK if i in delegated else "", elapsed_us=elapsed)
        for i, elapsed in enumerate(times_us)
    ]
    return ProfileAnswer(method="sub-models", total_us=total_us, shares=tuple(shares))


def middle_mean(runs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each column of (runs, columns) over the middle half of the runs by their sums.

    A slow phase of the machine makes all operators of a run slow. Were they judged one by one,
    they would not add up to the time of any run.
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
        raise ToolFailed("the profiler does not say the same of every run")
    return totals, profiled


def _settled(places: Sequence[int | None]) -> list[int]:
    """The places of the events; one of no operator is of the next that has one, or the last."""
    settled: list[int] = []
    following = next(place for place in reversed(places) if place is not None)
    for place in reversed(places):
        following = following if place is None else place
        settled.append(following)
    return settled[::-1]


def _shares(
    events: Sequence[Event],
    places: Sequence[int],
    elapsed: NDArray[np.float64],
    graph: Sequence[Operator],
) -> tuple[OperatorShare, ...]:
    sums: dict[int, float] = {}
    native = {place for place, event in zip(places, events, strict=True) if not event.delegated}
    for place, each in zip(places, elapsed, strict=True):
        sums[place] = sums.get(place, 0.0) + float(each)
    return tuple(
        OperatorShare(
            number=graph[place].number,
            delegate="" if place in native else _XNNPACK,
            elapsed_us=total,
        )
        for place, total in sorted(sums.items())
    )


def _prepared(
    model: Model, inputs: Arrays, threads: int, scratch: Path
) -> tuple[ProfileJob, list[Operator]]:
    """The model in a directory of its own, its shapes those of the first batch, and its inputs."""
    specs = signature_of(model).inputs
    batch = raw({name: value[: model.batch] for name, value in inputs.items()}, specs)
    shapes = {name: value.shape for name, value in batch.items()}
    data = with_fixed_shapes(model.file.read_bytes(), model.signature, shapes)
    directory = Path(tempfile.mkdtemp(prefix="profile-", dir=scratch))
    (directory / "model.tflite").write_bytes(data)
    write_samples(Samples(batch, None, "the samples"), directory)
    return ProfileJob(model=str(directory / "model.tflite"), threads=threads), _graph(data)


def _loaded(job: ProfileJob) -> dict[str, NDArray[np.generic]]:
    return as_tensorflow_takes(read_samples(Path(job.model).parent).arrays)


def _graph(data: bytes) -> list[Operator]:
    """The operators of the model's only signature, in the order of execution."""
    model = parse(data, where="the model")
    graph = model.subgraphs[model.signatureDefs[0].subgraphIndex]
    return [
        Operator(number, operator_name(model, operator), _layer(graph, operator))
        for number, operator in enumerate(graph.operators)
    ]


def _layer(graph: SubGraphT, operator: OperatorT) -> str:
    return text(graph.tensors[operator.outputs[0]].name) if operator.outputs else ""


def _profile(answer: ProfileAnswer, graph: Sequence[Operator]) -> Profile:
    return Profile(
        method=answer.method,
        total_us=answer.total_us,
        operators=tuple(
            OperatorTime(
                index=share.number,
                operator=graph[share.number].name,
                layer=graph[share.number].layer,
                delegate=share.delegate,
                mean_us=share.elapsed_us,
            )
            for share in answer.shares
        ),
    )
