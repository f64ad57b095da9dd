"""Members on Ray: what of them runs without a cluster, in this process."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import worker_tasks
from loaded_modules import loaded_by
from wording import fails
from worker_tasks import FREE, HERE, Job

from edgeconv.plugins.scale.training_on_ray import (
    MOST_RESTARTS,
    MemberHost,
    News,
    refuse_unplaceable,
    with_restarts,
)
from edgeconv.system.processes.failures import ChildFailure
from edgeconv.training.cluster import (
    Cluster,
    held_port,
    host_and_port,
    local_cluster,
    moved,
    refuse_taken_port,
)
from edgeconv.training.members import ClusterMember, ProcessSettings
from edgeconv.types import Allowance, Distribution
from edgeconv.types.errors import (
    ClusterLost,
    EdgeconvError,
    ToolFailed,
    UsageError,
    WorkerCrashed,
    WorkerKilled,
    WorkerTimedOut,
)

# Places


def test_every_member_sees_the_addresses_that_were_reserved_in_the_order_of_the_members():
    views = moved(local_cluster(2, 1, coordinator=True), ["a:1", "b:2", "[::1]:3", "b:4"])
    assert [view.address for view in views] == ["a:1", "b:2", "[::1]:3", "b:4"]
    assert {view.member_name: view.address for view in views} == views[0].members
    assert len({view.tf_config().partition('"task"')[0] for view in views}) == 1


def test_a_held_port_is_taken_until_it_is_closed():
    with held_port() as held, held_port() as other:
        ports = [each.getsockname()[1] for each in (held, other)]
        assert ports[0] != ports[1]
        cluster = Cluster(addresses={"worker": (f"localhost:{ports[0]}",)}, role="worker", index=0)
        with pytest.raises(UsageError, match=f"port {ports[0]} of worker 0"):
            refuse_taken_port(cluster)
    refuse_taken_port(cluster)


@pytest.mark.parametrize(
    ("on", "distribution"),
    [
        ("rays", Distribution(strategy="multiworker", workers=2)),
        ("ray", Distribution(strategy="multiworker")),
        ("ray://127.0.0.1:10001", Distribution(strategy="mirrored")),
    ],
)
def test_what_has_no_members_to_place_is_refused(on, distribution):
    with fails(UsageError):
        refuse_unplaceable(on, distribution)


def test_what_a_node_imports_is_not_heavy():
    heavy = {"tensorflow", "ai_edge_litert", "ray", "numpy"}
    assert not loaded_by("import edgeconv.plugins.scale.training_on_ray") & heavy


# Restarts


def ending(*endings: tuple[int, EdgeconvError | None]) -> Callable[[Callable[[], None]], int]:
    """A training: how many checkpoints each run of it keeps, and how it ends."""
    runs = iter(endings)

    def run(on_checkpoint: Callable[[], None]) -> int:
        checkpoints, error = next(runs)
        for _ in range(checkpoints):
            on_checkpoint()
        if error:
            raise error
        return len([*runs])

    return run


LOST = WorkerKilled("worker 1 was ended by SIGKILL\n  | its log")


@pytest.mark.parametrize("error", [LOST, WorkerCrashed("worker 1"), ClusterLost("worker 1")])
def test_a_lost_member_starts_all_again_and_says_so(error):
    lines: list[str] = []
    assert with_restarts(ending((0, error), (0, None), (0, None)), lines.append) == 1
    (line,) = lines
    assert line.startswith("worker 1")
    assert line.endswith("; all start again from the last checkpoint")
    assert "log" not in line


def test_without_a_checkpoint_in_between_the_error_comes_after_so_many_restarts():
    lines: list[str] = []
    lost = [(0, LOST)] * (MOST_RESTARTS + 1)
    with pytest.raises(WorkerKilled):
        with_restarts(ending(*lost, (0, None)), lines.append)
    assert len(lines) == MOST_RESTARTS


def test_each_checkpoint_begins_the_count_again():
    lost = [(0, LOST)] * MOST_RESTARTS
    runs = [*lost, (2, LOST), *lost[1:], (1, LOST), (0, None)]
    assert with_restarts(ending(*runs), lambda _: None) == 0


@pytest.mark.parametrize(
    "error", [ToolFailed("diverged"), UsageError("no"), WorkerTimedOut("its time was up")]
)
def test_what_would_happen_again_is_raised_at_once(error):
    with pytest.raises(type(error)):
        with_restarts(ending((5, error), (0, None)), lambda _: None)


# A host, as its actor is


@pytest.fixture
def host(tmp_path, monkeypatch) -> Iterator[MemberHost]:
    pytest.importorskip("ray", reason="edgeconv[ray] is not installed")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    host = MemberHost()
    yield host
    host.end()
    assert not [*tmp_path.glob("edgeconv-*")]


def start(host: MemberHost, function: Any, job: Job, scratch: Path, **settings: Any) -> Cluster:
    """Start a member alone in its cluster."""
    address = host.reserve()
    assert isinstance(address, str)
    cluster = Cluster(addresses={"worker": (address,)}, role="worker", index=0)
    own = {"label": "training", "scratch": scratch, "access": FREE, "environment": HERE}
    failure = host.start(
        ClusterMember(function, job, cluster), ProcessSettings(**{**own, **settings}), "auto"
    )
    assert failure is None
    return cluster


def news_of(host: MemberHost) -> News:
    """All its news up to the end of its child."""
    log = progress = b""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        news = host.news()
        log, progress = log + news.log, progress + news.progress
        if news.ending:
            return News(log=log, progress=progress, ending=news.ending)
    raise AssertionError(log)


def test_a_host_hands_over_all_that_its_member_prints_reports_and_answers(host, tmp_path):
    cluster = start(host, worker_tasks.tell_who, Job(number=7), tmp_path)
    news = news_of(host)
    assert news.log.decode() == "".join(f"printed {index} by 7\n" for index in range(3))
    assert news.progress.decode().split("\n")[1:-1] == [f"epoch {index} of 7" for index in range(3)]
    assert (news.ending.failure, news.ending.signal) == (None, 0)
    assert cluster.tf_config().replace('"', '\\"') in news.ending.files["answer.json"].decode()


@pytest.mark.parametrize(
    ("function", "job", "settings", "kind"),
    [
        ("fail_after", Job(text="SIGKILL"), {}, WorkerKilled),
        ("fail_after", Job(text="SIGSEGV"), {}, WorkerCrashed),
        ("sleep", Job(number=60), {"allowance": Allowance(timeout_s=3)}, WorkerTimedOut),
    ],
)
def test_how_a_member_ended_comes_with_the_end_of_its_log(
    function, job, settings, kind, host, tmp_path
):
    start(host, getattr(worker_tasks, function), job, tmp_path, **settings)
    news = news_of(host)
    error = news.ending.failure.error()
    assert type(error) is kind
    assert error.message.startswith("worker 0 ")
    assert "  | " in error.message
    assert news.ending.signal in (9, 11)


def test_a_host_that_is_ended_ends_its_member(host, tmp_path):
    start(host, worker_tasks.start_grandchild, Job(directory=str(tmp_path)), tmp_path)
    while not (tmp_path / "pids").exists():
        assert host.news().ending is None
    processes = [psutil.Process(int(pid)) for pid in (tmp_path / "pids").read_text().split()]
    host.end()
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive


def test_a_member_that_does_not_reach_another_ends_with_its_name(host, tmp_path):
    address = host.reserve()
    with held_port() as held:
        nobody = f"127.0.0.1:{held.getsockname()[1]}"
    cluster = Cluster(addresses={"worker": (str(address), nobody)}, role="worker", index=0)
    settings = ProcessSettings(
        label="training", scratch=tmp_path, access=FREE, environment=HERE, connect_timeout_s=1.0
    )
    member = ClusterMember(worker_tasks.sleep, Job(number=600), cluster)
    assert host.start(member, settings, "auto") is None
    ended = news_of(host).ending
    assert f"no answer within 1 s from worker 1 ({nobody})" in ended.failure.message


def test_a_port_that_somebody_took_is_an_answer(host, tmp_path):
    host.reserve()
    with held_port() as held:
        taken = f"127.0.0.1:{held.getsockname()[1]}"
        cluster = Cluster(addresses={"worker": (taken,)}, role="worker", index=0)
        settings = ProcessSettings(label="training", scratch=tmp_path, access=FREE)
        member = ClusterMember(worker_tasks.sleep, Job(), cluster)
        failure = host.start(member, settings, "auto")
    assert isinstance(failure, ChildFailure)
    assert str(host_and_port(taken)[1]) in failure.message
