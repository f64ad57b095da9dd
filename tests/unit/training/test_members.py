import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
import worker_tasks
from live_processes import DEADLINE_S, alive, wait_until
from wording import fails
from worker_tasks import FREE, HERE, Job, Sum

from edgeconv.system.processes import workers
from edgeconv.system.processes.tasks import start_task
from edgeconv.training import cluster as cluster_module
from edgeconv.training.cluster import Cluster, Look, Peers, find, local_cluster
from edgeconv.training.members import (
    ClusterMember,
    Member,
    ProcessSettings,
    run_cluster,
    run_together,
)
from edgeconv.types import CONNECTED, Allowance
from edgeconv.types.errors import (
    ToolFailed,
    UsageError,
    WorkerCrashed,
    WorkerOutOfMemory,
    WorkerTimedOut,
)


@pytest.fixture(autouse=True)
def _no_child_is_left(monkeypatch) -> Iterator[None]:
    # What another file's fixtures still hold does not count here.
    monkeypatch.setattr(workers, "_running", set())
    yield
    assert not workers._running


@pytest.fixture
def run(tmp_path) -> Callable[..., dict[str, Sum]]:
    def run_with(starts: list[ClusterMember[Sum]], **settings: Any) -> dict[str, Sum]:
        own = {"label": "training", "access": FREE, "allowance": Allowance(timeout_s=60)}
        own |= {"scratch": tmp_path, "environment": HERE, **settings}
        return run_cluster(starts, ProcessSettings(**own))

    return run_with


def parts_of(
    *tasks: tuple[Callable[[Job], Sum], dict[str, Any]], **sizes: int
) -> list[ClusterMember[Sum]]:
    """Each function with its job, as the members of a local cluster."""
    sizes = sizes or {"workers": len(tasks)}
    clusters = local_cluster(**sizes)
    return [
        ClusterMember(function, Job(**job), cluster)
        for (function, job), cluster in zip(tasks, clusters, strict=True)
    ]


def of_member(lines: list[str], name: str) -> list[str]:
    return [line.removeprefix(f"{name} | ") for line in lines if line.startswith(f"{name} | ")]


# What comes back, and what is passed on


def test_answers_come_by_name_and_lines_after_the_name_of_who_said_them(run):
    lines: list[str] = []
    tasks = [(worker_tasks.tell_who, {"number": number}) for number in range(2)]
    answers = run(parts_of(*tasks), on_progress=lines.append)
    assert {name: answer.total for name, answer in answers.items()} == {
        "worker 0": 0,
        "worker 1": 1,
    }
    for number in range(2):
        said = of_member(lines, f"worker {number}")
        assert sorted(said) == [
            *(f"epoch {index} of {number}" for index in range(3)),
            *(f"printed {index} by {number}" for index in range(3)),
        ]
        assert [line for line in said if line.startswith("epoch")] == sorted(said)[:3]
    assert len(lines) == 12
    assert not any(CONNECTED in line for line in lines)


def test_each_member_gets_its_own_tf_config(run):
    parts = parts_of((worker_tasks.tell_who, {}), (worker_tasks.tell_who, {}))
    answers = run(parts)
    told = [json.loads(answer.counts[0].name) for answer in answers.values()]
    assert [one["task"] for one in told] == [
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
    ]
    assert told[0]["cluster"] == told[1]["cluster"]
    assert told[0]["cluster"]["worker"] == [*parts[0].cluster.addresses["worker"]]


@pytest.mark.parametrize("is_alone", [False, True])
def test_that_a_checkpoint_was_kept_is_counted_and_not_shown(is_alone, run):
    lines: list[str] = []
    kept: list[None] = []
    parts = parts_of((worker_tasks.keep_checkpoints, {"number": 3}))
    if is_alone:
        parts = [ClusterMember(worker_tasks.keep_checkpoints, Job(number=3))]
    run(parts, on_progress=lines.append, on_checkpoint=lambda: kept.append(None))
    assert (len(kept), len(lines)) == ((0, 0) if is_alone else (3, 2))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "127.0.0.1"),
        ({"no_proxy": ".corp,local"}, ".corp,local,127.0.0.1"),
        ({"no_proxy": ".corp", "no_grpc_proxy": "x"}, "x,127.0.0.1"),
    ],
)
def test_no_proxy_is_between_the_members(given, expected, run, monkeypatch):
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    answers = run(parts_of((worker_tasks.tell_environment, {"text": "no_grpc_proxy"})))
    assert answers["worker 0"].counts[0].name == expected


def test_one_without_a_cluster_is_told_that_it_is_alone_and_its_reports_have_no_prefix(
    run, monkeypatch
):
    """Whatever TF_CONFIG is around it."""
    monkeypatch.setenv("TF_CONFIG", "something else")
    lines: list[str] = []
    answers = run([ClusterMember(worker_tasks.tell_who, Job(number=5))], on_progress=lines.append)
    assert answers["training"].counts[0].name == "{}"
    assert lines == [f"epoch {index} of 5" for index in range(3)]


def test_an_error_of_one_that_is_alone_says_where_its_log_is(run):
    with pytest.raises(ToolFailed) as caught:
        run([ClusterMember(worker_tasks.fail_after, Job(text="it did not work"))])
    message, kept = caught.value.message.split("\n  the whole log: ")
    assert (message, caught.value.hint) == ("it did not work", "a hint")
    with open(kept) as log:  # noqa: PTH123
        assert log.read() == "about to fail\n"


def test_lines_are_passed_on_while_the_member_still_runs(run):
    class SeenError(Exception):
        pass

    def stop(line: str) -> None:
        raise SeenError(line)

    parts = parts_of((worker_tasks.sleep, {"number": 600}), (worker_tasks.sleep, {"number": 600}))
    with pytest.raises(SeenError, match=r"worker \d \| going to sleep"):
        run(parts, on_progress=stop)


def test_what_is_hostile_in_reports_and_logs_never_reaches_the_terminal(run):
    lines: list[str] = []
    mebibytes = 20 * 2**20
    run(parts_of((worker_tasks.be_hostile, {"number": mebibytes})), on_progress=lines.append)
    assert all(line.isprintable() and len(line) < 300 for line in lines)
    said = of_member(lines, "worker 0")
    assert len(said) == len(lines) < 2000
    assert r"\u001b[31mred ?\u0007 report" in said
    assert "\\u001b]0;title\\u0007 \ufffd\ufffd \ufffd words \ufffd" in said
    assert " 9/9" in said
    assert said[-1] == "the last line"
    assert not any("chatter" in line for line in said)


def test_a_report_is_passed_on_once_it_is_whole(run):
    lines: list[str] = []
    run(parts_of((worker_tasks.report_in_halves, {})), on_progress=lines.append)
    assert lines == ["worker 0 | zwölf €"]


def test_eight_members_run_at_once(run):
    lines: list[str] = []
    tasks = [(worker_tasks.tell_who, {"number": number}) for number in range(8)]
    answers = run(parts_of(*tasks), on_progress=lines.append)
    assert [answer.total for _, answer in sorted(answers.items())] == [*range(8)]
    assert len(lines) == 48


# Members that serve


def test_members_that_serve_are_ended_when_the_others_are_done(run):
    parts = parts_of(
        (worker_tasks.tell_who, {"number": 7}),
        (worker_tasks.sleep, {"number": 600}),
        (worker_tasks.sleep, {"number": 600}),
        workers=1,
        servers=1,
        coordinator=True,
    )
    answers = run(parts)
    assert {name: answer.total for name, answer in answers.items()} == {"chief": 7}


def test_answers_are_in_the_order_of_the_members_whoever_is_first(run):
    parts = parts_of((worker_tasks.sleep, {"number": 1}), (worker_tasks.add_one, {}))
    assert [*run(parts)] == ["worker 0", "worker 1"]


def test_a_member_that_serves_and_dies_is_an_error(run):
    parts = parts_of(
        (worker_tasks.sleep, {"number": 600}),
        (worker_tasks.sleep, {"number": 600}),
        (worker_tasks.fail_after, {"text": "SIGSEGV"}),
        workers=1,
        servers=1,
        coordinator=True,
    )
    with fails(WorkerCrashed):
        run(parts)


def test_where_only_a_member_that_serves_runs_here_it_is_waited_for(run):
    """As on the machine of a parameter server in a larger cluster."""
    _, _, server = local_cluster(1, 1, coordinator=True)
    assert server.serves
    assert run([ClusterMember(worker_tasks.tell_who, Job(number=3), server)])["ps 0"].total == 3


# Failures


def test_the_error_of_a_member_has_its_name_and_its_type_and_ends_the_others(run):
    parts = parts_of(
        (worker_tasks.sleep, {"number": 600}),
        (worker_tasks.refuse, {"text": "that"}),
        (worker_tasks.sleep, {"number": 600}),
    )
    with fails(UsageError) as caught:
        run(parts)
    assert type(caught.value) is UsageError


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM"])
def test_a_member_that_is_ended_by_a_signal_at_once_is_named(name, run):
    parts = parts_of(
        (worker_tasks.sleep, {"number": 600}), (worker_tasks.fail_after, {"text": name})
    )
    with fails(WorkerCrashed):
        run(parts)


LOST = "another member of the cluster is lost: Socket closed"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # The first one, of two alike.
        ("a fault", "another fault"),
        ("SIGSEGV", "SIGKILL"),
        (LOST, LOST),
        # The one that did not just miss the other.
        (LOST, "SIGKILL"),
        (LOST, "a fault"),
        ("a fault", LOST),
        ("SIGKILL", LOST),
        ("a fault", "SIGSEGV"),
    ],
)
def test_of_two_that_fail_within_a_moment_the_likely_cause_is_told(first, second, run, tmp_path):
    together = {"directory": str(tmp_path)}
    parts = parts_of(
        (worker_tasks.fail_after, {"text": first, **together}),
        (worker_tasks.fail_after, {"text": second, "number": 40, **together}),
    )
    with fails(ToolFailed):
        run(parts)


@pytest.mark.parametrize("how", ["a fault", "SIGKILL", LOST])
def test_what_befalls_another_when_the_chief_has_answered_is_no_failure(how, run, tmp_path):
    """All that there is to keep is kept."""
    together = {"directory": str(tmp_path)}
    parts = parts_of(
        (worker_tasks.meet_and_add, {"number": 7, **together}),
        (worker_tasks.fail_when_alone, {"text": how, **together}),
    )
    assert {name: answer.total for name, answer in run(parts).items()} == {"worker 0": 8}


def test_where_another_than_the_chief_has_answered_a_failure_is_one(run, tmp_path):
    together = {"directory": str(tmp_path)}
    parts = parts_of(
        (worker_tasks.fail_when_alone, {"text": "a fault", **together}),
        (worker_tasks.meet_and_add, {"number": 7, **together}),
    )
    with fails(ToolFailed):
        run(parts)


def test_a_member_that_aborts_for_want_of_another_is_not_the_cause(run, tmp_path):
    together = {"directory": str(tmp_path)}
    parts = parts_of(
        (worker_tasks.abort_with_words, {"text": "UNAVAILABLE: Socket closed", **together}),
        (worker_tasks.fail_after, {"text": "a fault", "number": 40, **together}),
    )
    with fails(ToolFailed):
        run(parts)


def test_after_a_failure_it_is_a_moment_until_all_is_over(run):
    parts = parts_of(
        (worker_tasks.fail_after, {"text": "a fault"}),
        (worker_tasks.fail_after, {"text": "SIGKILL", "number": 5000}),
    )
    # Were the other one waited for, its end would be the likelier cause.
    with fails(ToolFailed):
        run(parts)


def test_a_member_that_hangs_is_stopped_when_its_time_is_up_and_named(run):
    parts = parts_of((worker_tasks.sleep, {"number": 600}), (worker_tasks.add_one, {}))

    with pytest.raises(WorkerTimedOut, match=r"^worker 0 did not end within 2 s"):
        run(parts, allowance=Allowance(timeout_s=2))


def test_a_member_that_takes_too_much_memory_is_stopped_and_named(run):
    parts = parts_of(
        (worker_tasks.sleep, {"number": 600}), (worker_tasks.eat_memory, {"number": 600})
    )
    limit = Allowance(timeout_s=60, memory_bytes=150 * 2**20)
    with fails(WorkerOutOfMemory):
        run(parts, allowance=limit)


def test_when_all_run_out_of_time_one_that_serves_is_not_blamed(run):
    parts = parts_of(
        (worker_tasks.sleep, {"number": 600}),
        (worker_tasks.sleep, {"number": 600}),
        (worker_tasks.sleep, {"number": 600}),
        workers=1,
        servers=1,
        coordinator=True,
    )
    # The servers begin first, so that their time is up first.
    with pytest.raises(WorkerTimedOut, match=r"^chief did not end within 2 s"):
        run(parts[::-1], allowance=Allowance(timeout_s=2))


def test_a_port_in_use_is_refused_before_anything_starts(run, tmp_path):
    parts = parts_of((worker_tasks.add_one, {}), (worker_tasks.add_one, {}))
    port = int(parts[1].cluster.address.split(":")[1])
    with socket.create_server(("127.0.0.1", port)), fails(UsageError):
        run(parts)
    assert not [*tmp_path.glob("add_one-*")]


def test_members_given_as_started_tasks_are_run_too(tmp_path):
    members = [
        Member(
            name,
            start_task(
                worker_tasks.add_one,
                Job(number=number),
                label=name,
                scratch=tmp_path,
                access=FREE,
                environment=HERE,
            ),
        )
        for number, name in enumerate(["one", "two"])
    ]
    answers = run_together(members)
    assert {name: answer.total for name, answer in answers.items()} == {"one": 1, "two": 2}


# Nothing is left behind


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL", "SIGHUP"])
def test_no_member_outlives_a_parent_that_is_ended_by(name, tmp_path):
    """Nor does what a member started, nor the look for the others."""
    import signal

    code = "import sys, worker_tasks; worker_tasks.cluster_parent(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path)]
    environment = {**os.environ, **HERE}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as parent:
        files = [tmp_path / f"pids{number}" for number in range(3)]
        wait_until(lambda: all(file.exists() for file in files), "the start of the members")
        noted = {int(pid) for file in files for pid in file.read_text().split()}
        running = {child.pid for child in psutil.Process(parent.pid).children(recursive=True)}
        assert noted < running
        parent.send_signal(getattr(signal, name))
        assert parent.wait(DEADLINE_S) != 0
    wait_until(lambda: not any(alive(pid) for pid in running), "the end of all")


def test_an_interrupt_while_members_run_ends_them_all(run):
    parts = parts_of((worker_tasks.sleep, {"number": 600}), (worker_tasks.sleep, {"number": 600}))

    def interrupt(_line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(parts, on_progress=interrupt)
    # And the fixture holds that no child is left.


def test_clusters_leak_no_file_descriptor(run):
    def go() -> None:
        run(parts_of((worker_tasks.add_one, {}), (worker_tasks.add_one, {})))

    go()
    before = psutil.Process().num_fds()
    for _ in range(5):
        go()
    assert psutil.Process().num_fds() == before


# Who answers


def closed_port() -> int:
    return int(local_cluster(1)[0].address.split(":")[1])


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that neither takes nor refuses a connection: its queue is full."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        yield f"{address[0]}:{address[1]}"
        for one in waiting:
            one.close()


def look_until_raised(peers: Peers) -> None:
    try:
        for _ in range(int(DEADLINE_S / 0.02)):
            peers.look()
            time.sleep(0.02)
    finally:
        peers.close()


def look_until_answered(peers: Peers, *addresses: str) -> None:
    """And let its time be up then."""
    wait_until(lambda: peers.look() or not {*addresses} & {*peers._missing}, "an answer")
    peers._until_s = 0


def test_members_that_never_answer_are_named_after_the_time_is_up(tmp_path, silent):
    refused = f"127.0.0.1:{closed_port()}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = f"127.0.0.1:{server.getsockname()[1]}"
        addresses = {
            "worker 0": answering,
            "worker 1": refused,
            "worker 2": silent,
            "worker 3": "no-such-host.invalid:2222",
        }

        peers = Peers(addresses, 300, scratch=tmp_path)
        look_until_answered(peers, answering)
        with fails(ToolFailed):
            look_until_raised(peers)


def test_one_that_begins_to_answer_late_is_found(tmp_path):
    port = closed_port()
    peers = Peers({"worker 1": f"127.0.0.1:{port}"}, 60, scratch=tmp_path)
    try:
        time.sleep(1.0)
        peers.look()
        assert peers._missing
        with socket.create_server(("127.0.0.1", port)):
            wait_until(lambda: peers.look() or not peers._missing, "an answer")
    finally:
        peers.close()


def test_a_look_never_waits_however_many_do_not_answer(tmp_path, silent, monkeypatch):
    """Of 61 members most are silent, and some have names that nobody knows."""
    host, port = silent.split(":")
    addresses = {f"worker {number}": f"no-such-host-{number}.invalid:1" for number in range(20)}
    addresses |= {f"ps {number}": f"127.0.{number}.1:{closed_port()}" for number in range(40)}
    addresses["chief"] = f"{host}:{port}"
    peers = Peers(addresses, 1.5, scratch=tmp_path)

    def waits(*_: object, **__: object) -> None:
        raise AssertionError("the look itself asks, and not its child")

    for name in ("create_connection", "getaddrinfo", "socket"):
        monkeypatch.setattr(socket, name, waits)
    with fails(ToolFailed):
        look_until_raised(peers)


def test_where_all_answer_and_do_not_come_together_that_is_said(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        peers = Peers({"worker 1": address}, 300, scratch=tmp_path)
        look_until_answered(peers, address)
        with fails(ToolFailed):
            look_until_raised(peers)


def test_a_look_that_dies_is_an_error_and_blames_no_member(tmp_path):
    peers = Peers({"worker 1": f"127.0.0.1:{closed_port()}"}, 60, scratch=tmp_path)
    os.kill(peers._task.child._process.pid, 9)
    with fails(WorkerCrashed):
        look_until_raised(peers)


def test_a_connection_to_itself_is_no_answer(monkeypatch):
    """With the near end given the port that is asked for, as the system may do by chance."""

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ours = ("127.0.0.1", port)
    connect, connected = socket.create_connection, []

    def connect_from_there(there: tuple[str, int], wait_s: float) -> socket.socket:
        connected.append(connect(there, wait_s, source_address=ours))
        return connected[0]

    monkeypatch.setattr(socket, "create_connection", connect_from_there)
    assert not cluster_module._answers(f"127.0.0.1:{port}")
    # There was one.
    assert len(connected) == 1


def test_the_look_ends_when_all_have_answered():
    before = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert find(Look(addresses=(address, address))) == 2
    # Its threads have ended, too.
    assert threading.active_count() == before


def test_a_member_of_a_cluster_elsewhere_is_told_who_does_not_answer(run):
    """One process here; the others are on machines that are not there."""
    elsewhere = f"127.0.0.1:{closed_port()}"
    addresses: Any = {"worker": (f"127.0.0.1:{closed_port()}", elsewhere)}
    cluster = Cluster(addresses=addresses, role="worker", index=0)
    with fails(ToolFailed):
        run([ClusterMember(worker_tasks.sleep, Job(number=600), cluster)], connect_timeout_s=2)


@pytest.mark.slow
def test_once_it_is_connected_a_member_may_take_its_time(run):
    elsewhere = f"127.0.0.1:{closed_port()}"
    addresses: Any = {"worker": (f"127.0.0.1:{closed_port()}", elsewhere)}
    cluster = Cluster(addresses=addresses, role="worker", index=0)
    part = ClusterMember(worker_tasks.connect_then_sleep, Job(number=8), cluster)
    assert run([part], connect_timeout_s=6)["worker 0"].total == 1


def test_local_members_that_do_not_come_up_in_time_are_named_too(run):
    parts = parts_of(
        (worker_tasks.connect_then_sleep, {"number": 600}), (worker_tasks.sleep, {"number": 600})
    )
    with pytest.raises(ToolFailed, match="no answer within 2 s from worker"):
        run(parts, connect_timeout_s=2)
