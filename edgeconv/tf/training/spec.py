"""What is trained: the model, the samples, the loss and the metric, and how long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeconv.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """What is trained.

    `build` returns a new model and is called in the strategy's scope. `loss` and `metric` map
    (labels, outputs), tensors of (batch, ...), to one number per sample, (batch,); a larger metric
    is better. `optimizer` takes (model, steps, replicas). `begin` is called with a model that was
    not resumed from a checkpoint; `at_epoch`, before each epoch, with its index and the model;
    `at_step` after each step. `plain` returns a copy of a trained model without its strategy.
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
    at_step: Callable[[int, Any], None] | None = None


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


def refuse_schedule(schedule: Schedule, samples: int, replicas: int) -> None:
    """Raise `UsageError` for a global batch that does not fit the samples or replicas."""
    batch = schedule.global_batch
    if batch % replicas:
        raise UsageError(
            f"a global batch of {batch} cannot be shared evenly by {replicas} replicas",
            hint=f"--global-batch {batch - batch % replicas or replicas} or "
            f"{batch - batch % replicas + replicas}",
        )
    if samples < batch:
        raise UsageError(
            f"{samples} training samples are fewer than one global batch of {batch}",
            hint="lower --global-batch, or give more samples",
        )
