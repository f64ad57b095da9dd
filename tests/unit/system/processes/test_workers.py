import errno
import functools
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest
import worker_tasks
from live_processes import DEADLINE_S, alive, wait_until
from wording import fails
from worker_tasks import FREE, HERE, Job, Sum

from edgeconv.runtimes.conversation import Conversation, Runner
from edgeconv.system.processes import failures, signals, tasks, workers
from edgeconv.system.processes.tasks import start_task
from edgeconv.system.processes.workers import Child, resident_bytes, start_ahead
from edgeconv.types import Allowance, OperatorCount, errors
from edgeconv.types.errors import (
    EdgeconvError,
    InternalError,
    OutputRefused,
    ToolFailed,
    UsageError,
    WorkerCrashed,
    WorkerKilled,
    WorkerOutOfMemory,
    WorkerTimedOut,
)


def task(function: Callable[[Job], Sum], scratch: Path, limit: Allowance | None = None, **job: Any):
    return start_task(
        function,
        Job(**job),
        label="the task",
        scratch=scratch,
        access=FREE,
        allowance=limit or Allowance(timeout_s=60),
        environment=HERE,
    )


def sleeper(scratch: Path, seconds: float = 600, timeout_s: float = 60) -> Child:
    scratch.mkdir(exist_ok=True)
    command = ["sleep", str(seconds)]
    return Child(
        command, label="sleeper", cwd=scratch, access=FREE, allowance=Allowance(timeout_s=timeout_s)
    )


def pids_in(directory: Path) -> list[int]:
    file = directory / "pids"
    wait_until(file.exists, "the start of the children")
    return [int(pid) for pid in file.read_text().split()]


def assert_all_end(pids: list[int]) -> None:
    assert pids
    wait_until(lambda: not any(alive(pid) for pid in pids), f"the end of {pids}")


def parent_of(what: str, directory: Path) -> subprocess.Popen[bytes]:
    """A process of its own that runs `worker_tasks.parent`."""
    code = "import sys, worker_tasks; worker_tasks.parent(*sys.argv[1:])"
    command = [sys.executable, "-c", code, what, str(directory)]
    return subprocess.Popen(command, env={**os.environ, **HERE}, stderr=subprocess.DEVNULL)


# What comes back


def test_an_answer_comes_back_as_the_type_the_function_declares(tmp_path):
    answer = task(worker_tasks.add_one, tmp_path, number=41, text="é\n€").result()
    assert answer == Sum(42, (OperatorCount(name="é\n€", version=1, count=41),))


def test_an_error_of_edgeconv_comes_back_with_its_type_message_and_hint(tmp_path):
    with fails(UsageError) as caught:
        task(worker_tasks.refuse, tmp_path, text="that").result()
    assert type(caught.value) is UsageError
    assert caught.value.exit_code == 2


def test_every_error_type_can_come_back_from_a_child():
    defined = {
        kind.__name__: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, EdgeconvError)
    }
    assert defined == errors.WORKER_ERRORS


def test_an_error_type_the_parent_does_not_know_is_a_failed_tool(tmp_path):
    with fails(ToolFailed) as caught:
        task(worker_tasks.refuse_unlisted, tmp_path).result()
    assert (type(caught.value), caught.value.hint) == (ToolFailed, "a hint")


def test_progress_lines_arrive_in_order_and_complete(tmp_path):
    seen: list[str] = []
    # Longer than a write buffer, and of characters of several bytes.
    text = "€" * 5000
    task(worker_tasks.tell, tmp_path, number=50, text=text).result(seen.append)
    assert seen == [f"step {index} {text}" for index in range(50)]


def test_a_progress_line_with_line_ends_in_it_stays_one_line(tmp_path):
    seen: list[str] = []
    task(worker_tasks.tell, tmp_path, number=1, text="a\nb\rc\u2028d").result(seen.append)
    assert seen == ["step 0 a b\rc\u2028d"]


def test_a_count_comes_through_with_its_numbers(tmp_path):
    told = []
    task(worker_tasks.count, tmp_path, number=3, text="a\x1fb").result(told.append)
    assert [(str(line), line.completed, line.total) for line in told] == [
        ("a b", number, 3) for number in range(3)
    ]


def test_progress_arrives_while_the_child_still_runs(tmp_path):
    """The line is there before the task's end, and an exception of its receiver ends the task."""

    class StopHereError(Exception):
        pass

    def stop(line: str) -> None:
        raise StopHereError(line)

    running = task(worker_tasks.tell_then_sleep, tmp_path)
    with fails(StopHereError):
        running.result(stop)
    assert not alive(running.child._process.pid)


def test_reporting_progress_outside_a_child_does_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tasks.report_progress("nobody listens")
    assert list(tmp_path.iterdir()) == []


# How a child can die


def test_a_bug_of_ours_in_a_child_is_an_internal_error_that_says_where_its_traceback_is(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    with fails(InternalError) as caught:
        task(worker_tasks.fail, tmp_path, number=0).result()
    message, _, log = caught.value.message.partition("; the traceback is in ")
    assert message == "internal error: ZeroDivisionError: integer division or modulo by zero"
    assert caught.value.exit_code == 4
    kept = Path(log).read_text()
    assert "the last words\nTraceback" in kept
    assert "worker_tasks.py" in kept


def test_a_bug_whose_log_cannot_be_kept_shows_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", "/dev/null/none")
    text = r"(?s)^internal error: Zero.*\|   File .*worker_tasks"
    with pytest.raises(InternalError, match=text) as caught:
        task(worker_tasks.fail, tmp_path, number=0).result()
    assert "file" not in caught.value.hint
    assert "the lines above" in caught.value.hint


@pytest.mark.parametrize("text", ["OSError", "MemoryError", "LinAlgError"])
def test_what_the_machine_or_a_tool_ends_a_child_with_is_a_crash_with_the_last_lines(
    text, tmp_path
):
    with pytest.raises(WorkerCrashed) as caught:
        task(worker_tasks.fail_otherwise, tmp_path, text=text).result()
    message = str(caught.value)
    assert message.startswith("the task ended with exit code 1\n")
    assert f"{text}: of another's making" in message


@pytest.mark.parametrize("text", ["ValueError", "LinAlgError"])
def test_no_value_of_a_sample_is_told_or_kept_whoever_puts_it_into_an_error(
    text, tmp_path, monkeypatch
):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises((InternalError, WorkerCrashed)) as caught:
        task(worker_tasks.fail_over_samples, tmp_path, text=text).result()
    assert f"{text}: cannot convert {{ 0: array(…)," in str(caught.value)
    logs = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("KeyError: array(…)" in path.read_text() for path in logs)
    for said in (str(caught.value), *(path.read_text() for path in logs)):
        assert not re.search(r"10\d\d\.", said)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGABRT"])
def test_a_child_ended_by_a_signal_is_a_crash_that_names_it(name, tmp_path):
    number = int(getattr(signal, name))
    with fails(WorkerCrashed) as caught:
        task(worker_tasks.die_by_signal, tmp_path, number=number).result()
    # Whoever killed it, the command can be given again.
    assert ("run the same command again" in caught.value.hint) == (name == "SIGKILL")


def test_a_real_time_signal_without_a_name_is_told_by_number(tmp_path):
    command = ["sh", "-c", "kill -40 $$"]
    with fails(WorkerCrashed):
        Child(command, label="sh", cwd=tmp_path, access=FREE).wait()


@pytest.mark.parametrize(
    "function", [worker_tasks.leave_without_answer, worker_tasks.leave_by_sys_exit]
)
def test_a_child_that_leaves_without_an_answer_has_crashed(function, tmp_path):
    with fails(WorkerCrashed):
        task(function, tmp_path).result()


def test_a_child_that_takes_too_long_is_stopped(tmp_path):
    running = task(worker_tasks.sleep, tmp_path, Allowance(timeout_s=1.0), number=600)
    with pytest.raises(WorkerTimedOut, match="the task did not end within 1 s") as caught:
        running.result()
    assert "| going to sleep" in str(caught.value)
    assert not alive(running.child._process.pid)


def test_a_child_that_takes_too_much_memory_is_stopped(tmp_path):
    limit = Allowance(timeout_s=60, memory_bytes=150 * 2**20)
    running = task(worker_tasks.eat_memory, tmp_path, limit, number=600)
    with fails(WorkerOutOfMemory):
        running.result()
    assert not alive(running.child._process.pid)


def test_memory_within_the_limit_is_no_matter(tmp_path):
    limit = Allowance(timeout_s=60, memory_bytes=2**30)
    assert task(worker_tasks.add_one, tmp_path, limit, number=1).result().total == 2


def test_the_peak_memory_of_a_task_is_its_own_and_not_that_of_its_parent(tmp_path):
    """The parent holds more than the child ever did, and the child let go of its peak."""
    held = b"x" * 300_000_000
    running = task(worker_tasks.take_and_give_back, tmp_path, number=100_000_000)
    assert running.result() == Sum(100_000_000, ())
    assert 100_000_000 < running.peak_memory_bytes < 200_000_000 < len(held)


def test_hostile_log_content_is_shown_short_and_without_control_characters(tmp_path):
    with fails(WorkerCrashed) as caught:
        task(worker_tasks.print_much, tmp_path).result()
    message = str(caught.value)
    first, *lines = message.split("\n")
    assert 1 <= len(lines) <= 12
    assert max(map(len, lines)) <= 250
    assert lines[-1].endswith("the end \N{REPLACEMENT CHARACTER}")
    assert all(character.isprintable() for line in [first, *lines] for character in line)


def test_the_log_of_a_child_that_printed_nothing_adds_nothing(tmp_path):
    with fails(WorkerCrashed):
        Child(["false"], label="false", cwd=tmp_path, access=FREE).wait()


def test_the_input_of_a_child_stays_open_and_silent(tmp_path):
    assert task(worker_tasks.read_input, tmp_path).result() == Sum(1, ())


# Nothing is left behind


def test_what_a_child_started_ends_with_it(tmp_path):
    limit = Allowance(timeout_s=1.5)
    running = task(worker_tasks.start_grandchild, tmp_path, limit, directory=str(tmp_path))
    pids = pids_in(tmp_path)
    with pytest.raises(WorkerTimedOut):
        running.result()
    assert_all_end(pids)


def test_what_a_child_leaves_running_ends_when_the_child_has_ended_well(tmp_path):
    command = ["sh", "-c", "sleep 600 & echo $! > pids"]
    Child(command, label="sh", cwd=tmp_path, access=FREE).wait()
    assert_all_end(pids_in(tmp_path))


def test_memory_is_counted_with_all_that_the_child_started(tmp_path):
    code = (
        "import subprocess, sys\n"
        "inner = \"x = b'x' * 80_000_000; print('ready', flush=True); input()\"\n"
        "child = subprocess.Popen([sys.executable, '-c', inner])\n"
        "child.wait()\n"
    )
    with Child([sys.executable, "-c", code], label="python", cwd=tmp_path, access=FREE) as child:
        wait_until(lambda: "ready" in child.tail(), "the allocation")
        assert resident_bytes(child._process.pid) > 80_000_000
    assert resident_bytes(child._process.pid) == 0


def test_leaving_the_with_block_ends_a_task(tmp_path):
    with task(worker_tasks.start_grandchild, tmp_path, directory=str(tmp_path)):
        pids = pids_in(tmp_path)
        assert all(alive(pid) for pid in pids)
    assert_all_end(pids)


def test_an_exception_inside_the_with_block_ends_a_child(tmp_path):
    with pytest.raises(ZeroDivisionError), sleeper(tmp_path) as child:
        _ = 1 / 0
    assert not alive(child._process.pid)


def test_killing_twice_is_harmless_and_leaves_the_second_owner_of_the_number_alone(
    tmp_path, monkeypatch
):
    child = sleeper(tmp_path)
    child.kill()
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _: killed.append(group))
    child.kill()
    assert killed == []


@pytest.mark.parametrize("what", ["start_grandchild", "command"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL", "SIGHUP"])
def test_no_child_outlives_a_parent_that_is_ended_by(name, what, tmp_path):
    """Not even a grandchild does; a task and a plain program alike."""
    with parent_of(what, tmp_path) as parent:
        pids = pids_in(tmp_path)
        assert all(alive(pid) for pid in pids)
        parent.send_signal(getattr(signal, name))
        assert parent.wait(DEADLINE_S) != 0
    assert_all_end(pids)


def test_a_child_that_lets_no_thread_run_does_not_outlive_a_killed_parent(tmp_path):
    with parent_of("hold_the_interpreter", tmp_path) as parent:
        pids = pids_in(tmp_path)
        parent.kill()
    assert_all_end(pids)


def test_a_child_outlives_the_thread_that_started_it(tmp_path):
    started: list[Child] = []
    thread = threading.Thread(target=lambda: started.append(sleeper(tmp_path, seconds=0.5)))
    thread.start()
    thread.join()
    started[0].wait()
    assert started[0]._process.returncode == 0


def test_two_hundred_children_leak_no_file_descriptor_and_no_thread(tmp_path):
    def run_one() -> None:
        Child(["true"], label="true", cwd=tmp_path, access=FREE).wait()

    run_one()
    files, threads = psutil.Process().num_fds(), threading.active_count()
    for _ in range(200):
        run_one()
    assert psutil.Process().num_fds() == files
    # The thread of the last child may be on its way out.
    wait_until(lambda: threading.active_count() <= threads, "the end of the threads")
    assert not workers._running


def test_a_program_that_is_not_there_has_crashed_and_leaks_no_file_descriptor(tmp_path):
    files = psutil.Process().num_fds()
    with fails(WorkerCrashed):
        Child(["no-such-program-anywhere"], label="none", cwd=tmp_path, access=FREE).wait()
    with pytest.raises(FileNotFoundError):
        Child(["true"], label="true", cwd=tmp_path / "no such directory", access=FREE)
    assert psutil.Process().num_fds() == files


def test_a_program_gets_its_arguments_as_they_are_and_an_empty_input(tmp_path):
    code = "import os, sys; os.set_blocking(0, False); print(sys.argv[1:], os.read(0, 9))"
    arguments = ["", "a b", "$HOME", "*", '"', "\\", "\n"]
    with (
        pytest.raises(WorkerCrashed) as caught,
        Child(
            [sys.executable, "-c", code, *arguments], label="it", cwd=tmp_path, access=FREE
        ) as child,
    ):
        child.wait()
    assert "BlockingIOError" in str(caught.value)
    code = "import sys; print(sys.argv[1:])"
    Child([sys.executable, "-c", code, *arguments], label="it", cwd=tmp_path, access=FREE).wait()
    assert (tmp_path / "log.txt").read_text() == f"{arguments}\n"


def test_a_child_killed_before_it_began_has_crashed(tmp_path, monkeypatch):
    def kill_it(_pipe: int, session: int) -> None:
        os.kill(session, signal.SIGKILL)
        os.waitid(os.P_PID, session, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(workers, "_end_session_when_closed", kill_it)
    with fails(WorkerCrashed):
        Child(["true"], label="true", cwd=tmp_path, access=FREE).wait()


def test_a_parent_killed_before_the_child_is_tied_to_it_leaves_none(tmp_path):
    """At the worst moment: once the process is there, before anything else is done."""
    code = (
        "import os, pathlib, signal, sys, edgeconv.system.processes.workers as w\n"
        "from edgeconv.system.processes.sandbox import Access\n"
        "def die(stdin, session):\n"
        "    pathlib.Path('pids').write_text(str(session))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "w._end_session_when_closed = die\n"
        "w.Child(['sleep', '600'], label='sleeper', cwd=pathlib.Path(), "
        "access=Access(profile='programs'))\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert_all_end(pids_in(tmp_path))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("answer.json", b"{"),
        ("answer.json", b'{"total": "text"}'),
        ("peak.txt", b"many"),
        ("failure.json", b"[]"),
        ("failure.json", None),
    ],
)
def test_an_answer_that_no_function_of_ours_writes_is_a_crash(name, content, tmp_path):
    """A child that a hostile model has taken over writes what it likes."""
    done = task(worker_tasks.add_one, tmp_path, number=1)
    done.child.wait()
    (directory,) = tmp_path.glob("add_one-*")
    if content is None:
        (directory / name).mkdir()
    else:
        (directory / name).write_bytes(content)
    with fails(WorkerCrashed):
        done.answer()


# Several at once


def test_a_child_that_nobody_waits_for_is_still_held_to_its_allowance(tmp_path):
    with sleeper(tmp_path / "idle", timeout_s=0.3) as idle:
        sleeper(tmp_path / "busy", seconds=1).wait()
        assert not alive(idle._process.pid)
        with fails(WorkerTimedOut):
            idle.wait()


def test_a_child_that_ended_in_time_is_not_blamed_for_being_waited_for_late(tmp_path):
    with sleeper(tmp_path / "early", seconds=0, timeout_s=DEADLINE_S) as early:
        wait_until(lambda: not alive(early._process.pid), "its end")
        early._started_s -= DEADLINE_S
        sleeper(tmp_path / "late", seconds=0.3).wait()
        early.wait()
        assert early._process.returncode == 0


def test_while_one_child_is_talked_with_the_others_are_held_to_their_memory(tmp_path):
    """Two models of a conversion run at a time, and one of them is waited for."""
    for name in ("hog", "other"):
        (tmp_path / name).mkdir()
    hold = "held = b'1' * (300 * 2**20); import time; time.sleep(600)"
    limit = Allowance(timeout_s=600, memory_bytes=100 * 2**20)
    with Child(
        [sys.executable, "-c", hold],
        label="hog",
        cwd=tmp_path / "hog",
        access=FREE,
        allowance=limit,
    ) as hog:
        wait = f"while [ -e /proc/{hog._process.pid} ]; do sleep 0.01; done"
        other = Runner(
            command=("sh", "-c", f"echo edgeconv runner 1; {wait}; echo '{{}}'"),
            package="ai_edge_litert",
            label="other",
            scratch=tmp_path / "other",
            access=FREE,
            allowance=Allowance(timeout_s=60),
        )
        with Conversation(other) as talk:
            assert talk.hear() == ({}, {})
        with fails(WorkerOutOfMemory):
            hog.wait()


class Started:
    """Notes the order of things, for `start_ahead`."""

    def __init__(self, number: int, events: list[str], child: Child) -> None:
        self.number, self.child = number, child
        self._events = events
        events.append(f"start {number}")

    def close(self) -> None:
        self.child.kill()


@pytest.fixture(autouse=True)
def _only_children_of_its_own(monkeypatch):
    """What another file's fixtures still hold does not count here."""
    monkeypatch.setattr(workers, "_running", set())


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def starts(tmp_path, events) -> Iterator[list[Callable[[], Started]]]:
    def start_one(number: int) -> Started:
        return Started(number, events, sleeper(tmp_path / str(number), seconds=0.05))

    yield [functools.partial(start_one, number) for number in range(4)]
    assert not workers._running


def test_in_turn_starts_two_at_a_time_and_yields_in_order(starts, events):
    for running in start_ahead(starts):
        running.child.wait()
        events.append(f"done {running.number}")
    assert events == [
        *("start 0", "start 1", "done 0", "start 2", "done 1", "start 3", "done 2", "done 3")
    ]


@pytest.mark.parametrize(("width", "ahead"), [(1, 1), (3, 3), (9, 4)])
def test_in_turn_starts_no_more_than_its_width_before_the_first_is_done(
    width, ahead, starts, events
):
    turns = start_ahead(starts, width=width)
    next(turns)
    assert events == [f"start {number}" for number in range(ahead)]
    turns.close()


def test_in_turn_of_nothing_yields_nothing():
    assert list(start_ahead([])) == []


def test_in_turn_ends_the_rest_when_the_caller_stops_early(starts):
    pids = []
    for running in start_ahead(starts, width=3):
        pids = [child._process.pid for child in workers._running]
        running.child.wait()
        break
    assert len(pids) == 3
    assert not any(alive(pid) for pid in pids)


def test_in_turn_ends_the_rest_when_the_caller_raises(starts):
    def consume() -> None:
        for _name, running in zip("abcd", start_ahead(starts), strict=True):
            raise LookupError(running.number)

    with pytest.raises(LookupError):
        consume()
    assert not workers._running


def test_in_turn_ends_the_rest_when_one_cannot_be_started(starts, events):
    def fail_to_start() -> Started:
        raise OSError("no more processes")

    with fails(OSError):
        for _ in start_ahead([starts[0], starts[1], fail_to_start], width=3):
            pass
    assert events == ["start 0", "start 1"]
    assert not workers._running


def test_in_turn_ends_one_that_its_caller_did_not_wait_for(tmp_path, events):
    starts = [
        functools.partial(Started, number, events, sleeper(tmp_path / str(number)))
        for number in range(2)
    ]
    children = [running.child for running in start_ahead([*starts])]
    assert not any(alive(child._process.pid) for child in children)


def interrupting(step: int) -> Callable[..., Any]:
    """A trace function that raises KeyboardInterrupt before the operation number `step`."""
    counted = itertools.count()

    def trace(frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        frame.f_trace_opcodes = True
        if event == "opcode" and next(counted) == step:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    return trace


def wait_and_interrupt(child: Child, step: int) -> None:
    sys.settrace(interrupting(step))
    try:
        child.wait()
    finally:
        sys.settrace(None)


def test_an_interrupt_at_any_moment_ends_the_wait_and_the_child(tmp_path):
    """None of them leaves a lock locked, which would be waited for without end."""

    def fail(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, fail)
    try:
        # Two hundred operations are some polls.
        for step in range(200):
            signal.alarm(5)
            child = sleeper(tmp_path)
            with pytest.raises(KeyboardInterrupt):
                wait_and_interrupt(child, step)
            child.kill()
            assert not alive(child._process.pid)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert not workers._running


def test_an_interrupt_that_native_code_swallowed_is_raised_by_the_next_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda number, stop: handlers.update({number: stop}))
    monkeypatch.setattr(signals, "_interrupted", False)
    handlers: dict[int, Callable[[int, None], None]] = {}
    signals.end_on_signals()
    assert handlers.keys() == {signal.SIGINT, signal.SIGTERM}
    with pytest.raises(KeyboardInterrupt):
        handlers[signal.SIGTERM](signal.SIGTERM, None)
    child = sleeper(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        child.wait()
    assert not alive(child._process.pid)
    # The next command line begins anew.
    signals.end_on_signals()
    Child(["true"], label="true", cwd=tmp_path, access=FREE).wait()


def test_what_the_machine_refuses_is_told_as_such(tmp_path):
    with fails(OutputRefused):
        task(worker_tasks.write_too_much, tmp_path).result()


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGSEGV, OutputRefused), (signal.SIGKILL, WorkerKilled)]
)
def test_a_child_that_dies_where_there_is_no_room_blames_the_machine(
    number, kind, tmp_path, monkeypatch
):
    monkeypatch.setattr(failures, "_LEAST_FREE_BYTES", 2**62)
    with pytest.raises(kind):
        task(worker_tasks.die_by_signal, tmp_path, number=number).result()


@pytest.mark.parametrize("number", [errno.EFBIG, errno.ENOSPC])
def test_what_a_tool_says_in_the_words_of_the_system_is_of_the_machine(number):
    said = RuntimeError(f"exported/saved_model.pb.tmp8f; {os.strerror(number)}")
    told = failures.machine_error(said, "a conversion")
    assert isinstance(told, OutputRefused)
    assert failures.machine_error(OSError(number, "")).hint == told.hint
    assert failures.machine_error(RuntimeError(f"{os.strerror(number)}, he said")) is None


@pytest.mark.parametrize(
    ("function", "is_of_input"),
    [(worker_tasks.die_by_signal, True), (worker_tasks.leave_without_answer, True)],
)
def test_only_a_child_that_crashed_blames_what_it_read(function, is_of_input, tmp_path):
    with pytest.raises(WorkerCrashed) as crashed:
        task(function, tmp_path, number=signal.SIGSEGV).result()
    assert failures.blames_input(crashed.value) is is_of_input
    assert failures.blames_input(WorkerTimedOut("long"))
    assert not failures.blames_input(WorkerCrashed("an import", cause=errors.Cause(status=1)))
    assert not failures.blames_input(WorkerKilled("by somebody"))
