"""A runtime on the cores of a cluster: the same answers, part by part, by many workers of Ray.

A session here is only a name for a model. Each part goes to an idle worker, which loads the model
where it has not yet. So models never hold cores against one another, and a lost worker costs the
part that it ran.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.errors import EdgeconvError, ToolFailed, UsageError, WorkerCrashed
from edgeconv.processes.failures import ChildFailure
from edgeconv.processes.sandbox.walls import is_required
from edgeconv.runtimes.cluster_worker import ClusterWorker, OpeningChoice, SentModel
from edgeconv.store.hashes import sha256_file
from edgeconv.types.words import first_line

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.processes.cluster import RayCluster
    from edgeconv.runtimes.interface import Arrays, Model, RuntimeSettings, Timed
    from edgeconv.types import RuntimeChoice, Timing

# Those of processors, in environments that every node has or makes.
_ABLE = ("litert", "tensorflow", "tflite-micro", "tflite-runtime")
# How often a part is run, each time by another worker.
_ATTEMPTS = 3
_PATIENCE_S = 120.0
_PAUSE_S = 0.05
_CLOSING_S = 10.0


def refuse_choice(choice: RuntimeChoice) -> None:
    """Raise `UsageError` for a runtime that is of one machine or device."""
    if choice.name not in _ABLE:
        raise UsageError(
            f"the runtime {choice} is not one of a cluster's nodes",
            hint=f"remove --on, or choose one of {', '.join(_ABLE)}",
        )


class ClusteredRuntime:
    """See `edgeconv.runtimes.interface.Runtime`. The context manager ends the workers."""

    gpu = ""
    has_pace = False

    def __init__(
        self, cluster: RayCluster, choice: RuntimeChoice, settings: RuntimeSettings
    ) -> None:
        """Raises as the runtime of `choice` does on the first node, and `ToolFailed`."""
        opening = OpeningChoice(
            choice=choice,
            threads=settings.threads,
            accelerator=settings.accelerator,
            python=settings.python,
            allowance=settings.allowance,
            is_confined=is_required(),
        )
        self.sessions = cluster.cores
        self.has_times = True
        self._ray = cluster.ray
        self._contents: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._workers = _Workers(cluster.ray, opening, cluster.cores)
        with contextlib.ExitStack() as unless_opened:
            unless_opened.callback(self.close)
            self.environment = self._workers.environment()
            unless_opened.pop_all()

    def __enter__(self) -> ClusteredRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Run the model once in a new process: the cores are shared, and its times say nothing.

        Raises `ToolFailed`.
        """
        sent, content = self._sent(model)
        batch = {name: array[: model.batch] for name, array in inputs.items()}
        timed: Timed = self._workers.ask(
            sent.name, lambda worker: worker.time.remote(sent, content, batch, timing)
        )
        return timed

    def start(self, model: Model) -> ClusteredSession:
        """Load the model in a worker. Raises `ToolFailed`."""
        sent, content = self._sent(model)
        self._workers.ask(sent.name, lambda worker: worker.load.remote(sent, content))
        return ClusteredSession(self._workers, sent, content)

    def close(self) -> None:
        """End the workers."""
        self._workers.close()

    def _sent(self, model: Model) -> tuple[SentModel, Any]:
        """A model by its content, and that in the object store, into which it is put once."""
        import numpy as np

        sha256 = sha256_file(model.file)
        with self._lock:
            if sha256 not in self._contents:
                content = np.frombuffer(model.file.read_bytes(), np.uint8)
                self._contents[sha256] = self._ray.put(content)
        sent = SentModel(
            sha256=sha256, name=model.file.name, signature=model.signature, batch=model.batch
        )
        return sent, self._contents[sha256]


class ClusteredSession:
    """See `edgeconv.runtimes.interface.RuntimeSession`."""

    def __init__(self, workers: _Workers, sent: SentModel, content: Any) -> None:
        self._workers, self._sent, self._content = workers, sent, content

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, (n, ...), by whichever worker is idle. Raises `ToolFailed`."""
        arrays = dict(inputs)
        outputs: dict[str, NDArray[np.generic]] = self._workers.ask(
            self._sent.name, lambda worker: worker.run.remote(self._sent, self._content, arrays)
        )
        return outputs

    def close(self) -> None:
        """Nothing: the workers keep few models, and end with the runtime."""


class _Workers:
    """Actors of one core each: those that start, and those that are idle."""

    def __init__(self, ray: Any, opening: OpeningChoice, cores: int) -> None:
        self._ray, self._opening = ray, opening
        self._remote = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(ClusterWorker)
        self._lock = threading.Lock()
        self._starting: dict[Any, Any] = {}
        self._idle: list[Any] = []
        self._busy: list[Any] = []
        self._environment: Any = None
        self._is_closed = False
        for _ in range(cores):
            self._add()

    def environment(self) -> Any:
        """The machine of the first worker that started. Raises as its runtime does."""
        self._put_back(self._take("the runtime"))
        return self._environment

    def ask(self, name: str, ask: Callable[[Any], Any]) -> Any:
        """The answer of an idle worker; of another one where it is lost.

        Raises the answer's error, and `WorkerCrashed` after some lost workers.
        """
        lost = self._ray.exceptions
        reason = ""
        for _ in range(_ATTEMPTS):
            worker = self._take(name)
            try:
                answer = _opened(self._ray.get(ask(worker)))
            except (lost.RayActorError, lost.ObjectLostError, lost.WorkerCrashedError) as error:
                reason = first_line(error)
                self._drop(worker)
            except EdgeconvError:
                self._put_back(worker)
                raise
            else:
                self._put_back(worker)
                return answer
        raise WorkerCrashed(
            f"{name}: {_ATTEMPTS} workers of Ray were lost, one after the other\n{reason}",
            hint="`ray status` and the logs of Ray say why nodes or workers end",
        )

    def close(self) -> None:
        """End all: those that are idle delete their files first."""
        with self._lock:
            self._is_closed = True
            idle, others = self._idle, [*self._busy, *self._starting.values()]
            self._idle, self._starting = [], {}
        ends = [worker.close.remote() for worker in idle]
        if ends:
            self._ray.wait(ends, num_returns=len(ends), timeout=_CLOSING_S)
        for worker in (*idle, *others):
            self._ray.kill(worker)

    def _add(self) -> None:
        worker = self._remote.remote(self._opening)
        self._starting[worker.open.remote()] = worker

    def _drop(self, worker: Any) -> None:
        """Forget a lost worker; a new one works once some node has a core for it."""
        with self._lock:
            self._busy.remove(worker)
            if not self._is_closed:
                self._add()

    def _put_back(self, worker: Any) -> None:
        with self._lock:
            self._busy.remove(worker)
            self._idle.append(worker)

    def _take(self, name: str) -> Any:
        """An idle worker, for which this waits as long as others work.

        Raises `WorkerCrashed` where no worker starts.
        """
        until = time.monotonic() + _PATIENCE_S
        while True:
            with self._lock:
                self._see_started()
                if self._idle:
                    # The one that was used last has its models in its caches.
                    self._busy.append(self._idle.pop())
                    return self._busy[-1]
                if self._busy:
                    until = time.monotonic() + _PATIENCE_S
                has_none = not (self._starting or self._busy)
            if has_none or time.monotonic() > until:
                raise WorkerCrashed(
                    f"{name}: no worker of Ray is left, and none started within {_PATIENCE_S:g} s",
                    hint="`ray status` says which nodes there are, and whether a core is free",
                )
            time.sleep(_PAUSE_S)

    def _see_started(self) -> None:
        """Make idle what has opened its runtime. Raises as that does."""
        if not self._starting:
            return
        ready, _ = self._ray.wait(list(self._starting), timeout=0)
        for ref in ready:
            worker = self._starting.pop(ref)
            try:
                environment = _opened(self._ray.get(ref))
            except self._ray.exceptions.RayActorError:
                # It was lost before it had any part; others are there, or `_take` says so.
                continue
            self._refuse_other_tools(environment)
            self._idle.append(worker)

    def _refuse_other_tools(self, environment: Any) -> None:
        """Raise `ToolFailed` for a node whose runtime may give other answers than the first's."""
        first = self._environment = self._environment or environment
        if (environment.machine, environment.tools) != (first.machine, first.tools):
            raise ToolFailed(
                f"the nodes differ: {environment.machine} with {environment.tools}, and "
                f"{first.machine} with {first.tools}",
                hint="install the same versions on all nodes: others may give other answers",
            )


def _opened(answer: tuple[Any, bytes]) -> Any:
    content, failure = answer
    if failure:
        raise msgspec.json.decode(failure, type=ChildFailure).error()
    return content
