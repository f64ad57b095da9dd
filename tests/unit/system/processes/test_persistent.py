"""A child that stays: calls in turn, what it keeps, and how it ends."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import worker_tasks
from wording import fails
from worker_tasks import Job

from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import PersistentChild
from edgeconv.types import Allowance
from edgeconv.types.errors import UsageError, WorkerCrashed, WorkerTimedOut


@pytest.fixture
def standing(tmp_path) -> Iterator[PersistentChild]:
    child = make(tmp_path)
    yield child
    child.close()


def make(scratch: Path, allowance: Allowance = Allowance(timeout_s=60)) -> PersistentChild:
    return PersistentChild(
        label="the child",
        scratch=scratch,
        access=worker_tasks.FREE,
        allowance=allowance,
        environment=worker_tasks.HERE,
    )


def test_what_a_call_keeps_is_there_for_the_next_one(standing):
    calls = [standing.start(worker_tasks.keep, Job(number=number)) for number in (1, 2, 3)]
    told: list[str] = []
    assert [call.result(told.append).total for call in calls] == [1, 3, 6]
    assert told == ["kept [1]", "kept [1, 2]", "kept [1, 2, 3]"]


def test_a_confined_child_answers_as_well(tmp_path):
    child = PersistentChild(
        label="the child",
        scratch=tmp_path,
        access=Access(reads=(Path(worker_tasks.__file__).parent,)),
        allowance=Allowance(timeout_s=60),
        environment=worker_tasks.HERE,
    )
    assert child.start(worker_tasks.keep, Job(number=7)).result().total == 7
    child.close()


def test_an_error_ends_its_call_and_nothing_else(standing):
    with fails(UsageError):
        standing.start(worker_tasks.refuse, Job(text="that")).result()
    assert standing.is_at_work
    assert standing.start(worker_tasks.keep, Job(number=7)).result().total == 7


def test_a_crash_is_the_error_of_its_call_and_of_those_after_it(standing):
    numbers = (0, signal.SIGSEGV, 0)
    functions = (worker_tasks.keep, worker_tasks.die_by_signal, worker_tasks.keep)
    calls = [standing.start(f, Job(number=n)) for f, n in zip(functions, numbers, strict=True)]
    assert calls[0].result().total == 0
    for call in calls[1:]:
        with fails(WorkerCrashed):
            call.result()
    assert not standing.is_at_work
    with fails(WorkerCrashed):
        standing.start(worker_tasks.keep, Job()).result()


def test_a_child_that_leaves_without_an_answer_has_crashed(standing):
    with fails(WorkerCrashed):
        standing.start(worker_tasks.leave_without_answer, Job()).result()


def test_its_time_is_that_of_each_call_and_not_of_the_rest_between(tmp_path):
    child = make(tmp_path, Allowance(timeout_s=8))
    child.start(worker_tasks.keep, Job()).result()
    began_s = child.child._started_s
    time.sleep(0.1)
    assert began_s == float("inf")
    call = child.start(worker_tasks.sleep, Job(number=60))
    child.allow(Allowance(timeout_s=0.2))
    with pytest.raises(WorkerTimedOut, match=r"did not end within 0\.2 s"):
        call.result()
    assert not child.is_at_work


def test_it_ends_when_it_is_closed(standing):
    standing.start(worker_tasks.keep, Job()).result()
    process = psutil.Process(standing.child._process.pid)
    standing.close()
    assert not process.is_running()


def test_it_ends_with_whoever_could_still_call_it(tmp_path):
    child = PersistentChild(label="left", scratch=tmp_path, access=Access()).child
    assert child.has_ended()
