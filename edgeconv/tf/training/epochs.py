"""Going through the epochs of a training, the same for every strategy and loop."""

import contextlib
import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import replace

from edgeconv.system.processes.tasks import report_progress
from edgeconv.tf.keras_io import keras_of
from edgeconv.tf.lazy import tf
from edgeconv.tf.training.checkpoints import Checkpoints, Progress
from edgeconv.tf.training.feeding import Evaluation, Order
from edgeconv.tf.training.loops import (
    CoordinatedFitLoop,
    CoordinatorLoop,
    CustomLoop,
    EpochLoop,
    FitLoop,
    MetricSums,
)
from edgeconv.tf.training.spec import LabeledSamples, Schedule, TrainSpec, refuse_schedule
from edgeconv.tf.training.strategies import raising_lost_members
from edgeconv.types import Epoch, LoopName
from edgeconv.types.errors import ClusterLost, InputRefused, OutputRefused, ToolFailed, UsageError

_SAMPLES_HASHED = 256
# By loop, and whether a coordinator's workers take the steps.
_LOOPS: dict[tuple[LoopName, bool], type[EpochLoop]] = {
    ("custom", False): CustomLoop,
    ("fit", False): FitLoop,
    ("custom", True): CoordinatorLoop,
    ("fit", True): CoordinatedFitLoop,
}


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

    def wait_for_all(self) -> None:
        """Return once every member of the cluster has called this."""
        if not self.coordinates:
            self.sum_over_members(0)

    def leave(self) -> None:
        """Return once every member of the cluster has called this, and none misses another.

        The others have to come to it whenever one does, and may end then. Where a member is lost on
        the way, the chief does not mind, who has kept everything; the others raise `ClusterLost`.
        """
        no_matter = (ClusterLost,) if self.is_chief else ()
        with contextlib.suppress(*no_matter), raising_lost_members():
            self.wait_for_all()
        # A member that ends takes along unsent messages, and whatever the others wait in fails.
        # So they wait once more here, where nothing is left to fail.
        with contextlib.suppress(ClusterLost), raising_lost_members():
            self.wait_for_all()

    def sum_over_members(self, number: int) -> int:
        """The sum of what every replica brings; each waits for all."""

        def summed() -> Any:
            own = self.strategy.run(lambda: tf.constant(number, tf.int64))
            return self.strategy.reduce("SUM", own, axis=None)

        return int(tf.function(summed)())

    def refuse_unshared(self, number: int, expected: int) -> None:
        """Raise `InputRefused` unless `number` is `expected` on every replica."""
        replicas = self.strategy.num_replicas_in_sync
        differs = self.sum_over_members(number) != expected * replicas
        # With three members, one may by chance have expected the sum.
        if self.sum_over_members(int(differs)):
            self.leave()
            raise InputRefused(
                f"the members of the cluster do not see the same checkpoints in {self.checkpoints}",
                hint="give a --checkpoint-dir on a file system that all of them share",
            )


class Trained(NamedTuple):
    """A model on the strategy's variables, and how it came to be."""

    model: Any
    progress: Progress
    order: Order
    loop: LoopName


def run_epochs(spec: TrainSpec, schedule: Schedule, context: TrainingContext) -> Trained:
    """Train to the end, from the last checkpoint if there is one.

    Raises `UsageError` for a schedule that does not fit, `InputRefused` for a checkpoint of
    another training, `OutputRefused`, and `ToolFailed` where the loss is no longer a number.
    """
    runner = _EpochRunner(spec, schedule, context)
    progress = runner.begin()
    while len(progress.epochs) < schedule.epochs and not progress.stopped:
        progress = runner.epoch(progress)
    if progress.best_epoch:
        runner.keep_best(progress.best_epoch)
    return Trained(runner.model, progress, runner.order, runner.loop)


def _share_learning_rate(optimizer: Any) -> None:
    """Let every replica set the optimizer's copy of a scheduled learning rate.

    tf_keras names no aggregation for it, without which CentralStorageStrategy refuses to assign.
    """
    rate = getattr(optimizer, "_current_learning_rate", None)
    if rate is not None and getattr(rate, "_aggregation", None) == tf.VariableAggregation.NONE:
        rate._aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA


def _loop_of(context: TrainingContext, model: Any) -> LoopName:
    """The loop that trains this model: the custom one where the fit of Keras 3 does not work.

    The chief reports that. Raises `UsageError` where Keras 3 does not train; tf_keras does all.
    """
    if keras_of(model).__name__ == "tf_keras":
        return context.loop
    strategy = context.strategy
    # Its batch normalization says nothing about how replicas are joined (keras 3.15).
    if isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy):
        raise UsageError(
            "Keras 3 does not train under CentralStorageStrategy",
            hint="choose --strategy mirrored, or build the model with tf_keras",
        )
    # It takes the shares of the replicas for one array, and waits for a coordinator without end.
    several = context.coordinates or isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    if not several or context.loop == "custom":
        return context.loop
    if context.is_chief:
        report_progress(
            "Keras 3's fit does not work with several processes: training with the custom loop"
        )
    return "custom"


class _EpochRunner:
    """A training at work."""

    def __init__(self, spec: TrainSpec, schedule: Schedule, context: TrainingContext) -> None:
        strategy = context.strategy
        replicas = 1 if context.coordinates else strategy.num_replicas_in_sync
        samples = len(spec.train)
        refuse_schedule(schedule, samples, replicas, spec.options)
        order = Order(samples, schedule.global_batch, schedule.seed, schedule.steps_per_epoch)
        with strategy.scope():
            model = spec.build()
            optimizer = spec.optimizer(model, schedule.epochs * order.steps, replicas)
            # Else its variables come with the first step, and a checkpoint could not set them.
            optimizer.build(model.trainable_variables)
        _share_learning_rate(optimizer)
        self.loop = _loop_of(context, model)
        self._spec, self._schedule, self._context = spec, schedule, context
        self.order, self.model = order, model
        loop = _LOOPS[self.loop, context.coordinates]
        self._loop = loop(spec, model, optimizer, order, strategy)
        self._log = TensorBoardLog(context.tensorboard if context.is_chief else None)
        self._checkpoints = Checkpoints(
            context.checkpoints, model, optimizer, is_chief=context.is_chief
        )
        self._validation: Evaluation | None = None

    def begin(self) -> Progress:
        """How far the training has come already; a new one is prepared."""
        identity = _identity(self._spec, self._schedule, self.model)
        progress = self._checkpoints.restore(identity)
        steps = len(progress.epochs) * self.order.steps + progress.steps if progress else 0
        if not self._context.coordinates:
            self._context.refuse_unshared(steps, steps)
        if self._spec.validation is not None:
            self._refuse_unshared_weights()
        if progress is None:
            self._spec.begin(self.model)
            return Progress(identity=identity)
        report_progress(f"resumed at step {steps} of {self._schedule.epochs * self.order.steps}")
        return replace(progress, resumed_at=(*progress.resumed_at, steps))

    def _refuse_unshared_weights(self) -> None:
        """Raise `InputRefused` where members of a cluster could not read the best weights."""
        if isinstance(self._context.strategy, tf.distribute.MultiWorkerMirroredStrategy):
            if self._context.is_chief:
                self._checkpoints.mark()
            self._context.wait_for_all()
            self._context.refuse_unshared(int(self._checkpoints.is_marked()), 1)

    def epoch(self, progress: Progress) -> Progress:
        """Train one epoch, or the rest of one; how far the training has come then."""
        number, first = len(progress.epochs), progress.steps
        self._spec.at_epoch(number, self.model)
        started_s = time.perf_counter()

        def on_steps(steps: int, sums: MetricSums) -> None:
            nonlocal progress, started_s
            progress = replace(
                progress,
                steps=first + steps,
                sums=progress.sums + sums,
                seconds=progress.seconds + time.perf_counter() - started_s,
            )
            self._refuse_divergence(number, first + steps, sums)
            if first + steps < self.order.steps:
                self._checkpoints.save(progress)
            started_s = time.perf_counter()

        self._loop.run(number, first, self._schedule.checkpoint_steps, on_steps)
        return self._ended(progress)

    def _ended(self, progress: Progress) -> Progress:
        epoch = Epoch(
            metrics=progress.sums.means(self._spec.metric_name),
            validation=self._validated(),
            samples=self.order.samples(0, self.order.steps),
            seconds=progress.seconds,
        )
        number, patience = len(progress.epochs) + 1, self._schedule.patience
        best = _best(progress, epoch, self._spec.metric_name)
        is_stopped = patience is not None and best and number - best >= patience
        ended = replace(
            progress,
            epochs=(*progress.epochs, epoch),
            steps=0,
            sums=MetricSums(),
            seconds=0.0,
            best_epoch=best,
            stopped=f"no better validation result in {patience} epochs" if is_stopped else "",
        )
        if best == number:
            self._checkpoints.save_best(number)
        self._checkpoints.save(ended)
        self._log.write(number, epoch)
        metrics = epoch.metrics | {f"validation {k}": v for k, v in epoch.validation.items()}
        speed = f"{epoch.samples_per_second:,.0f} samples/s"
        report_progress(f"epoch {number}/{self._schedule.epochs}: {in_words(metrics)}, {speed}")
        return ended

    def keep_best(self, epoch: int) -> None:
        """Give the model the weights of its best epoch."""
        # The others read the chief's files.
        self._context.wait_for_all()
        self._checkpoints.restore_best(epoch)

    def _validated(self) -> dict[str, float]:
        spec = self._spec
        if spec.validation is None:
            return {}
        if self._context.coordinates:
            plain, here = spec.plain(self.model), tf.distribute.get_strategy()
            return Evaluation(spec, spec.validation, plain, here).metrics()
        if self._validation is None:
            strategy = self._context.strategy
            self._validation = Evaluation(spec, spec.validation, self.model, strategy)
        return self._validation.metrics()

    def _refuse_divergence(self, epoch: int, step: int, sums: MetricSums) -> None:
        loss = sums.loss / (sums.weight or 1.0)
        finite = (tf.reduce_all(tf.math.is_finite(v)) for v in self.model.trainable_variables)
        if math.isfinite(loss) and all(map(bool, finite)):
            return
        self._context.leave()
        what = "a weight is not a number" if math.isfinite(loss) else f"the loss is {loss}"
        options, kept, resumes = self._spec.options, "", ""
        if options.is_resumed_slower:
            kept = "; the last good checkpoint, if there is one, is kept in "
            kept += self._context.checkpoints
            resumes = " and run it again, which resumes there"
        raise ToolFailed(
            f"training diverged: {what} at step {step} of epoch "
            f"{epoch + 1}/{self._schedule.epochs}{kept}",
            hint=f"lower {options.learning_rate}{resumes}; and look for NaN in the training "
            "samples",
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


def in_words(metrics: Mapping[str, float]) -> str:
    """Metrics on a line."""
    return " ".join(f"{name} {value:.4f}" for name, value in metrics.items())


class TensorBoardLog:
    """Scalars per metric and epoch under `directory`/train and /validation; None writes nothing."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._writers: dict[str, Any] = {}

    def write(self, number: int, epoch: Epoch) -> None:
        """Write the metrics of an epoch, counted from 1. Raises `OutputRefused`."""
        if self._directory is None:
            return
        scalars = {**epoch.metrics, "samples_per_second": epoch.samples_per_second}
        try:
            self._write("train", number, scalars)
            self._write("validation", number, epoch.validation)
        except tf.errors.OpError as error:
            raise OutputRefused(
                f"cannot write TensorBoard's files to {self._directory}: {error.message}",
                hint="choose another directory with --tensorboard-dir",
            ) from error

    def _write(self, run: str, number: int, scalars: Mapping[str, float]) -> None:
        from tensorflow.core.framework.summary_pb2 import SummaryMetadata

        if not scalars:
            return
        # It tells TensorBoard that a value is a scalar.
        plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
        if run not in self._writers:
            self._writers[run] = tf.summary.create_file_writer(f"{self._directory}/{run}")
        with self._writers[run].as_default():
            for name, value in scalars.items():
                tf.summary.write(name, value, step=number, metadata=plugin)
        self._writers[run].flush()
