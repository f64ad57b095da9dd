"""Options of a training that contradict each other, found before any process starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.errors import UsageError
from edgeconv.types import LOCAL_STRATEGIES

if TYPE_CHECKING:
    from edgeconv.types import Distribution, Training


def refuse_options(training: Training) -> None:
    """Raise `UsageError` for numbers out of range, and options that exclude each other."""
    if not training.name:
        raise UsageError(
            f"{training.module!r} is not a model module",
            hint="give a name, or a file ending in .py",
        )
    _refuse_numbers(training)
    _refuse_idle(training.distribution)
    coordinated = training.distribution.strategy == "parameter-server"
    if coordinated and training.loop == "fit" and training.checkpoint_steps is not None:
        raise UsageError(
            "--checkpoint-steps: under ParameterServerStrategy, Keras's fit reports only at the "
            "end of an epoch",
            hint="remove --checkpoint-steps, or choose --loop custom",
        )
    if training.patience is not None and not training.validation_fraction:
        raise UsageError(
            "--patience needs validation samples", hint="add --validation-fraction 0.1"
        )


def _refuse_numbers(training: Training) -> None:
    at_least_one = {
        "--epochs": training.epochs,
        "--global-batch": training.global_batch,
        "--steps-per-epoch": training.steps_per_epoch,
        "--checkpoint-steps": training.checkpoint_steps,
        "--patience": training.patience,
    }
    for option, value in at_least_one.items():
        if value is not None and value < 1:
            raise UsageError(f"{option} {value}: must be at least 1")
    if training.learning_rate is not None and not 0 < training.learning_rate < float("inf"):
        raise UsageError(f"--learning-rate {training.learning_rate:g}: must be above 0")
    if not 0 <= training.validation_fraction < 1:
        raise UsageError(f"--validation-fraction {training.validation_fraction:g} is not in 0 to 1")
    if not 0 <= training.seed < 2**32:
        raise UsageError(f"--seed {training.seed} is not in 0 to 2**32 - 1")


def _refuse_idle(distribution: Distribution) -> None:
    strategy = distribution.strategy
    clusters = strategy in ("multiworker", "parameter-server")
    local = strategy in LOCAL_STRATEGIES
    idle = {
        "--devices": not local and bool(distribution.devices or distribution.device_count),
        "--cross-device-ops": strategy != "mirrored" and distribution.cross_device_ops != "auto",
        "--communication": strategy != "multiworker" and distribution.communication != "auto",
        "--tpu": strategy != "tpu" and bool(distribution.tpu),
        "--workers": not clusters and bool(distribution.workers),
        "--servers": strategy != "parameter-server" and bool(distribution.servers),
    }
    for option, is_idle in idle.items():
        if is_idle:
            raise UsageError(
                f"{option} has no effect with --strategy {strategy}", hint=f"remove {option}"
            )
    if distribution.device_count < 0 or distribution.workers < 0 or distribution.servers < 0:
        raise UsageError("--devices, --workers and --servers must not be below 0")
    if distribution.servers and not distribution.workers:
        raise UsageError(
            "--servers needs --workers", hint="add --workers; without it, TF_CONFIG names servers"
        )
    count = distribution.device_count or len(distribution.devices)
    if strategy == "none" and count > 1:
        raise UsageError(
            f"--strategy none trains on one device, not on {count}",
            hint="choose --strategy mirrored",
        )
    if distribution.gpu_memory_limit_mib < 0:
        limit_mib = distribution.gpu_memory_limit_mib
        raise UsageError(f"--gpu-memory-limit-mib {limit_mib}: must not be below 0")
    if not distribution.connect_timeout_s > 0:
        timeout_s = distribution.connect_timeout_s
        raise UsageError(f"--connect-timeout-s {timeout_s:g}: must be above 0")
