"""One process of a quantization-aware training: float model in, int8 .tflite out."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from edgeconv.data import read_samples
from edgeconv.system.processes.tasks import report_progress
from edgeconv.tf.environment import use_tf_keras
from edgeconv.tf.keras_io import arrange_inputs, infer
from edgeconv.tf.lazy import tf, tf_keras
from edgeconv.tf.qat.equalized import equalize
from edgeconv.tf.qat.goal import Goal, goal_of, own_losses
from edgeconv.tf.qat.labels import LabelKind
from edgeconv.tf.qat.opened import QatModel, open_for_qat
from edgeconv.tf.qat.ranges import freeze_batch_norm, lag_behind, norm_inputs, renew, warm_up
from edgeconv.tf.training.epochs import Trained, TrainingContext, run_epochs
from edgeconv.tf.training.feeding import Order
from edgeconv.tf.training.spec import AdvisedOptions, LabeledSamples, Schedule, TrainSpec, record_of
from edgeconv.tf.training.strategies import begin, raising_lost_members
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

# On how many samples statistics are looked at.
_BATCH, _STATISTICS_STEPS = 32, 4
QAT_OPTIONS = AdvisedOptions(
    learning_rate="--qat-learning-rate", global_batch="--qat-batch", is_resumed_slower=False
)


class QatJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to train, on what, and where to.

    `train`, `validation` and `held_back` are directories that `edgeconv.data.write_samples` wrote,
    the first two with labels unless the target is the model itself; `source` names their origin.
    `batch` fixes the batch of the .tflite. Output i of the trained model for the held-back samples
    goes to `outputs`/i.npy. `is_chief`: this member keeps and converts.
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

    @property
    def learns_labels(self) -> bool:
        """Whether labels are used, if there are any."""
        return self.settings.target == "labels"


class QatResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a member returns at the end; only the chief has more than the default.

    `outputs` are the names of the outputs; `labels` has the kind of labels, by output.
    """

    record: QatRecord | None = None
    outputs: tuple[str, ...] = ()
    labels: dict[str, LabelKind] = {}
    notes: tuple[str, ...] = ()


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
    opened = open_for_qat(job.path, job.kind, job.train, job.opening)
    with raising_lost_members():
        training = _QatTraining(job, strategy, opened)
        trained = training.run()
        result = training.result(trained, started_s) if job.is_chief else QatResult()
        training.context().leave()
    return result


class _QatTraining:
    """The trainings of one job in order; every member of a cluster does all."""

    def __init__(self, job: QatJob, strategy: Any, opened: QatModel) -> None:
        self._job, self._strategy, self._opened = job, strategy, opened
        self._freeze_after = job.settings.freeze_batch_norm_after
        self._notes: tuple[str, ...] = ()
        self._mend_statistics()
        self._goal, self._train, self._validation = _goal(job, opened.model)
        self._notes += self._goal.notes
        self._model = opened.model
        self._equalized = equalize(opened.model)
        self._treated: tuple[TreatedLayer, ...] = ()

    def _mend_statistics(self) -> None:
        """See to batch normalizations that compute something else in training than at inference.

        Labels are learned with the statistics of the training samples. Without labels the float
        model is right already, and its statistics stay.
        """
        model, samples = self._opened.model, read_samples(Path(self._job.train))
        order = Order(samples.count, min(_BATCH, samples.count), 0, _STATISTICS_STEPS)
        batches = [
            [samples.arrays[n][rows] for n in model.input_names] for rows in order.epoch(0)[0]
        ]
        inputs = norm_inputs(model, batches)
        if not lag_behind(inputs):
            return
        if self._job.learns_labels and samples.labels is not None:
            renew(inputs)
            remedy = "they were computed anew from the training samples"
        else:
            self._freeze_after = 0
            remedy = "they were kept, and frozen from the first epoch on"
        self._notes += (
            f"the moving statistics of {len(inputs)} batch normalizations are not those of the "
            f"training samples, as after a short training: {remedy}",
        )

    def result(self, trained: Trained, started_s: float) -> QatResult:
        """What the chief does after the training: convert, and run the held-back samples."""
        from edgeconv.tf.qat.plain import qat_to_tflite

        job = self._job
        report_progress("converting the trained model with TFLiteConverter")
        qat_to_tflite(trained.model, job.recipe, job.batch, Path(job.target))
        outputs = _write_outputs(trained.model, job)
        record = QatRecord(
            settings=job.settings,
            source=job.source,
            training=self._record(self._spec(), trained, started_s),
            losses={name: term.loss_name for name, term in self._goal.terms.items()},
            layers=self._treated,
            equalized=self._equalized,
            rebuilt=self._opened.rebuilt,
            rebuilt_max_abs_error=self._opened.max_abs_error,
            seconds=time.perf_counter() - started_s,
        )
        terms = self._goal.terms.items()
        labels: dict[str, LabelKind] = {n: t.kind for n, t in terms if t.kind != "model"}
        return QatResult(record=record, outputs=outputs, labels=labels, notes=self._notes)

    def run(self) -> Trained:
        """Train with quantization."""
        from edgeconv.tf.qat.annotate import refuse_float_layers

        settings = self._job.settings
        with self._strategy.scope():
            _, self._treated = self._annotated()
        refuse_float_layers(self._treated, self._job.recipe)
        report_progress(f"training {self._job.name} with quantization: {len(self._train)} samples")
        schedule = Schedule(
            epochs=settings.epochs,
            global_batch=settings.global_batch,
            seed=settings.seed,
            patience=settings.patience,
        )
        return run_epochs(self._spec(), schedule, self.context())

    def context(self) -> TrainingContext:
        """Where the training runs."""
        return TrainingContext(
            strategy=self._strategy,
            loop="custom",
            coordinates=self._job.settings.distribution.strategy == "parameter-server",
            is_chief=self._job.is_chief,
            checkpoints=f"{self._job.checkpoints}/qat",
            tensorboard=None,
        )

    def _spec(self) -> TrainSpec:
        from edgeconv.tf.qat.plain import plain_copy

        goal = self._goal

        def at_epoch(epoch: int, model: Any) -> None:
            after = self._freeze_after
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
            options=QAT_OPTIONS,
        )

    def _annotated(self) -> tuple[Any, tuple[TreatedLayer, ...]]:
        from edgeconv.tf.qat.annotate import annotate

        takes_floats = self._job.recipe.input_type == "float32"
        return annotate(self._model, self._job.settings, takes_floats=takes_floats)

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
            module=self._job.name, seed=settings.seed, distribution=settings.distribution
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
    train = read_samples(Path(job.train))
    own = own_losses(job.path, job.kind, job.opening, model.output_names)
    labels = train.labels if job.learns_labels else None
    goal = goal_of(model, train.arrays, labels, own)
    validation = None
    if job.validation is not None:
        kept = read_samples(Path(job.validation))
        validation = goal.samples(kept.arrays, kept.labels)
    return goal, goal.samples(train.arrays, train.labels), validation


def _write_outputs(model: Any, job: QatJob) -> tuple[str, ...]:
    """Write the trained model's outputs for the held-back samples; their names."""
    from edgeconv.data.samples import read_samples, write_arrays
    from edgeconv.tf.qat.plain import plain_copy

    plain, held_back = plain_copy(model), read_samples(Path(job.held_back)).arrays
    inputs = {name: tf.constant(array) for name, array in held_back.items()}
    outputs = tf.nest.flatten(infer(plain, arrange_inputs(plain, inputs)))
    write_arrays((output.numpy() for output in outputs), Path(job.outputs))
    return tuple(model.output_names)
