"""Workers of Ray that run models: some on a core each, one with a whole node, one for each device.

Those of cores and the one with the node are never there at once: times need a node on which
nothing else runs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from edgeconv.errors import EdgeconvError, ToolFailed, UsageError, WorkerCrashed
from edgeconv.processes.cluster import placed
from edgeconv.processes.failures import ChildFailure
from edgeconv.runtimes.cluster_worker import ClusterWorker, OpenedThere, OpeningChoice
from edgeconv.runtimes.leases import is_device_name
from edgeconv.types.words import first_line, listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.processes.cluster import ClusterNode, RayCluster
    from edgeconv.types import Environment

# How often a part is run, each time by another worker.
_ATTEMPTS = 3
_PATIENCE_S = 120.0
_PAUSE_S = 0.05
_CLOSING_S = 10.0


class Crews:
    """All workers of a run on a cluster. The context manager ends them."""

    def __init__(self, cluster: RayCluster) -> None:
        self.cores = cluster.cores
        self.ray = cluster.ray
        self._cluster = cluster
        self._tools = _SameTools()
        self._lock = threading.Lock()
        self._by_device: dict[str, Crew] = {}
        self._working: Crew | None = None
        self._timing: Crew | None = None
        self._timing_node = ""

    def __enter__(self) -> Crews:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as stack:
            for crew in (self._working, self._timing, *self._by_device.values()):
                if crew is not None:
                    stack.callback(crew.close)

    def of_cores(self) -> Crew:
        """A worker for each core of the cluster."""
        with self._lock:
            if self._timing is not None:
                self._timing.close()
                self._timing = None
            if self._working is None:
                self._working = Crew(self.ray, self._tools, _Seat(workers=self.cores))
            return self._working

    def of_a_node(self) -> Crew:
        """A worker that has a node for itself, the same one each time. Raises `WorkerCrashed`."""
        with self._lock:
            if self._working is not None:
                self._working.close()
                self._working = None
            if self._timing is None:
                node = self._node()
                # Those of devices work only while this one does not.
                devices = sum(each in node.resources for each in self._by_device)
                seat = _Seat(node=node.id, cores=max(node.cores - devices, 1))
                self._timing = Crew(self.ray, self._tools, seat)
            return self._timing

    def of_device(self, device: str) -> Crew:
        """The worker of a device. Raises `UsageError` where not exactly one node announces it."""
        with self._lock:
            if device not in self._by_device:
                announcing = self._cluster.announcing(device)
                if len(announcing) != 1:
                    by = listed(node.address for node in announcing) or "no node of the cluster"
                    raise UsageError(
                        f"{device} must be announced by exactly one worker, and is announced by "
                        f"{by}",
                        hint="on the machine that reaches it: edgeconv worker HEAD:PORT --devices "
                        f"{device}",
                    )
                seat = _Seat(node=announcing[0].id, device=device)
                self._by_device[device] = Crew(self.ray, self._tools, seat)
            return self._by_device[device]

    def _node(self) -> ClusterNode:
        """The node that times are measured on: at first, one with the fewest devices."""
        nodes = [node for node in self._cluster.nodes() if node.cores]
        if self._timing_node:
            nodes = [node for node in nodes if node.id == self._timing_node]
        if not nodes:
            raise WorkerCrashed(
                "the node that measures times was lost",
                hint="times of two machines cannot be compared: run it again",
            )
        node = min(nodes, key=lambda node: (sum(map(is_device_name, node.resources)), node.id))
        self._timing_node = node.id
        return node


class _Seat(NamedTuple):
    """What each of some `workers` takes: a node by its id ("": any), cores of it, a device."""

    workers: int = 1
    node: str = ""
    cores: int = 1
    device: str = ""


class _SameTools:
    """Sees to it that all nodes have the same runtime: another may give other answers."""

    def __init__(self) -> None:
        self._first: dict[bytes, Environment] = {}

    def check(self, opening: bytes, environment: Environment) -> None:
        """Raise `ToolFailed` where an environment is not like the first one's."""
        first = self._first.setdefault(opening, environment)
        if (environment.machine, environment.tools) != (first.machine, first.tools):
            raise ToolFailed(
                f"the nodes differ: {environment.machine} with {environment.tools}, and "
                f"{first.machine} with {first.tools}",
                hint="install the same versions on all nodes: others may give different answers",
            )


class Crew:
    """Actors with the same resources: those that start, and those that are idle."""

    def __init__(self, ray: Any, tools: _SameTools, seat: _Seat) -> None:
        self._ray, self._tools, self._seat = ray, tools, seat
        options = {**placed(seat.node), "num_cpus": seat.cores}
        if seat.device:
            options["resources"] = {seat.device: 1}
        self._remote = ray.remote(max_restarts=0, max_task_retries=0, **options)(ClusterWorker)
        self._lock = threading.Lock()
        self._starting: dict[Any, Any] = {}
        self._idle: list[Any] = []
        self._busy: list[Any] = []
        self._opened: dict[Any, dict[bytes, OpenedThere]] = defaultdict(dict)
        self._is_closed = False
        for _ in range(seat.workers):
            self._add()

    def opened(self, opening: OpeningChoice) -> OpenedThere:
        """What one worker says of a runtime. Raises as that does there."""
        opened: OpenedThere = self._answer("the runtime", lambda each: self._open(each, opening))
        return opened

    def ask(self, name: str, opening: OpeningChoice, ask: Callable[[Any], Any]) -> Any:
        """The answer of an idle worker with this runtime; of another one where it is lost.

        Raises the answer's error, and `WorkerCrashed` after some lost workers.
        """

        def opened_and_asked(worker: Any) -> Any:
            self._open(worker, opening)
            return _content(self._ray.get(ask(worker)))

        return self._answer(name, opened_and_asked)

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

    def _answer(self, name: str, ask: Callable[[Any], Any]) -> Any:
        lost = self._ray.exceptions
        reason = ""
        for _ in range(_ATTEMPTS):
            worker = self._take(name)
            try:
                answer = ask(worker)
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

    def _open(self, worker: Any, opening: OpeningChoice) -> OpenedThere:
        """What the worker says of a runtime, which it has opened by now."""
        key = msgspec.json.encode(opening)
        if key not in self._opened[worker]:
            opened: OpenedThere = _content(self._ray.get(worker.open.remote(opening)))
            self._tools.check(key, opened.environment)
            self._opened[worker][key] = opened
        return self._opened[worker][key]

    def _add(self) -> None:
        worker = self._remote.remote()
        self._starting[worker.ready.remote()] = worker

    def _drop(self, worker: Any) -> None:
        """Forget a lost worker; a new one works once some node has room for it."""
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
                    f"{name}: no worker of Ray is left, and none started within {_PATIENCE_S:g} s "
                    f"{self._seat_text()}",
                    hint="`ray status` shows which nodes there are, and how much of each is free",
                )
            time.sleep(_PAUSE_S)

    def _seat_text(self) -> str:
        if self._seat.device:
            return f"with {self._seat.device}"
        return "with a whole node, which times need" if self._seat.node else "on a free core"

    def _see_started(self) -> None:
        """Make idle what has started."""
        if not self._starting:
            return
        ready, _ = self._ray.wait(list(self._starting), timeout=0)
        for ref in ready:
            worker = self._starting.pop(ref)
            # One that was lost before it had any part: others are there, or `_take` says so.
            with contextlib.suppress(self._ray.exceptions.RayActorError):
                self._ray.get(ref)
                self._idle.append(worker)


def _content(answer: tuple[Any, bytes]) -> Any:
    content, failure = answer
    if failure:
        raise msgspec.json.decode(failure, type=ChildFailure).error()
    return content
