"""Going through the epochs of a training, the same for every strategy and loop."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from edgeconv.errors import InputRefused, ToolFailed, UsageError
from edgeconv.processes.tasks import report_progress
from edgeconv.tf.keras_io import keras_of
from edgeconv.tf.training.checkpoints import Checkpoints, Progress
from edgeconv.tf.training.coordinated import CoordinatedFitLoop, CoordinatorLoop
from edgeconv.tf.training.evaluation import Evaluation
from edgeconv.tf.training.feeding import Order
from edgeconv.tf.training.journal import TensorBoardLog
from edgeconv.tf.training.loops import CustomLoop, FitLoop, MetricSums
from edgeconv.tf.training.spec import refuse_schedule
from edgeconv.types import Epoch, LoopName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edgeconv.tf.training.loops import Loop
    from edgeconv.tf.training.spec import LabeledSamples, Schedule, TrainSpec

_SAMPLES_HASHED = 256


@dataclass(frozen=True, kw_only=True)
class TrainingContext:
    """Where a training runs and keeps things: its strategy, loop and directories.

    `coordinates`: the strategy is a coordinator's, whose workers do not wait for one another.
    """

    strategy: Any
    loop: LoopName
    coordinates: bool
    is_chief: bool
    checkpoints: str
    tensorboard: str | None


class Trained(NamedTuple):
    """A model on the strategy's variables, and how it came to be."""

    model: Any
    progress: Progress
    order: Order


def run_epochs(spec: TrainSpec, schedule: Schedule, context: TrainingContext) -> Trained:
    """Train to the end, from the last checkpoint where there is one.

    Raises `UsageError` for a schedule that makes no sense, `InputRefused` for a checkpoint of
    another training, `OutputRefused`, and `ToolFailed` where the loss is no longer a number.
    """
    replicas = 1 if context.coordinates else context.strategy.num_replicas_in_sync
    refuse_schedule(schedule, len(spec.train), replicas)
    order = Order(len(spec.train), schedule.global_batch, schedule.seed, schedule.steps_per_epoch)
    with context.strategy.scope():
        model = spec.build()
        optimizer = spec.optimizer(model, schedule.epochs * order.steps, replicas)
        # Else its variables come with the first step, and a checkpoint could not set them.
        optimizer.build(model.trainable_variables)
    _share_learning_rate(optimizer)
    _refuse_strategy(context, model)
    run = _EpochRunner(spec, schedule, context, order, model, optimizer)
    progress = run.begin()
    while len(progress.epochs) < schedule.epochs and not progress.stopped:
        progress = run.epoch(progress)
    if progress.best_epoch:
        run.keep_best(progress.best_epoch)
    return Trained(model, progress, order)


def _share_learning_rate(optimizer: Any) -> None:
    """Let every replica set the optimizer's copy of a scheduled learning rate.

    tf_keras does not say how such assignments are to be put together, without which
    CentralStorageStrategy refuses them.
    """
    import tensorflow as tf

    rate = getattr(optimizer, "_current_learning_rate", None)
    if rate is not None and getattr(rate, "_aggregation", None) == tf.VariableAggregation.NONE:
        rate._aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA


def _refuse_strategy(context: TrainingContext, model: Any) -> None:
    """Raise `UsageError` for what Keras 3 cannot do; tf_keras does all."""
    if keras_of(model).__name__ == "tf_keras":
        return
    name = type(context.strategy).__name__.removesuffix("V2")
    if name in ("CentralStorageStrategy", "ParameterServerStrategy"):
        raise UsageError(
            f"Keras 3 does not train under {name}",
            hint="choose --strategy mirrored or multiworker, or build the model with tf_keras",
        )
    # It takes the mean of numbers over an axis that they have not got (keras 3.15).
    if name == "MultiWorkerMirroredStrategy" and context.loop == "fit":
        raise UsageError(
            f"the fit of Keras 3 does not work under {name}",
            hint="choose --loop custom, or build the model with tf_keras",
        )


def _loop(
    spec: TrainSpec, context: TrainingContext, order: Order, model: Any, optimizer: Any
) -> Loop:
    kinds: dict[tuple[str, bool], Callable[..., Loop]] = {
        ("custom", False): CustomLoop,
        ("fit", False): FitLoop,
        ("custom", True): CoordinatorLoop,
        ("fit", True): CoordinatedFitLoop,
    }
    kind = kinds[context.loop, context.coordinates]
    return kind(spec, model, optimizer, order, context.strategy)


class _EpochRunner:
    """A training at work."""

    def __init__(
        self,
        spec: TrainSpec,
        schedule: Schedule,
        context: TrainingContext,
        order: Order,
        model: Any,
        optimizer: Any,
    ) -> None:
        self._spec, self._schedule, self._context = spec, schedule, context
        self._order, self._model = order, model
        self._loop = _loop(spec, context, order, model, optimizer)
        self._journal = TensorBoardLog(context.tensorboard if context.is_chief else None)
        self._checkpoints = Checkpoints(
            context.checkpoints, model, optimizer, is_chief=context.is_chief
        )
        self._validation: Evaluation | None = None

    def begin(self) -> Progress:
        """How far the training has come already; a new one is prepared."""
        identity = _identity(self._spec, self._schedule, self._model)
        progress = self._checkpoints.restore(identity)
        done = _steps(progress, self._order) if progress else 0
        _refuse_disagreement(self._context, done)
        if self._spec.validation is not None:
            self._refuse_unshared()
        if progress is None:
            self._spec.begin(self._model)
            return Progress(identity=identity)
        report_progress(f"resumed at step {done} of {self._schedule.epochs * self._order.steps}")
        return msgspec.structs.replace(progress, resumed_at=(*progress.resumed_at, done))

    def _refuse_unshared(self) -> None:
        """Raise `InputRefused` where members of a cluster could not read the best weights."""
        import tensorflow as tf

        strategy = self._context.strategy
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return
        if self._context.is_chief:
            self._checkpoints.mark()
        wait_for_all(self._context)
        seen = int(self._checkpoints.is_marked())
        if _sum_over_members(strategy, seen) != strategy.num_replicas_in_sync:
            raise _unshared(self._context)

    def epoch(self, progress: Progress) -> Progress:
        """Train one epoch, or the rest of one; how far it has come then."""
        number, first = len(progress.epochs), progress.steps
        self._spec.at_epoch(number, self._model)
        started_s = time.perf_counter()

        def on_steps(done: int, sums: MetricSums) -> None:
            nonlocal progress, started_s
            progress = msgspec.structs.replace(
                progress,
                steps=first + done,
                sums=progress.sums + sums,
                seconds=progress.seconds + time.perf_counter() - started_s,
            )
            self._refuse_divergence(number, first + done, sums)
            if first + done < self._order.steps:
                self._checkpoints.save(progress)
            started_s = time.perf_counter()

        self._loop.run(number, first, self._schedule.checkpoint_steps, on_steps)
        return self._ended(progress)

    def _ended(self, progress: Progress) -> Progress:
        epoch = Epoch(
            metrics=progress.sums.means(self._spec.metric_name),
            validation=self._validated(),
            samples=self._order.samples(0, self._order.steps),
            seconds=progress.seconds,
        )
        number = len(progress.epochs) + 1
        best = _best(progress, epoch, self._spec.metric_name)
        ended = msgspec.structs.replace(
            progress,
            epochs=(*progress.epochs, epoch),
            steps=0,
            sums=MetricSums(),
            seconds=0.0,
            best_epoch=best,
            stopped=_stopped(self._schedule.patience, number, best),
        )
        if best == number:
            self._checkpoints.save_best(number)
        self._checkpoints.save(ended)
        self._journal.epoch(number, epoch)
        report_progress(f"epoch {number}/{self._schedule.epochs}: {in_words(epoch)}")
        return ended

    def keep_best(self, epoch: int) -> None:
        """Give the model the weights of its best epoch."""
        # The others read what the chief has written.
        wait_for_all(self._context)
        self._checkpoints.restore_best(epoch)

    def _validated(self) -> dict[str, float]:
        spec = self._spec
        if spec.validation is None:
            return {}
        if self._context.coordinates:
            import tensorflow as tf

            plain, here = spec.plain(self._model), tf.distribute.get_strategy()
            return Evaluation(spec, spec.validation, plain, here).metrics()
        if self._validation is None:
            self._validation = Evaluation(
                spec, spec.validation, self._model, self._context.strategy
            )
        return self._validation.metrics()

    def _refuse_divergence(self, epoch: int, step: int, sums: MetricSums) -> None:
        import tensorflow as tf

        loss = sums.loss / (sums.weight or 1.0)
        finite = (tf.reduce_all(tf.math.is_finite(v)) for v in self._model.trainable_variables)
        if math.isfinite(loss) and all(map(bool, finite)):
            return
        what = "a weight is no number" if math.isfinite(loss) else f"the loss is {loss}"
        raise ToolFailed(
            f"training diverged: {what} at step {step} of epoch "
            f"{epoch + 1}/{self._schedule.epochs}; the last good checkpoint, if there is one, is "
            f"kept in {self._context.checkpoints}",
            hint="lower --learning-rate and run it again, which goes on from there; and look for "
            "NaN in the training samples",
        )


def _identity(spec: TrainSpec, schedule: Schedule, model: Any) -> dict[str, str]:
    shapes = [tuple(variable.shape) for variable in model.weights]
    return {
        "model": spec.name,
        "weights": hashlib.sha256(repr(shapes).encode()).hexdigest()[:16],
        "training samples": f"{len(spec.train)} of {_digest(spec.train)}",
        "global batch": str(schedule.global_batch),
        "steps per epoch": str(schedule.steps_per_epoch or "one pass"),
        "seed": str(schedule.seed),
    }


def _digest(samples: LabeledSamples) -> str:
    """A hash of all labels and of some of the samples."""
    digest = hashlib.sha256(samples.labels.tobytes())
    for name, array in sorted(samples.inputs.items()):
        digest.update(name.encode())
        digest.update(array[:: max(1, len(array) // _SAMPLES_HASHED)].tobytes())
    return digest.hexdigest()[:16]


def _steps(progress: Progress, order: Order) -> int:
    return len(progress.epochs) * order.steps + progress.steps


def _refuse_disagreement(context: TrainingContext, done: int) -> None:
    """Raise `InputRefused` where the members of a cluster have not taken up the same checkpoint."""
    if context.coordinates:
        return
    if _sum_over_members(context.strategy, done) != done * context.strategy.num_replicas_in_sync:
        raise _unshared(context)


def _unshared(context: TrainingContext) -> InputRefused:
    return InputRefused(
        f"the members of the cluster do not see the same checkpoints in {context.checkpoints}",
        hint="give a --checkpoint-dir on a file system that all of them share",
    )


def wait_for_all(context: TrainingContext) -> None:
    """Come back once every member of a cluster has called this.

    One that ends before the others makes them fail: it is taken for lost.
    """
    if not context.coordinates:
        _sum_over_members(context.strategy, 0)


def _sum_over_members(strategy: Any, number: int) -> int:
    """The sum of what every replica brings; nobody gets it before all have come."""
    import tensorflow as tf

    def summed() -> Any:
        own = strategy.run(lambda: tf.constant(number, tf.int64))
        return strategy.reduce("SUM", own, axis=None)

    return int(tf.function(summed)())


def _best(progress: Progress, epoch: Epoch, metric: str) -> int:
    """The number of the best epoch so far, by the validation metric, then by the loss."""
    number = len(progress.epochs) + 1
    if not epoch.validation:
        return 0
    if not progress.best_epoch:
        return number
    best = progress.epochs[progress.best_epoch - 1].validation
    better = (epoch.validation[metric], -epoch.validation["loss"]) > (best[metric], -best["loss"])
    return number if better else progress.best_epoch


def _stopped(patience: int | None, number: int, best: int) -> str:
    if patience is None or not best or number - best < patience:
        return ""
    return f"no better validation result in {patience} epochs"


def in_words(epoch: Epoch) -> str:
    """The metrics of an epoch on a line."""
    apart = {f"validation {name}": value for name, value in epoch.validation.items()}
    return f"{_in_words(epoch.metrics | apart)}, {epoch.samples_per_second:,.0f} samples/s"


def _in_words(metrics: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.4f}" for name, value in metrics.items())
