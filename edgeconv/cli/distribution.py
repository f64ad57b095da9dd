"""The options that say what a training runs on, and the value they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from edgeconv.cli.values import ADDRESS, NAMES
from edgeconv.types import STRATEGY_NAMES, Communication, CrossDeviceOps, Distribution

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OPTIONS = (
    click.option(
        "--workers",
        type=click.IntRange(1),
        help="Start so many local processes, with TF_CONFIG set: for multiworker and "
        "parameter-server. Without it, TF_CONFIG says what the cluster is.",
    ),
    click.option(
        "--servers",
        type=click.IntRange(1),
        help="With --workers and parameter-server: how many parameter servers. [default: 1]",
    ),
    click.option(
        "--devices",
        type=NAMES,
        metavar="N|NAMES",
        help="How many GPUs or, without a GPU, logical CPU devices; or which, as GPU:0,GPU:2. "
        "[default: all GPUs, or 2 CPU devices]",
    ),
    click.option(
        "--cross-device-ops",
        type=click.Choice(get_args(CrossDeviceOps)),
        default="auto",
        show_default=True,
        help="How mirrored sums gradients.",
    ),
    click.option(
        "--communication",
        type=click.Choice(get_args(Communication)),
        default="auto",
        show_default=True,
        help="How multiworker does.",
    ),
    click.option(
        "--tpu", type=ADDRESS, default="", metavar="NAME", help="The TPU's name or address."
    ),
    click.option("--gpu-memory-growth", is_flag=True, help="Take a GPU's memory as it is needed."),
    click.option(
        "--gpu-memory-limit-mib", type=click.IntRange(1), help="Take no more than this of a GPU's."
    ),
    click.option(
        "--connect-timeout-s",
        type=click.FloatRange(0, min_open=True),
        default=300.0,
        show_default=True,
        help="How long to wait for the other members of a cluster.",
    ),
)


def distribution_options(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of every command that trains; `default` is the strategy's."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(_OPTIONS):
            command = option(command)
        return click.option(
            "--strategy", type=click.Choice(STRATEGY_NAMES), default=default, show_default=True
        )(command)

    return decorated


def distribution(options: Mapping[str, Any]) -> Distribution:
    """The values of `distribution_options` as one. Raises `UsageError`."""
    devices, count = _devices(options["devices"] or "")
    return Distribution(
        strategy=options["strategy"],
        devices=devices,
        device_count=count,
        workers=options["workers"] or 0,
        servers=options["servers"] or 0,
        cross_device_ops=options["cross_device_ops"],
        communication=options["communication"],
        tpu=options["tpu"],
        gpu_memory_growth=options["gpu_memory_growth"],
        gpu_memory_limit_mib=options["gpu_memory_limit_mib"] or 0,
        connect_timeout_s=options["connect_timeout_s"],
    )


def _devices(text: str) -> tuple[tuple[str, ...], int]:
    from edgeconv.cli.options import comma_list
    from edgeconv.errors import UsageError

    if not text.isdecimal():
        return tuple(comma_list(text)), 0
    if not int(text):
        raise UsageError("--devices 0", hint="at least 1 is needed")
    return (), int(text)
