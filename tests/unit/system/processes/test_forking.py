"""Children that tests fork are what those are that edgeconv starts."""

import json
import os
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forking
import psutil
import pytest
from places import SUPPORT

from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.workers import Child
from edgeconv.types import Allowance
from edgeconv.types.errors import EdgeconvError, WorkerTimedOut

pytestmark = pytest.mark.skipif(
    forking.PLACE not in os.environ, reason="EDGECONV_TESTS_START: no child is forked"
)

FACTS = SUPPORT / "process_facts.py"


def child(scratch: Path, end: str, is_forked: bool, **rest: Any) -> Child:
    with forking.forked_children(is_forked):
        started = Child(
            [sys.executable, str(FACTS), end],
            label="the child",
            cwd=scratch,
            access=Access(),
            environment={"PYTHONPATH": str(SUPPORT), "OWN": "1"},
            **rest,
        )
    started.tell("a line")
    return started


def ended(scratch: Path, end: str, is_forked: bool) -> tuple[Any, str, str]:
    """The facts, how it ended, and the last line of its log."""
    running = child(scratch, end, is_forked)
    try:
        running.wait()
        how = ""
    except EdgeconvError as error:
        how = f"{type(error).__name__}: {error.message}".partition("\n")[0]
    return json.loads((scratch / "facts.json").read_text()), how, running.tail()[-30:]


@pytest.mark.parametrize("end", ["0", "3", "error", "signal"])
def test_a_fork_is_and_ends_as_what_is_started(end, tmp_path):
    started = ended(tmp_path, end, is_forked=False)
    forked = ended(tmp_path, end, is_forked=True)
    for name, fact in started[0].items():
        assert forked[0][name] == fact, name
    assert forked[1:] == started[1:]
    facts = forked[0]
    assert facts["leads its session"]
    assert facts["environment"]["OWN"] == "1"
    assert facts["line"] == "a line\n"


def test_a_fork_is_confined(tmp_path):
    facts = ended(tmp_path, "0", is_forked=True)[0]
    assert facts["outside"] == ["PermissionError"]
    assert facts["status"]["NoNewPrivs"] == 1


def test_a_fork_is_held_to_its_time_and_is_gone(tmp_path):
    running = child(tmp_path, "sleep", True, allowance=Allowance(timeout_s=0.5))
    process = psutil.Process(running._process.pid)
    (asked,) = (fork for pid, fork in forking.forks_of(os.getpid()).items() if pid == process.pid)
    assert str(FACTS) in asked["words"]
    with pytest.raises(WorkerTimedOut):
        running.wait()
    assert not process.is_running()


def test_a_fork_ends_with_whoever_asked_for_it(tmp_path):
    running = child(tmp_path, "sleep", True)
    process = psutil.Process(running._process.pid)
    running._process._connection.shutdown(socket.SHUT_RDWR)
    process.wait(timeout=60)
    assert not process.is_running()
    running.kill()
    assert running.ending_signal == signal.SIGKILL


def test_threads_that_ask_at_once_learn_the_same_end(tmp_path):
    for number in range(20):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        running = child(scratch, "3", is_forked=True)
        ends = threading.Barrier(4)

        def asks(running: Child = running, ends: threading.Barrier = ends) -> int | None:
            ends.wait()
            while not running.has_ended():
                pass
            return running._process.returncode

        with ThreadPoolExecutor(4) as pool:
            codes = [asked.result() for asked in [pool.submit(asks) for _ in range(4)]]
        running.kill()
        assert codes == [3, 3, 3, 3]
