"""How much a test may compute, on a machine however busy: processor time and not the clock."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


def processor_s() -> float:
    """The seconds of processor time of this process, and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fails where more processor time than that is used meanwhile."""
    before_s = processor_s()
    yield
    assert processor_s() - before_s < seconds
