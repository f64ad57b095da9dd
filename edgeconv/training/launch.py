"""Starting what a `Distribution` asks for: one process, a member of a cluster, or a whole one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from edgeconv.errors import UsageError, WorkerCrashed, WorkerOutOfMemory, WorkerTimedOut
from edgeconv.tf.training.member import serve_member
from edgeconv.training.cluster import from_tf_config
from edgeconv.training.members import ClusterMember, run_cluster
from edgeconv.training.ports import local_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edgeconv.processes.sandbox import Access
    from edgeconv.training.cluster import Cluster
    from edgeconv.types import Allowance, Distribution

Answer = TypeVar("Answer")

_TF_CONFIG = "TF_CONFIG"
_SECOND_GPU = Path("/dev/nvidia1")
_GOES_ON = "run the same command again: the training goes on from its last checkpoint"


def clusters_of(distribution: Distribution) -> tuple[Cluster, ...]:
    """The clusters as the processes to start here see them; none where one trains alone.

    Raises `UsageError` where the strategy needs a TF_CONFIG and there is none, for one that is
    malformed or not for this strategy, and for one besides `workers`.
    """
    strategy, workers = distribution.strategy, distribution.workers
    given = os.environ.get(_TF_CONFIG, "").strip()
    # So a process is told that it is alone.
    given = "" if given == "{}" else given
    if strategy not in ("multiworker", "parameter-server"):
        if given:
            from_tf_config(given).for_strategy(strategy)
        return ()
    if workers and given:
        raise UsageError(
            f"--workers {workers} starts a cluster here, and TF_CONFIG says that there is one",
            hint="leave --workers away, or unset TF_CONFIG",
        )
    if workers:
        coordinated = strategy == "parameter-server"
        servers = distribution.servers or int(coordinated)
        return local_cluster(workers, servers, coordinator=coordinated)
    if not given:
        raise UsageError(
            f"--strategy {strategy} needs to know its cluster, and there is no TF_CONFIG",
            hint="--workers 2 starts one on this machine; else set TF_CONFIG for each member",
        )
    return (from_tf_config(given).for_strategy(strategy),)


def is_chief(clusters: tuple[Cluster, ...]) -> bool:
    """Whether one of the processes to start here keeps checkpoints and exports."""
    return not clusters or any(cluster.is_chief for cluster in clusters)


def workers_of(clusters: tuple[Cluster, ...]) -> int:
    """How many processes train."""
    if not clusters:
        return 1
    trains_itself = clusters[0].size("ps") == 0
    return clusters[0].size("worker") + (clusters[0].size("chief") if trains_itself else 0)


def launch(
    clusters: tuple[Cluster, ...],
    train: Callable[[Any], Answer],
    job: Callable[[bool], msgspec.Struct],
    *,
    distribution: Distribution,
    label: str,
    scratch: Path,
    access: Access,
    allowance: Allowance,
    environment: Mapping[str, str],
    on_progress: Callable[[str], None],
    resumes: bool = True,
) -> Answer | None:
    """Run `train` in each process, but where it only serves a coordinator; the chief's answer.

    `job` gives the job of a member, by whether it is the chief. None where the chief is not
    among the processes started here. Raises as `run_cluster` does; where a training `resumes`,
    whoever ended it is told so.
    """
    parts = [
        ClusterMember(_function(cluster, train), job(cluster.is_chief), cluster)
        for cluster in clusters
    ] or [ClusterMember(train, job(True))]
    try:
        answers: dict[str, Answer] = run_cluster(
            parts,
            label=label,
            scratch=scratch,
            access=_widened(access, clusters, distribution),
            allowance=allowance,
            environment=environment,
            connect_timeout_s=distribution.connect_timeout_s,
            on_progress=on_progress,
        )
    except KeyboardInterrupt:
        if resumes:
            on_progress(_GOES_ON)
        raise
    except (WorkerCrashed, WorkerOutOfMemory, WorkerTimedOut) as error:
        if not resumes:
            raise
        # A limit comes first: with the same one it would end so again.
        limit = "" if isinstance(error, WorkerCrashed) else error.hint
        hint = f"{limit}; then {_GOES_ON}" if limit else _GOES_ON
        raise type(error)(error.message, hint=hint) from error
    if not clusters:
        return answers[label]
    chief = next((cluster.member_name for cluster in clusters if cluster.is_chief), None)
    return None if chief is None else answers[chief]


def _widened(access: Access, clusters: tuple[Cluster, ...], distribution: Distribution) -> Access:
    """`access` with a network, where processes of this training talk to others.

    NCCL does so by sockets, also from GPU to GPU within one process.
    """
    talks = bool(clusters) or distribution.strategy == "tpu" or _SECOND_GPU.exists()
    if talks and access.profile == "training":
        return msgspec.structs.replace(access, profile="cluster")
    return access


def _function(cluster: Cluster, train: Callable[[Any], Answer]) -> Callable[[Any], Any]:
    return serve_member if cluster.serves else train
