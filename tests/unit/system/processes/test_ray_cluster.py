"""`--on`: which clusters are taken, and what is missing without the extra."""

import functools
import sys

import msgspec
import pytest
from loaded_modules import loaded_by
from wording import fails
from worker_tasks import FREE, HERE, Job, Sum, add_one

from edgeconv.plugins.scale import cluster
from edgeconv.plugins.scale.cluster import RayCluster, parse_address, run_remotely
from edgeconv.system.processes.failures import ChildFailure
from edgeconv.system.processes.sandbox import policy
from edgeconv.system.processes.tasks import start_task
from edgeconv.types import Allowance
from edgeconv.types.errors import SandboxMissing, UsageError
from edgeconv.types.execution import SandboxMode


@pytest.mark.parametrize(
    "text", ["ray:x", "ray://", "ray://host", "http://h:1", "RAY", "ray://h:x"]
)
def test_other_texts_are_refused(text):
    with fails(UsageError):
        parse_address(text)


def test_without_the_extra_there_is_one_error_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with fails(UsageError):
        RayCluster("local")


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("ray://10.0.0.1:10001", ""),
        ("ray://cluster.example:10001", "disabled"),
        # A cluster that is started here listens on every address.
        ("local", "disabled"),
    ],
)
def test_a_cluster_without_a_token_is_refused(address, mode, monkeypatch):
    pytest.importorskip("ray", reason="edgeconv[ray] is not installed")
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with fails(UsageError):
        RayCluster(address)


def test_a_node_without_a_sandbox_runs_nothing_where_the_caller_requires_one(monkeypatch):
    missing = policy.Wall(kind="none", reason="this node has no Landlock")
    monkeypatch.setattr(policy, "available", lambda: missing)
    # So that the child finds the function.
    monkeypatch.setattr(cluster, "start_task", functools.partial(start_task, environment=HERE))
    answer, failure, _ = add_one_remotely("required")
    error = msgspec.json.decode(failure, type=ChildFailure).error()
    assert (answer, type(error)) == (b"", SandboxMissing)
    assert "this node has no Landlock" in error.message
    answer, failure, files = add_one_remotely("auto")
    assert (msgspec.json.decode(answer, type=Sum).total, failure, files) == (2, b"", {})
    assert policy.sandbox_mode() == "auto"


def add_one_remotely(mode: SandboxMode) -> tuple[bytes, bytes, dict[str, bytes]]:
    """As in a worker of Ray."""
    reference = f"{add_one.__module__}:{add_one.__qualname__}"
    job = msgspec.json.encode(Job(number=1))
    return run_remotely(reference, job, "add one", FREE, Allowance(), mode)


def test_what_a_worker_imports_is_not_heavy():
    assert not loaded_by("import edgeconv.plugins.scale.cluster") & {"tensorflow", "ai_edge_litert"}
