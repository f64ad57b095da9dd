"""Training a baseline model under a distribution strategy."""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.nouns import TrainingRecord
from edgeconv.plugins import baseline_model
from edgeconv.store import publish_bytes, writable_directory
from edgeconv.tasks import report_progress
from edgeconv.tf.environment import use_cpu_only
from edgeconv.tf.export import export_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edgeconv.models import Data, ModelModule

_EVALUATION_BATCH = 256


class TrainJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to train, and where to.

    `model` names a module of `edgeconv.models`. The SavedModel goes to
    `directory`/`model`/N, N the next free version number, and the record of its
    training beside it, to `directory`/`model`/N.training.json. `devices` is the number
    of logical CPU devices, one replica each; `global_batch` is shared among them. None
    takes the model's own default.
    """

    model: str
    directory: str
    devices: int = 2
    epochs: int | None = None
    global_batch: int | None = None
    learning_rate: float | None = None
    seed: int = 0


def train(job: TrainJob) -> TrainingRecord:
    """Train, evaluate and export a baseline. Runs in a child.

    Raises `UsageError` for a name or number that makes no sense, `OutputRefused` where
    the export cannot be written, and `ToolFailed` if the loss is no longer a number.
    """
    module = cast("ModelModule", baseline_model(job.model))
    plan = _plan(job, module)
    parent = Path(job.directory).absolute() / job.model
    _refuse_unwritable(parent)
    strategy = _mirrored_strategy(job.devices, job.seed)
    data = module.data()
    replicas: int = strategy.num_replicas_in_sync
    report_progress(f"training {job.model}: {len(data.y_train)} samples, {replicas} replicas")
    model, epochs, seconds = _fit(module, plan, data, strategy, job.seed)
    tested = _evaluate(model, data)
    report_progress(f"test: {_in_words(tested)}; saving")
    saved_model = export_version(_without_strategy(module, model), parent)
    record = TrainingRecord(
        model=job.model,
        strategy=type(strategy).__name__,
        replicas=replicas,
        global_batch=plan.global_batch,
        epochs=len(epochs),
        seed=job.seed,
        seconds=seconds,
        train_samples=len(data.y_train),
        metrics=epochs,
        test_samples=len(data.y_test),
        test_metrics=tested,
        saved_model=str(saved_model),
    )
    publish_bytes(msgspec.json.encode(record), record_path(saved_model))
    return record


def record_path(saved_model: Path) -> Path:
    """Where the training record of a version directory N is: in N.training.json beside it."""
    return saved_model.with_name(f"{saved_model.name}.training.json")


class _Plan(NamedTuple):
    """What the job asks for, and the model's own choice where it asks for nothing."""

    epochs: int
    global_batch: int
    learning_rate: float


def _plan(job: TrainJob, module: ModelModule) -> _Plan:
    plan = _Plan(
        epochs=module.EPOCHS if job.epochs is None else job.epochs,
        global_batch=module.GLOBAL_BATCH if job.global_batch is None else job.global_batch,
        learning_rate=module.LEARNING_RATE if job.learning_rate is None else job.learning_rate,
    )
    if job.devices < 1:
        raise UsageError(f"cannot train on {job.devices} devices", hint="at least 1 is needed")
    if plan.epochs < 1:
        raise UsageError(f"cannot train for {plan.epochs} epochs", hint="at least 1 is needed")
    if not plan.learning_rate > 0:
        raise UsageError(f"cannot train at a learning rate of {plan.learning_rate:g}")
    if plan.global_batch < job.devices:
        raise UsageError(
            f"a global batch of {plan.global_batch} cannot be shared by {job.devices} devices",
            hint="the global batch needs at least one sample for each device",
        )
    return plan


def _refuse_unwritable(parent: Path) -> None:
    """Find out before the training, not after it; what was made for that is taken away."""
    made = writable_directory(parent)
    if made is None:
        return
    for directory in (parent, *parent.parents):
        with contextlib.suppress(OSError):
            directory.rmdir()
        if directory == made:
            return


def _mirrored_strategy(devices: int, seed: int) -> Any:
    """A MirroredStrategy over so many logical CPU devices, and everything seeded."""
    use_cpu_only()
    import tensorflow as tf
    import tf_keras

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(devices)]
    )
    tf_keras.utils.set_random_seed(seed)
    # Without this the order of additions, and with it the weights, differ from run to run.
    tf.config.experimental.enable_op_determinism()
    # tf.data tunes itself from a thread that sleeps for up to a minute, and the end of the
    # training waits for it. Data in memory has nothing to tune; for the iterators of a
    # strategy's devices, this is the only switch there is.
    tf.data.experimental.enable_debug_mode()
    return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(devices)])


def _fit(
    module: ModelModule, plan: _Plan, data: Data, strategy: Any, seed: int
) -> tuple[Any, tuple[dict[str, float], ...], float]:
    """The trained model, its metrics of each epoch, and how many seconds the epochs took."""
    import tf_keras

    steps = math.ceil(len(data.y_train) / plan.global_batch)
    with strategy.scope():
        model = module.build()
        # Decaying to nothing makes the result depend little on which epoch is the last.
        rate = tf_keras.optimizers.schedules.CosineDecay(plan.learning_rate, plan.epochs * steps)
        optimizer = tf_keras.optimizers.Adam(rate)
        model.compile(optimizer=optimizer, loss=module.LOSS, metrics=[module.METRIC])
    epochs: list[dict[str, float]] = []
    watch = tf_keras.callbacks.LambdaCallback(on_epoch_end=_watch(plan.epochs, epochs))
    started_s = time.perf_counter()
    model.fit(
        _batches(data, plan.global_batch, seed),
        steps_per_epoch=steps,
        epochs=plan.epochs,
        callbacks=[watch],
        verbose=0,
    )
    return model, tuple(epochs), time.perf_counter() - started_s


def _batches(data: Data, size: int, seed: int) -> Any:
    """The training samples as a tf.data.Dataset without end, in a new order each epoch."""
    import tensorflow as tf

    samples = tf.data.Dataset.from_tensor_slices((data.x_train, data.y_train))
    return samples.shuffle(len(data.y_train), seed=seed).batch(size).repeat()


def _watch(
    total: int, epochs: list[dict[str, float]]
) -> Callable[[int, Mapping[str, float]], None]:
    """What is called after each epoch: keeps its metrics, reports them, stops at a NaN."""

    def on_epoch_end(epoch: int, logs: Mapping[str, float]) -> None:
        metrics = {name: float(value) for name, value in logs.items()}
        if not math.isfinite(metrics["loss"]):
            raise ToolFailed(
                f"training diverged: the loss of epoch {epoch + 1}/{total} is {metrics['loss']}",
                hint="lower the learning rate, and look for NaN in the training samples",
            )
        epochs.append(metrics)
        report_progress(f"epoch {epoch + 1}/{total}: {_in_words(metrics)}")

    return on_epoch_end


def _evaluate(model: Any, data: Data) -> dict[str, float]:
    metrics = model.evaluate(
        data.x_test, data.y_test, batch_size=_EVALUATION_BATCH, verbose=0, return_dict=True
    )
    return {name: float(value) for name, value in metrics.items()}


def _without_strategy(module: ModelModule, trained: Any) -> Any:
    """The same model on plain variables: those of a strategy have copies and placements."""
    plain = module.build()
    plain.set_weights(trained.get_weights())
    return plain


def _in_words(metrics: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.4f}" for name, value in metrics.items())
