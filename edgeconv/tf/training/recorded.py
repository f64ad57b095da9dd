"""The record of a training."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from edgeconv.store import tool_versions
from edgeconv.types import Distribution, StrategyName, Training, TrainingRecord

if TYPE_CHECKING:
    from edgeconv.tf.training.epochs import Trained
    from edgeconv.tf.training.spec import TrainSpec

_STRATEGIES: dict[StrategyName, str] = {
    "none": "none",
    "mirrored": "MirroredStrategy",
    "central-storage": "CentralStorageStrategy",
    "multiworker": "MultiWorkerMirroredStrategy",
    "parameter-server": "ParameterServerStrategy",
    "tpu": "TPUStrategy",
}


def record_of(
    training: Training,
    spec: TrainSpec,
    trained: Trained,
    strategy: Any,
    *,
    learning_rate: float,
    workers: int,
    started_s: float,
) -> TrainingRecord:
    """The record of a training that began at `started_s` (`time.perf_counter`), before its test."""
    distribution, progress = training.distribution, trained.progress
    return TrainingRecord(
        model=training.name,
        strategy=strategy_name(distribution),
        loop=training.loop,
        replicas=strategy.num_replicas_in_sync,
        workers=workers,
        devices=_devices(distribution, strategy),
        cross_device_ops=distribution.cross_device_ops,
        global_batch=trained.order.batch,
        steps_per_epoch=trained.order.steps,
        learning_rate=learning_rate,
        seed=training.seed,
        epochs=progress.epochs,
        best_epoch=progress.best_epoch,
        stopped=progress.stopped,
        resumed_at=progress.resumed_at,
        train_samples=len(spec.train),
        validation_samples=len(spec.validation or ()),
        seconds=math.fsum(epoch.seconds for epoch in progress.epochs),
        wall_seconds=time.perf_counter() - started_s,
        tools=tool_versions(),
    )


def strategy_name(distribution: Distribution) -> str:
    """The name that TensorFlow gives the strategy, or "none"."""
    return _STRATEGIES[distribution.strategy]


def _devices(distribution: Distribution, strategy: Any) -> tuple[str, ...]:
    """The devices of the replicas in this process."""
    if distribution.strategy in ("none", "parameter-server"):
        return distribution.devices
    names: tuple[str, ...] = strategy.extended.worker_devices
    return tuple(name.rpartition("/device:")[2] for name in names)
