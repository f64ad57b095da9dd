"""The outputs of many models over all samples: in parallel, and never all in memory.

The samples are read once, part by part, and every part goes to every model. Each worker runs one
part at a time, and has a session for each model, started when it is first needed. Models that would
need too many sessions wait for a later pass.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.measure.models import MeasuredModel, OutputFiles
from edgeconv.system.processes.tasks import CountedLine
from edgeconv.types.errors import ToolFailed
from edgeconv.types.words import listed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.data import Samples
    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.runtimes.interface import Model, Runtime, RuntimeSession

# A session is a process of some tens of megabytes and the model.
_MOST_SESSIONS = 32
# Parts that wait, so that no worker ever does.
_AHEAD = 2
# Fewer samples are done before it is known whether more at once are quicker.
_WORTHWHILE = 256
_TRIED = 8
# Quick models spend their time between invokes, slow ones in them.
_WIDE, _WIDER = 8, 64
_QUICK_S = 0.0005
# A larger batch only saves the time between invokes, a small part of slower ones than these.
_SLOW_S = 0.002
_GAIN = 0.95
_RUNS = 3


def evaluate(run: BenchRun, models: Sequence[MeasuredModel]) -> None:
    """Set the outputs over all samples, (samples, ...), or the error, of every model."""
    able = [model for model in models if model.error is None and model.runtime.sessions]
    workers = _workers(run, able)
    each = max(1, _MOST_SESSIONS // workers)
    for start in range(0, len(able), each):
        _pass(run, able[start : start + each], workers)


def _workers(run: BenchRun, models: Sequence[MeasuredModel]) -> int:
    sessions = [model.runtime.sessions for model in models]
    per_session = max(1, run.execution.threads // run.measuring.threads)
    return max(1, min([per_session, *sessions]))


def _pass(run: BenchRun, models: Sequence[MeasuredModel], workers: int) -> None:
    line = f"outputs of {listed(model.name for model in models)}"
    run.on_progress(line)
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(ThreadPoolExecutor(workers))
        lanes = [_Lane(run, model) for model in models]
        for lane in lanes:
            # Called before the workers are waited for: it ends their sessions.
            stack.callback(lane.close)
        list(executor.map(_Lane.begin, lanes))
        _feed(run, lanes, executor, workers, line)
        for lane in lanes:
            if lane.measured.error is None:
                lane.measured.outputs = lane.kept.close()


def _feed(
    run: BenchRun, lanes: Sequence[_Lane], executor: ThreadPoolExecutor, workers: int, line: str
) -> None:
    """Give every part to every lane, a few at a time, and wait for the last."""
    size = run.samples.part_size(max(lane.model.batch for lane in lanes), workers)
    at_work: deque[Future[None]] = deque()
    start = 0
    for part in run.samples.parts(size):
        for lane in lanes:
            if len(at_work) == workers + _AHEAD:
                at_work.popleft().result()
            at_work.append(executor.submit(lane.run, start, part))
        start += part.count
        run.on_progress(CountedLine(line, start, run.samples.count))
    while at_work:
        at_work.popleft().result()


class _Lane:
    """One model in a pass: its sessions, and the files of its outputs."""

    def __init__(self, run: BenchRun, measured: MeasuredModel) -> None:
        self.measured = measured
        self.model = measured.model
        directory = Path(tempfile.mkdtemp(prefix="outputs-", dir=run.scratch))
        self.kept = OutputFiles(directory, run.samples.count)
        self._idle: list[RuntimeSession] = []
        self._busy: list[RuntimeSession] = []
        self._is_closed = False
        self._lock = threading.Lock()
        self._samples = run.samples

    def begin(self) -> None:
        """Start the first session, and choose how many samples an invoke takes."""
        first, count = self._samples.first, self._samples.count
        try:
            wide = widened(self.measured.runtime, self.measured.model, first, count)
        except ToolFailed as error:
            self.measured.error = error
        else:
            self.model = wide.model
            self._idle.append(wide.session)

    def run(self, start: int, part: Samples) -> None:
        """Keep the outputs of a part; what fails is the model's error."""
        if self.measured.error is not None or self._is_closed:
            return
        try:
            self._keep(start, part)
        except ToolFailed as error:
            self.measured.error = self.measured.error or error

    def close(self) -> None:
        """End all sessions; nothing more is run."""
        self._is_closed = True
        for session in (*self._idle, *self._busy):
            session.close()

    def _keep(self, start: int, part: Samples) -> None:
        whole = part.count // self.model.batch * self.model.batch
        if whole:
            with self._session() as session:
                self._put(start, session.run(_rows(part, 0, whole)), whole)
        if whole < part.count:
            # The last part is not a multiple of the batch.
            session = self.measured.runtime.start(self.measured.model)
            try:
                rest = session.run(_rows(part, whole, part.count))
                self._put(start + whole, rest, part.count - whole)
            finally:
                session.close()

    def _put(self, start: int, outputs: dict[str, NDArray[np.generic]], samples: int) -> None:
        with self._lock:
            if not self.kept.is_begun:
                self.kept.begin(outputs, samples)
        self.kept.put(start, outputs, samples)

    @contextlib.contextmanager
    def _session(self) -> Iterator[RuntimeSession]:
        """An idle session, or a new one."""
        with self._lock:
            session = self._idle.pop() if self._idle else None
        session = session or self.measured.runtime.start(self.model)
        self._busy.append(session)
        yield session
        with self._lock:
            self._busy.remove(session)
            self._idle.append(session)


def _rows(part: Samples, start: int, stop: int) -> dict[str, NDArray[np.generic]]:
    return {name: array[start:stop] for name, array in part.arrays.items()}


class Widened(NamedTuple):
    """A model with the batch that is best for it, and a session that has it loaded."""

    model: Model
    session: RuntimeSession


def widened(runtime: Runtime, model: Model, samples: Samples, count: int) -> Widened:
    """The model with several samples an invoke, where that gives the same bits and is quicker.

    It is tried on the first `samples`; `count` are to be run. A model of a fixed batch other than 1
    keeps it. Raises `ToolFailed` if the model does not run at all.
    """
    session = runtime.start(model)
    if model.batch != 1 or count < _WORTHWHILE or samples.count < _TRIED:
        return Widened(model, session)
    some = {name: array[:_TRIED] for name, array in samples.arrays.items()}
    seconds = _seconds(session, some, runs=2) / _TRIED
    if seconds > _SLOW_S and not runtime.environment.host:
        return Widened(model, session)
    batch = _WIDER if seconds < _QUICK_S and samples.count >= _WIDER else _WIDE
    wide = _tried(runtime, msgspec.structs.replace(model, batch=batch), session, samples)
    if wide is None:
        return Widened(model, session)
    session.close()
    return wide


def _tried(
    runtime: Runtime, model: Model, plain: RuntimeSession, samples: Samples
) -> Widened | None:
    """The model with its batch; None if it fails, gives other bits, or is not quicker."""
    some = {name: array[: model.batch] for name, array in samples.arrays.items()}
    try:
        session = runtime.start(model)
    except ToolFailed:
        return None
    try:
        is_better = _are_equal(session.run(some), plain.run(some)) and (
            _seconds(session, some) < _GAIN * _seconds(plain, some)
        )
    except ToolFailed:
        is_better = False
    if is_better:
        return Widened(model, session)
    session.close()
    return None


def _are_equal(
    outputs: Mapping[str, NDArray[np.generic]], others: Mapping[str, NDArray[np.generic]]
) -> bool:
    return outputs.keys() == others.keys() and all(
        array.shape == others[name].shape and array.tobytes() == others[name].tobytes()
        for name, array in outputs.items()
    )


def _seconds(
    session: RuntimeSession, samples: Mapping[str, NDArray[np.generic]], runs: int = _RUNS
) -> float:
    """The shortest of a few runs: other work of the machine only makes them longer."""
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        session.run(samples)
        seconds.append(time.perf_counter() - began)
    return min(seconds)
