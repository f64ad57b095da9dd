"""One process of a quantization-aware training: float model in, int8 .tflite out."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.processes.tasks import report_progress
from edgeconv.tf.environment import use_tf_keras
from edgeconv.tf.keras_io import arrange_inputs
from edgeconv.tf.lazy import tf, tf_keras
from edgeconv.tf.qat.equalized import equalize
from edgeconv.tf.qat.flat import set_names
from edgeconv.tf.qat.goal import Goal, labels_goal, model_goal
from edgeconv.tf.qat.sparse import Clustering, Pruning, float_copy
from edgeconv.tf.training.epochs import Trained, TrainingContext, run_epochs
from edgeconv.tf.training.feeding import Order
from edgeconv.tf.training.recorded import record_of
from edgeconv.tf.training.spec import Schedule, TrainSpec
from edgeconv.tf.training.strategies import begin, raising_lost_members
from edgeconv.tflite import most_distinct, zero_share
from edgeconv.types import (
    CONNECTED,
    Opening,
    Qat,
    QatRecord,
    Recipe,
    SourceKind,
    Training,
    TrainingRecord,
    TreatedLayer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.tf.qat.opened import QatModel
    from edgeconv.tf.qat.sparse import KernelConstraint
    from edgeconv.tf.training.spec import LabeledSamples


class QatJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to train, on what, and where to.

    `train`, `validation` and `held_back` are directories that `edgeconv.data.write_samples` wrote,
    the first two with labels unless the target is the model itself; `source` names their origin.
    `batch` fixes that of the .tflite. Output i of the trained model for the held-back samples goes
    to `outputs`/i.npy. `is_chief`: this member keeps and converts.
    """

    path: str
    name: str
    kind: SourceKind
    opening: Opening = Opening()
    recipe: Recipe
    settings: Qat
    source: str
    train: str
    validation: str | None
    held_back: str
    batch: int | None
    checkpoints: str
    target: str
    outputs: str
    workers: int = 1
    is_chief: bool = True


class QatResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a member returns at the end; only the chief has a record and output names."""

    record: QatRecord | None = None
    outputs: tuple[str, ...] = ()


def train_qat(job: QatJob) -> QatResult:
    """Train with quantization, as one member of a cluster or alone, and convert.

    Runs in a child, with TF_CONFIG in its environment if it is in a cluster. Raises `InputRefused`
    for a model without Keras layers or that cannot be trained, or samples that do not fit it,
    `UsageError` for unusable names or numbers, `VerificationFailed` where a model rebuilt in
    tf_keras does not agree with its source, and `ToolFailed` where the training diverges or another
    member is lost.
    """
    started_s = time.perf_counter()
    use_tf_keras()
    strategy = begin(job.settings.distribution, job.settings.seed)
    report_progress(CONNECTED)
    from edgeconv.tf.qat.opened import open_for_qat

    opened = open_for_qat(job.path, job.kind, job.train, job.opening)
    with raising_lost_members():
        training = _QatTraining(job, strategy, opened)
        trained = training.run()
        result = training.result(trained, started_s) if job.is_chief else QatResult()
        training.context("qat").leave()
    return result


class _QatTraining:
    """The trainings of one job in order; every member of a cluster does all."""

    def __init__(self, job: QatJob, strategy: Any, opened: QatModel) -> None:
        self._job, self._strategy, self._opened = job, strategy, opened
        self._goal, self._train, self._validation = _goal(job, opened.model)
        self._model = opened.model
        self._equalized = equalize(opened.model)
        self._treated: tuple[TreatedLayer, ...] = ()
        self._fine_tuned: dict[str, TrainingRecord] = {}

    def result(self, trained: Trained, started_s: float) -> QatResult:
        """What the chief does after the training: convert, and run the held-back samples."""
        from edgeconv.tf.qat.plain import qat_to_tflite

        job = self._job
        report_progress("converting the trained model with TFLiteConverter")
        qat_to_tflite(trained.model, job.recipe, job.batch, Path(job.target))
        outputs = _write_outputs(trained.model, job)
        content = Path(job.target).read_bytes()
        record = QatRecord(
            settings=job.settings,
            source=job.source,
            training=self._record(self._spec(), trained, started_s),
            fine_tuned=self._fine_tuned,
            layers=self._treated,
            equalized=self._equalized,
            rebuilt=self._opened.rebuilt,
            rebuilt_max_abs_error=self._opened.max_abs_error,
            sparsity=None if job.settings.prune is None else zero_share(content),
            clusters=None if job.settings.cluster is None else most_distinct(content),
            seconds=time.perf_counter() - started_s,
        )
        return QatResult(record=record, outputs=outputs)

    def run(self) -> Trained:
        """Prune and cluster where configured, then train with quantization."""
        from edgeconv.tf.qat.annotate import refuse_float_layers

        settings = self._job.settings
        with self._strategy.scope():
            _, self._treated = self._annotated()
        refuse_float_layers(self._treated, self._job.recipe)
        if settings.prune is not None:
            order = Order(len(self._train), settings.global_batch, settings.seed)
            steps = settings.fine_tune_epochs * order.steps
            self._fine_tune("prune", Pruning(settings.prune, steps))
        if settings.cluster is not None:
            clusters = Clustering(settings.cluster, keep_zeros=settings.prune is not None)
            self._fine_tune("cluster", clusters)
        report_progress(f"training {self._job.name} with quantization: {len(self._train)} samples")
        return self._run("qat", self._spec(), settings.epochs)

    def _fine_tune(self, phase: str, structure: KernelConstraint) -> None:
        """Train the float model to a structure, which the quantized training keeps."""
        started_s = time.perf_counter()
        for_clusters = isinstance(structure, Clustering)

        def copy() -> Any:
            return float_copy(self._model, for_clusters=for_clusters)

        def plain(trained: Any) -> Any:
            untrained = copy()
            untrained.set_weights(trained.get_weights())
            return untrained

        spec = dataclasses.replace(
            self._spec(),
            build=copy,
            # Only the last epoch has all zeros.
            validation=self._validation if for_clusters else None,
            plain=plain,
            begin=structure.prepare,
            at_epoch=lambda _, model: structure.prepare(model),
            at_step=structure.at_step,
        )
        report_progress(f"fine-tuning {self._job.name} to {phase}")
        trained = self._run(phase, spec, self._job.settings.fine_tune_epochs)
        self._fine_tuned[phase] = self._record(spec, trained, started_s)
        names = (self._model.input_names, self._model.output_names)
        self._model = plain(trained.model)
        set_names(self._model, *map(tuple, names))

    def _run(self, phase: str, spec: TrainSpec, epochs: int) -> Trained:
        settings = self._job.settings
        schedule = Schedule(
            epochs=epochs,
            global_batch=settings.global_batch,
            seed=settings.seed,
            patience=settings.patience,
        )
        return run_epochs(spec, schedule, self.context(phase))

    def context(self, phase: str) -> TrainingContext:
        """Where the training of a phase runs."""
        return TrainingContext(
            strategy=self._strategy,
            loop="custom",
            coordinates=self._job.settings.distribution.strategy == "parameter-server",
            is_chief=self._job.is_chief,
            checkpoints=f"{self._job.checkpoints}/{phase}",
            tensorboard=None,
        )

    def _spec(self) -> TrainSpec:
        from edgeconv.tf.qat.plain import plain_copy
        from edgeconv.tf.qat.ranges import freeze_batch_norm, warm_up

        settings, goal = self._job.settings, self._goal

        def at_epoch(epoch: int, model: Any) -> None:
            after = settings.freeze_batch_norm_after
            if after is not None and epoch >= after:
                freeze_batch_norm(model)

        return TrainSpec(
            name=self._job.name,
            build=lambda: self._annotated()[0],
            train=self._train,
            validation=self._validation,
            loss=goal.loss,
            metric=goal.metric,
            metric_name=goal.metric_name,
            optimizer=self._optimizer,
            plain=plain_copy,
            begin=lambda model: (warm_up(model, self._batches(model)), None)[1],
            at_epoch=at_epoch,
        )

    def _annotated(self) -> tuple[Any, tuple[TreatedLayer, ...]]:
        from edgeconv.tf.qat.annotate import annotate

        return annotate(self._model, self._job.settings)

    def _optimizer(self, _model: Any, steps: int, _replicas: int) -> Any:
        rate = self._job.settings.learning_rate
        return tf_keras.optimizers.Adam(tf_keras.optimizers.schedules.CosineDecay(rate, steps))

    def _batches(self, model: Any) -> Iterator[list[Any]]:
        """The batches that calibrate the ranges, the first of the training."""
        settings = self._job.settings
        order = Order(len(self._train), settings.global_batch, settings.seed, settings.warmup_steps)
        for indices in order.epoch(0)[0] if settings.warmup_steps else ():
            yield [self._train.inputs[name][indices] for name in model.input_names]

    def _record(self, spec: TrainSpec, trained: Trained, started_s: float) -> TrainingRecord:
        settings = self._job.settings
        training = Training(
            module=self._job.name,
            loop="custom",
            seed=settings.seed,
            distribution=settings.distribution,
        )
        return record_of(
            training,
            spec,
            trained,
            self._strategy,
            learning_rate=settings.learning_rate,
            workers=self._job.workers,
            started_s=started_s,
        )


def _goal(job: QatJob, model: Any) -> tuple[Goal, LabeledSamples, LabeledSamples | None]:
    from edgeconv.data import read_samples

    train = read_samples(Path(job.train))
    if job.settings.target == "labels":
        goal = labels_goal(model, train.arrays, train.labels)
    else:
        goal = model_goal(model, train.arrays)
    validation = None
    if job.validation is not None:
        kept = read_samples(Path(job.validation))
        validation = goal.samples(kept.arrays, kept.labels)
    return goal, goal.samples(train.arrays, train.labels), validation


def _write_outputs(model: Any, job: QatJob) -> tuple[str, ...]:
    """Write the trained model's outputs for the held-back samples; their names."""
    from edgeconv.data.handover import read_samples, write_arrays
    from edgeconv.tf.qat.plain import plain_copy

    plain, held_back = plain_copy(model), read_samples(Path(job.held_back)).arrays
    inputs = {name: tf.constant(array) for name, array in held_back.items()}
    outputs = tf.nest.flatten(plain(arrange_inputs(plain, inputs), training=False))
    write_arrays((output.numpy() for output in outputs), Path(job.outputs))
    return tuple(model.output_names)
