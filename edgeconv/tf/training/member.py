"""One process of the training of a baseline: a worker that trains, or one that only serves."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from edgeconv.models import Data, ModelModule
from edgeconv.plugins import BASELINE_MODELS
from edgeconv.system.processes.tasks import report_progress
from edgeconv.tf.custom_objects import register
from edgeconv.tf.export import export_to, export_version, is_remote, keras_path, next_remote_version
from edgeconv.tf.lazy import tf
from edgeconv.tf.training.checkpoints import forget_checkpoints
from edgeconv.tf.training.epochs import TrainingContext, in_words, run_epochs
from edgeconv.tf.training.feeding import Evaluation
from edgeconv.tf.training.modules import load_module, read_data, spec_of
from edgeconv.tf.training.spec import LabeledSamples, Schedule, TrainSpec, record_of, strategy_name
from edgeconv.tf.training.strategies import begin, raising_lost_members
from edgeconv.types import CONNECTED, Opening, Training, TrainingRecord
from edgeconv.types.errors import ToolFailed
from edgeconv.types.words import first_line


class TrainJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to train, and where to.

    The SavedModel goes to `directory`/NAME/N, N the next free number, or, if `exact`, into
    `directory` itself. `checkpoints` are removed in the end if `forget`. `work` is the directory
    that relative names are in. `is_chief`: this member keeps and exports.
    """

    training: Training
    directory: str
    checkpoints: str
    work: str
    exact: bool = False
    forget: bool = False
    tensorboard: str | None = None
    workers: int = 1
    is_chief: bool = True


class MemberResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a member returns at the end; only the chief has the record."""

    record: TrainingRecord | None = None


def train_member(job: TrainJob) -> MemberResult:
    """Train, evaluate and export a baseline, as one member of a cluster or alone.

    Runs in a child, with TF_CONFIG in its environment if it is in a cluster. Raises `UsageError`
    for an unusable name or number, `InputRefused` for a module, data or checkpoint that cannot be
    used, `OutputRefused` where something cannot be written, and `ToolFailed` where the loss is not
    a number or another member is lost.
    """
    started_s = time.perf_counter()
    training = job.training
    # Relative names, also of modules, start in the user's directory.
    os.chdir(job.work)
    sys.path.insert(0, job.work)
    # The data of edgeconv's own modules is read without TensorFlow, so errors in it come early.
    early = _module_and_data(training) if training.module in BASELINE_MODELS else None
    strategy = begin(training.distribution, training.seed)
    report_progress(CONNECTED)
    register(Opening(custom_objects=training.custom_objects, directory=job.work))
    module, data = early or _module_and_data(training)
    learning_rate = training.learning_rate or module.LEARNING_RATE
    spec = spec_of(
        module,
        training.name,
        data,
        learning_rate=learning_rate,
        validation_fraction=training.validation_fraction,
        seed=training.seed,
    )
    replicas = strategy.num_replicas_in_sync
    report_progress(
        f"training {training.name}: {len(spec.train)} samples, {replicas} "
        f"replica{'s' * (replicas > 1)}, {strategy_name(training.distribution)}"
    )
    context = TrainingContext(
        strategy=strategy,
        loop=training.loop,
        coordinates=training.distribution.strategy == "parameter-server",
        is_chief=job.is_chief,
        checkpoints=job.checkpoints,
        tensorboard=job.tensorboard,
    )
    with raising_lost_members():
        trained = run_epochs(spec, _schedule(training, module), context)
        # In a cluster all members have to take part in reading the variables.
        plain = spec.plain(trained.model)
        result = MemberResult()
        if job.is_chief:
            record = record_of(
                training,
                spec,
                trained,
                strategy,
                learning_rate=learning_rate,
                workers=job.workers,
                started_s=started_s,
            )
            result = MemberResult(record=_finish(job, plain, spec, data, record))
        context.leave()
    return result


def serve_member(_job: TrainJob) -> MemberResult:
    """Serve a coordinator, as a worker or a parameter server, until the process is ended.

    Runs in a child, with TF_CONFIG in its environment.
    """
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    try:
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
        )
    except tf.errors.OpError as error:
        raise ToolFailed(f"the server did not start: {first_line(error)}") from error
    report_progress(CONNECTED)
    server.join()
    return MemberResult()


def _module_and_data(training: Training) -> tuple[ModelModule, Data]:
    module = load_module(training.module)
    return module, read_data(module, training.name, training.data)


def _schedule(training: Training, module: ModelModule) -> Schedule:
    return Schedule(
        epochs=training.epochs or module.EPOCHS,
        global_batch=training.global_batch or module.GLOBAL_BATCH,
        seed=training.seed,
        steps_per_epoch=training.steps_per_epoch,
        checkpoint_steps=training.checkpoint_steps,
        patience=training.patience,
    )


def _finish(
    job: TrainJob, plain: Any, spec: TrainSpec, data: Data, record: TrainingRecord
) -> TrainingRecord:
    """Evaluate and export what was trained; its record."""
    here = tf.distribute.get_strategy()
    tested = Evaluation(spec, LabeledSamples(data.x_test, data.y_test), plain, here).metrics()
    report_progress(f"test: {in_words(tested)}; saving")
    record = replace(record, test_samples=len(data.y_test), test_metrics=tested)
    exported = _export(job, plain, record)
    if job.forget:
        forget_checkpoints(job.checkpoints)
    return exported


def _export(job: TrainJob, model: Any, record: TrainingRecord) -> TrainingRecord:
    """The record with the paths that the model was exported to; it is written there as well."""
    name = job.training.name
    if job.exact or is_remote(job.directory):
        parent = job.directory.rstrip("/")
        target = parent if job.exact else next_remote_version(f"{parent}/{name}")
        keras_file = f"{target}/assets.extra/{name}.keras"
        remote = replace(record, saved_model=target, keras_file=keras_file)
        export_to(model, target, name, msgspec.json.encode(remote))
        return remote

    def located(path: Path) -> TrainingRecord:
        return replace(record, saved_model=str(path), keras_file=str(keras_path(path)))

    directory = Path(job.directory).absolute() / name
    return located(
        export_version(model, directory, lambda path: msgspec.json.encode(located(path)))
    )
