"""One process of the training of a baseline: a worker that trains, or one that only serves."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.errors import ToolFailed
from edgeconv.plugins import BASELINE_MODELS
from edgeconv.processes.tasks import report_progress
from edgeconv.tf.custom_objects import register
from edgeconv.tf.export import (
    export_to,
    export_version,
    is_remote,
    keras_path,
    next_remote_version,
)
from edgeconv.tf.training.checkpoints import forget_checkpoints
from edgeconv.tf.training.epochs import TrainingContext, run_epochs, wait_for_all
from edgeconv.tf.training.evaluation import Evaluation
from edgeconv.tf.training.modules import load_module, read_data, spec_of
from edgeconv.tf.training.recorded import record_of, strategy_name
from edgeconv.tf.training.spec import LabeledSamples, Schedule
from edgeconv.tf.training.strategies import begin, raising_lost_members
from edgeconv.types import CONNECTED, Opening, Training, TrainingRecord

if TYPE_CHECKING:
    from edgeconv.models import Data, ModelModule
    from edgeconv.tf.training.spec import TrainSpec


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
    """What a member has to say at the end; only the chief has the record."""

    record: TrainingRecord | None = None


def train_member(job: TrainJob) -> MemberResult:
    """Train, evaluate and export a baseline, as one member of a cluster or alone.

    Runs in a child, with TF_CONFIG in its environment if it is in a cluster. Raises
    `UsageError` for a name or number that makes no sense, `InputRefused` for a module, data or
    a checkpoint that cannot be taken, `OutputRefused` where something cannot be written, and
    `ToolFailed` where the loss is no longer a number or another member is lost.
    """
    started_s = time.perf_counter()
    training = job.training
    _go_to(job)
    # The data of edgeconv's own modules is read without TensorFlow: what is wrong is said early.
    early = _module_and_data(training) if training.module in BASELINE_MODELS else None
    strategy = begin(training.distribution, training.seed)
    report_progress(CONNECTED)
    register(Opening(custom_objects=training.custom_objects, directory=job.work))
    module, data = early or _module_and_data(training)
    learning_rate = _or(training.learning_rate, module.LEARNING_RATE)
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
    context = _context(job, strategy)
    with raising_lost_members():
        trained = run_epochs(spec, _schedule(training, module), context)
        # In a cluster all members have to take part in reading the variables.
        plain = spec.plain(trained.model)
        done = MemberResult()
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
            done = MemberResult(record=_finished(job, plain, spec, data, record))
        wait_for_all(context)
    return done


def serve_member(_job: TrainJob) -> MemberResult:
    """Serve a coordinator, as a worker or a parameter server, until the process is ended.

    Runs in a child, with TF_CONFIG in its environment.
    """
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    try:
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
        )
    except tf.errors.OpError as error:
        raise ToolFailed(f"the server did not start: {str(error).splitlines()[0]}") from error
    report_progress(CONNECTED)
    server.join()
    return MemberResult()


def _go_to(job: TrainJob) -> None:
    """Make relative names, also of modules, those of the directory the user is in."""
    os.chdir(job.work)
    sys.path.insert(0, job.work)


def _module_and_data(training: Training) -> tuple[ModelModule, Data]:
    module = load_module(training.module)
    return module, read_data(module, training.name, training.data)


def _or(asked: Any, default: Any) -> Any:
    return default if asked is None else asked


def _context(job: TrainJob, strategy: Any) -> TrainingContext:
    return TrainingContext(
        strategy=strategy,
        loop=job.training.loop,
        coordinates=job.training.distribution.strategy == "parameter-server",
        is_chief=job.is_chief,
        checkpoints=job.checkpoints,
        tensorboard=job.tensorboard,
    )


def _schedule(training: Training, module: Any) -> Schedule:
    return Schedule(
        epochs=_or(training.epochs, module.EPOCHS),
        global_batch=_or(training.global_batch, module.GLOBAL_BATCH),
        seed=training.seed,
        steps_per_epoch=training.steps_per_epoch,
        checkpoint_steps=training.checkpoint_steps,
        patience=training.patience,
    )


def _finished(
    job: TrainJob, plain: Any, spec: TrainSpec, data: Data, record: TrainingRecord
) -> TrainingRecord:
    """Evaluate and export what was trained; its record."""
    import tensorflow as tf

    here = tf.distribute.get_strategy()
    tested = Evaluation(spec, LabeledSamples(data.x_test, data.y_test), plain, here).metrics()
    report_progress("test: " + " ".join(f"{n} {v:.4f}" for n, v in tested.items()) + "; saving")
    done = msgspec.structs.replace(record, test_samples=len(data.y_test), test_metrics=tested)
    exported = _exported(job, plain, done)
    if job.forget:
        forget_checkpoints(job.checkpoints)
    return exported


def _exported(job: TrainJob, model: Any, record: TrainingRecord) -> TrainingRecord:
    """The record with the places that the model was exported to; it is written there as well."""

    def located(saved_model: str, keras_file: str) -> TrainingRecord:
        return msgspec.structs.replace(record, saved_model=saved_model, keras_file=keras_file)

    if job.exact or is_remote(job.directory):
        parent = f"{job.directory.rstrip('/')}"
        target = parent if job.exact else next_remote_version(f"{parent}/{job.training.name}")
        done = located(target, f"{target}/assets.extra/{job.training.name}.keras")
        export_to(model, target, job.training.name, msgspec.json.encode(done))
        return done

    def text(saved_model: Path) -> bytes:
        return msgspec.json.encode(located(str(saved_model), str(keras_path(saved_model))))

    parent_directory = Path(job.directory).absolute() / job.training.name
    saved_model = export_version(model, parent_directory, text)
    return located(str(saved_model), str(keras_path(saved_model)))
