"""`--on` for what evaluates files: what a cluster cannot do, and the cluster."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from edgeconv.errors import UsageError
from edgeconv.processes.cluster import RayCluster, parse_address
from edgeconv.runtimes.clustered import refuse_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edgeconv.types import Execution, Measuring

OF_A_NODE = (
    "latency and memory: measured on a node of the cluster that had nothing else to do, or on the "
    "device"
)
UNTIMED_HERE = "the trained model ran on this machine, and its times are not compared with them"


def refuse_measuring(on: str, measuring: Measuring) -> None:
    """Raise `UsageError` for what is not a cluster, or cannot be measured on one."""
    parse_address(on)
    for choice in measuring.runtimes:
        refuse_choice(choice)
    options = {
        "every": measuring.every,
        "cold": measuring.cold,
        "profile": measuring.profile,
        "layers": measuring.layers,
        "runtimes": measuring.versions,
    }
    for name, value in options.items():
        if value:
            raise UsageError(
                f"--{name} is measured on this machine, and --on {on} evaluates on a cluster",
                hint=f"remove --on, or remove --{name}",
            )


@contextlib.contextmanager
def opened_cluster(
    on: str | None, execution: Execution, on_progress: Callable[[str], None]
) -> Iterator[RayCluster | None]:
    """The cluster that `--on` names, None without it. Raises as `RayCluster` does."""
    if on is None:
        yield None
        return
    on_progress("connecting to Ray")
    with RayCluster(parse_address(on), execution.threads) as cluster:
        yield cluster
