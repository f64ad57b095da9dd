"""Pools of threads that need no memory which other programs can reach.

`multiprocessing.pool.ThreadPool` has a lock that processes can share, although its threads do not:
a file in /dev/shm, which the sandbox does not open.
"""

import multiprocessing.pool
import multiprocessing.queues
import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any


def _queue() -> Any:
    """A queue of `multiprocessing`: a pipe, here between threads, with their locks."""
    return multiprocessing.queues.SimpleQueue(ctx=_LOCKS)


# In place of contexts of `multiprocessing`, with what is taken from one.
_LOCKS: Any = SimpleNamespace(Lock=threading.Lock)
_QUEUES: Any = SimpleNamespace(SimpleQueue=_queue)


class PoolOfThreads(multiprocessing.pool.ThreadPool):
    """A ThreadPool with locks of threads only."""

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
    ) -> None:
        # ThreadPool's own takes no context.
        multiprocessing.pool.Pool.__init__(self, processes, initializer, initargs, context=_QUEUES)


def make_pools_of_threads() -> None:
    """From now on, `multiprocessing.pool.ThreadPool` is `PoolOfThreads` in this process.

    The locks of `multiprocessing` stay as they are: libraries start processes where these work.
    """
    multiprocessing.pool.ThreadPool = PoolOfThreads  # type: ignore[misc]
