"""Starting the processes of a `Distribution`: one, a member of a cluster, or a whole cluster."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from edgeconv.plugins import member_hosts
from edgeconv.tf.training.member import serve_member
from edgeconv.training.cluster import from_tf_config
from edgeconv.training.members import ClusterMember, ProcessSettings, run_cluster
from edgeconv.training.ports import local_cluster
from edgeconv.types.errors import UsageError, WorkerCrashed, WorkerOutOfMemory, WorkerTimedOut

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.system.processes.sandbox import Access
    from edgeconv.training.cluster import Cluster
    from edgeconv.types import Distribution

Answer = TypeVar("Answer")

_TF_CONFIG = "TF_CONFIG"
_SECOND_GPU = Path("/dev/nvidia1")
_RESUMES = "run the same command again: the training resumes from its last checkpoint"
# An exception would be raised again.
_CORRECTED = (
    "correct what the last lines say; then run the command again, which resumes the training from "
    "its last checkpoint"
)


def clusters_of(distribution: Distribution) -> tuple[Cluster, ...]:
    """The clusters as the processes to start here see them; () where one trains alone.

    Raises `UsageError` where the strategy needs a TF_CONFIG and there is none, for one that is
    malformed or not for this strategy, and for one in addition to `workers`.
    """
    strategy, workers = distribution.strategy, distribution.workers
    tf_config = os.environ.get(_TF_CONFIG, "").strip()
    # An empty one tells a process that it is alone.
    tf_config = "" if tf_config == "{}" else tf_config
    if strategy not in ("multiworker", "parameter-server"):
        if tf_config:
            from_tf_config(tf_config).for_strategy(strategy)
        return ()
    if workers and tf_config:
        raise UsageError(
            f"--workers {workers} starts a cluster here, but TF_CONFIG names another one",
            hint="remove --workers, or unset TF_CONFIG",
        )
    if workers:
        coordinated = strategy == "parameter-server"
        servers = distribution.servers or int(coordinated)
        return local_cluster(workers, servers, coordinator=coordinated)
    if not tf_config:
        raise UsageError(
            f"--strategy {strategy} needs a cluster, and there is no TF_CONFIG",
            hint="add --workers 2 to start one on this machine, or set TF_CONFIG for each member",
        )
    return (from_tf_config(tf_config).for_strategy(strategy),)


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
    distribution: Distribution,
    settings: ProcessSettings,
    *,
    resumes: bool = True,
) -> Answer | None:
    """Run `train` in each process that does not only serve a coordinator; the chief's result.

    `job` returns the job of a member, by whether it is the chief. None where the chief is not
    among the processes started here. Raises as `run_cluster`; where a training `resumes`, its
    progress or error says so.
    With `settings.on`, the members run on the nodes of Ray.
    """
    starts: list[ClusterMember[Any]] = [
        ClusterMember(serve_member if cluster.serves else train, job(cluster.is_chief), cluster)
        for cluster in clusters
    ] or [ClusterMember(train, job(True))]
    access = _widened(settings.access, clusters, distribution)
    settings = replace(settings, access=access, connect_timeout_s=distribution.connect_timeout_s)
    try:
        run = run_cluster if settings.on is None else member_hosts().run_on_ray
        results: dict[str, Answer] = run(starts, settings)
    except KeyboardInterrupt:
        if resumes:
            settings.on_progress(_RESUMES)
        raise
    except (WorkerCrashed, WorkerOutOfMemory, WorkerTimedOut) as error:
        if not resumes:
            raise
        if error.cause.status > 0:
            raise type(error)(error.message, hint=_CORRECTED, cause=error.cause) from error
        # The limit comes first, since the training would meet it again.
        limit = "" if isinstance(error, WorkerCrashed) else error.hint
        hint = f"{limit}; then {_RESUMES}" if limit else _RESUMES
        raise type(error)(error.message, hint=hint) from error
    if not clusters:
        return results[settings.label]
    chief = next((cluster.member_name for cluster in clusters if cluster.is_chief), None)
    return None if chief is None else results[chief]


def _widened(access: Access, clusters: tuple[Cluster, ...], distribution: Distribution) -> Access:
    """`access` with a network, where processes of this training talk to others.

    NCCL uses sockets, also from GPU to GPU within one process.
    """
    talks = bool(clusters) or distribution.strategy == "tpu" or _SECOND_GPU.exists()
    if talks and access.profile == "training":
        return msgspec.structs.replace(access, profile="cluster")
    return access
