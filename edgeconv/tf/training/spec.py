"""What is trained: the model, the samples, the loss and the metric, and how long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.system.store import tool_versions
from edgeconv.types import Distribution, StrategyName, Training, TrainingRecord
from edgeconv.types.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeconv.tf.training.epochs import Trained

PerSample = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class LabeledSamples:
    """Labeled samples: (n, *sample_shape) by input name, and labels of (n, *label_shape)."""

    inputs: Mapping[str, NDArray[Any]]
    labels: NDArray[Any]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[Any]) -> LabeledSamples:
        """The samples of `rows`, bool (n,) or indices (m,)."""
        inputs = {name: array[rows] for name, array in self.inputs.items()}
        return LabeledSamples(inputs, self.labels[rows])


class AdvisedOptions(NamedTuple):
    """What a command calls the options that an error of the training advises to change.

    `is_resumed_slower`: with another learning rate, the training is the same and goes on.
    """

    learning_rate: str = "--learning-rate"
    global_batch: str = "--global-batch"
    is_resumed_slower: bool = True


TRAIN_OPTIONS = AdvisedOptions()


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """What is trained.

    `build` returns a new model and is called in the strategy's scope. `loss` and `metric` map
    (labels, outputs), tensors of (batch, ...), to one number per sample, (batch,); a larger metric
    is better. `optimizer` takes (model, steps, replicas). `begin` is called with a model that was
    not resumed from a checkpoint; `at_epoch`, before each epoch, with its index and the model.
    `plain` returns a copy of a trained model without its strategy.
    """

    name: str
    build: Callable[[], Any]
    train: LabeledSamples
    validation: LabeledSamples | None
    loss: PerSample
    metric: PerSample
    metric_name: str
    optimizer: Callable[[Any, int, int], Any]
    plain: Callable[[Any], Any]
    begin: Callable[[Any], None] = lambda _model: None
    at_epoch: Callable[[int, Any], None] = lambda _epoch, _model: None
    options: AdvisedOptions = TRAIN_OPTIONS


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long, and in which steps. `steps_per_epoch` None: each epoch is one pass.

    A checkpoint is kept every `checkpoint_steps` steps, and at the end of each epoch.
    `patience`: epochs without a better validation metric after which the training ends.
    """

    epochs: int
    global_batch: int
    seed: int
    steps_per_epoch: int | None = None
    checkpoint_steps: int | None = None
    patience: int | None = None


def refuse_schedule(
    schedule: Schedule, samples: int, replicas: int, options: AdvisedOptions = TRAIN_OPTIONS
) -> None:
    """Raise `UsageError` for a global batch that does not fit the samples or replicas."""
    batch, option = schedule.global_batch, options.global_batch
    if batch % replicas:
        raise UsageError(
            f"a global batch of {batch} cannot be shared evenly by {replicas} replicas",
            hint=f"{option} {batch - batch % replicas or replicas} or "
            f"{batch - batch % replicas + replicas}",
        )
    if samples < batch:
        raise UsageError(
            f"{samples} training samples are fewer than one global batch of {batch}",
            hint=f"lower {option}, or give more samples",
        )


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
        loop=trained.loop,
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
