"""The outputs of many models over all samples: in parallel, and never all in memory.

The samples are read once, part by part, and every part goes to every model. So many parts are
at work at a time as there are workers; each has a session of its own for each model, started
when it is first needed. Models that would need too many sessions wait for a later pass.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.errors import ToolFailed
from edgeconv.measure.batching import widened
from edgeconv.measure.models import OutputFiles
from edgeconv.processes.progress import CountedLine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.data import Samples
    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.measure.models import MeasuredModel
    from edgeconv.runtimes.interface import RuntimeSession

# A session is a process of some tens of megabytes and the model.
_MOST_SESSIONS = 32
# So many parts wait to be taken up, that no worker ever waits.
_AHEAD = 2


def evaluate(run: BenchRun, models: Sequence[MeasuredModel]) -> None:
    """Give every model its outputs over all samples, or the error that it failed with."""
    able = [one for one in models if one.error is None and one.runtime.sessions]
    workers = _workers(run, able)
    each = max(1, _MOST_SESSIONS // workers)
    for start in range(0, len(able), each):
        _pass(run, able[start : start + each], workers)


def _workers(run: BenchRun, models: Sequence[MeasuredModel]) -> int:
    sessions = [one.runtime.sessions for one in models]
    per_session = max(1, run.execution.threads // run.measuring.threads)
    return max(1, min([per_session, *sessions]))


def _pass(run: BenchRun, models: Sequence[MeasuredModel], workers: int) -> None:
    line = f"outputs of {', '.join(one.name for one in models)}"
    run.on_progress(line)
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(ThreadPoolExecutor(workers))
        lanes = [_Lane(run, one) for one in models]
        for lane in lanes:
            # Before the workers are waited for: it ends what is still at work.
            stack.callback(lane.close)
        list(executor.map(_Lane.begin, lanes))
        _feed(run, lanes, executor, workers, line)
        for lane in lanes:
            if lane.measured.error is None:
                lane.measured.outputs = lane.kept.close()


def _feed(
    run: BenchRun, lanes: Sequence[_Lane], executor: ThreadPoolExecutor, workers: int, line: str
) -> None:
    """Give every part to every lane, few at a time, and wait for the last."""
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
    """One model in a pass: its sessions at rest, and where its outputs go."""

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
        """Start the first session, and find out how many samples an invoke is to take."""
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
            # The last part, which is no multiple.
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
        """One at rest, or a new one."""
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
