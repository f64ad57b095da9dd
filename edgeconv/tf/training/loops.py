"""The steps of one epoch: by Keras's `fit`, by a custom loop, or by a coordinator's workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec

from edgeconv.tf.keras_io import arrange_inputs, fit_inputs, keras_of
from edgeconv.tf.lazy import tf
from edgeconv.tf.training.feeding import Feeder, Order, weighted_sums, without_tuning
from edgeconv.tf.training.spec import TrainSpec

# Keras's own "loss" counts the samples that only fill up the last batch.
MEAN_LOSS = "mean_loss"


class MetricSums(msgspec.Struct, frozen=True):
    """The sums of loss, metric and weights over some samples."""

    loss: float = 0.0
    metric: float = 0.0
    weight: float = 0.0

    def __add__(self, other: MetricSums) -> MetricSums:
        return MetricSums(
            self.loss + other.loss, self.metric + other.metric, self.weight + other.weight
        )

    def means(self, metric_name: str) -> dict[str, float]:
        """The mean loss and metric."""
        weight = self.weight or 1.0
        return {"loss": self.loss / weight, metric_name: self.metric / weight}


OnSteps = Callable[[int, MetricSums], None]


class EpochLoop:
    """Does the steps of an epoch; subclasses say how."""

    def __init__(
        self, spec: TrainSpec, model: Any, optimizer: Any, order: Order, strategy: Any
    ) -> None:
        self._spec, self._model, self._optimizer = spec, model, optimizer
        self._order, self._strategy = order, strategy
        self._feeder = Feeder(spec.train)
        self._trained: set[int] = set()

    def run(self, epoch: int, first: int, pause_steps: int | None, on_steps: OnSteps) -> None:
        """Train from step `first` of an epoch to its end.

        `on_steps(steps, sums)` is called every `pause_steps` steps and at the end, with the number
        of steps of this run so far, and the sums over the steps since the last call.
        """
        raise NotImplementedError

    def _pauses(self, step: int, pause_steps: int | None) -> bool:
        """Whether `on_steps` is called after a step, counted from 1 in its epoch."""
        return step == self._order.steps or bool(pause_steps and step % pause_steps == 0)

    def _trains_other_variables(self) -> bool:
        """Whether other variables are trained than at the last call: a step is traced for them."""
        model = self._model
        frozen = {id(v) for layer in model.layers if not layer.trainable for v in layer.weights}
        trained = {id(variable) for variable in model.weights} - frozen
        changed, self._trained = trained != self._trained, trained
        return changed

    def _step(self, replicas: int) -> Callable[[Any, Any, Any], Any]:
        """The function of one replica's share (inputs, labels, weights) that changes the model.

        The loss of each sample is divided by the global batch. So the sum of the replicas'
        gradients, which the optimizer makes, is the gradient of the mean. Returns weighted sums.
        """
        spec, model, optimizer = self._spec, self._model, self._optimizer

        def step(inputs: Any, labels: Any, weights: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = model(arrange_inputs(model, inputs), training=True)
                loss = tf.reduce_sum(spec.loss(labels, outputs) * weights) / self._order.batch
                if model.losses:
                    penalties = [tf.cast(penalty, loss.dtype) for penalty in model.losses]
                    loss += tf.add_n(penalties) / replicas
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return weighted_sums(spec, labels, outputs, weights)

        return step

    def _compile(self) -> None:
        """Compile the model for `fit`, with the spec's loss and metric, in the strategy's scope."""
        spec, keras = self._spec, keras_of(self._model)

        class PerSampleLoss(keras.losses.Loss):  # type: ignore[misc, name-defined]
            """The spec's loss; Keras divides by the batch, filling included."""

            def call(self, y_true: Any, y_pred: Any) -> Any:
                return spec.loss(y_true, y_pred)

        wrapper = keras.metrics.MeanMetricWrapper
        with self._strategy.scope():
            self._model.compile(
                optimizer=self._optimizer,
                loss=PerSampleLoss(),
                weighted_metrics=[
                    wrapper(spec.loss, name=MEAN_LOSS),
                    wrapper(spec.metric, name=spec.metric_name),
                ],
            )


class CustomLoop(EpochLoop):
    """`strategy.run` on each step of a distributed dataset."""

    _traced: Any = None

    def _traced_step(self) -> Any:
        if self._trains_other_variables():
            step = self._step(self._strategy.num_replicas_in_sync)

            def reduced(values: Any) -> Any:
                sums = self._strategy.run(step, args=values)
                return self._strategy.reduce("SUM", sums, axis=None)

            self._traced = tf.function(reduced)
        return self._traced

    def run(self, epoch: int, first: int, pause_steps: int | None, on_steps: OnSteps) -> None:
        """See `EpochLoop`."""
        step, total = self._traced_step(), tf.zeros(3, tf.float64)
        batches = self._feeder.distributed(self._strategy, *self._order.epoch(epoch, first))
        for steps, values in enumerate(batches, start=1):
            total += tf.cast(step(values), tf.float64)
            if self._pauses(first + steps, pause_steps):
                on_steps(steps, MetricSums(*total.numpy().tolist()))
                total = tf.zeros(3, tf.float64)


class FitLoop(EpochLoop):
    """`model.fit`, an epoch at a time."""

    def run(self, epoch: int, first: int, pause_steps: int | None, on_steps: OnSteps) -> None:
        """See `EpochLoop`."""
        # The step is traced when the model is compiled.
        if self._trains_other_variables():
            self._compile()
        indices, weights = self._order.epoch(epoch, first)
        step_weights = weights.sum(axis=1).cumsum()

        def at_step(steps: int) -> MetricSums | None:
            """The sums over the steps so far, where `on_steps` is due."""
            if not self._pauses(first + steps, pause_steps):
                return None
            # Keras's logs have the sum of the workers' means; the metrics know of all workers.
            means, weight = self._model.get_metrics_result(), float(step_weights[steps - 1])
            loss, metric = (float(means[n]) for n in (MEAN_LOSS, self._spec.metric_name))
            return MetricSums(loss * weight, metric * weight, weight)

        self._model.fit(
            self._feeder.distributed(self._strategy, indices, weights, self._model),
            steps_per_epoch=self._order.steps - first,
            epochs=1,
            shuffle=False,
            callbacks=[_callback(keras_of(self._model), at_step, on_steps)],
            verbose=0,
        )


def _callback(keras: Any, at_step: Callable[[int], MetricSums | None], on_steps: OnSteps) -> Any:
    """A Keras callback that hands what was added to the sums of `at_step` to `on_steps`."""
    before = MetricSums()

    class StepCallback(keras.callbacks.Callback):  # type: ignore[misc]
        """Called by Keras after each step."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            nonlocal before
            del logs
            sums = at_step(batch + 1)
            if sums is not None:
                added = (sums.loss - before.loss, sums.metric - before.metric)
                on_steps(batch + 1, MetricSums(*added, sums.weight - before.weight))
                before = sums

    return StepCallback()


class CoordinatorLoop(EpochLoop):
    """The coordinator schedules every batch on whichever worker is free, with its samples.

    So each sample is seen once in a pass, also where a worker is lost and another does its step.
    """

    @cached_property
    def _coordinator(self) -> Any:
        return tf.distribute.coordinator.ClusterCoordinator(self._strategy)

    def run(self, epoch: int, first: int, pause_steps: int | None, on_steps: OnSteps) -> None:
        """See `EpochLoop`."""
        step = self._step(1)

        def on_worker(*values: Any) -> Any:
            return self._strategy.run(step, args=values)

        scheduled = tf.function(on_worker)
        waiting: list[Any] = []
        indices, weights = self._order.epoch(epoch, first)
        for steps, (index, weight) in enumerate(zip(indices, weights, strict=True), start=1):
            inputs, labels = self._feeder.batch(index)
            values = tf.nest.map_structure(tf.constant, (inputs, labels, weight))
            waiting.append(self._coordinator.schedule(scheduled, args=values))
            if self._pauses(first + steps, pause_steps):
                self._coordinator.join()
                sums = (MetricSums(*remote.fetch().tolist()) for remote in waiting)
                on_steps(steps, sum(sums, MetricSums()))
                waiting = []


class CoordinatedFitLoop(EpochLoop):
    """`model.fit` on workers that each go through a random order of the samples.

    A sample can be seen twice in an epoch, or not at all, and `on_steps` is called once an epoch.
    """

    def run(self, epoch: int, first: int, pause_steps: int | None, on_steps: OnSteps) -> None:
        """See `EpochLoop`."""
        assert first == 0, "there are no checkpoints within an epoch"
        del epoch, pause_steps
        self._compile()
        keras = keras_of(self._model)
        creator = keras.utils.experimental.DatasetCreator(self._worker_dataset)
        history = self._model.fit(
            creator, steps_per_epoch=self._order.steps, epochs=1, shuffle=False, verbose=0
        ).history
        weight = float(self._order.steps * self._order.batch)
        loss, metric = history[MEAN_LOSS][0], history[self._spec.metric_name][0]
        on_steps(self._order.steps, MetricSums(loss * weight, metric * weight, weight))

    def _worker_dataset(self, _context: Any) -> Any:
        train, batch = self._spec.train, self._order.batch
        inputs = {name: tf.constant(array) for name, array in train.inputs.items()}
        labels = tf.constant(train.labels)

        def fetch(index: Any) -> Any:
            chosen = {name: tf.gather(tensor, index) for name, tensor in inputs.items()}
            return fit_inputs(self._model, chosen), tf.gather(labels, index), tf.ones(batch)

        # No worker knows which one it is, and with the seed of the training all would go through
        # the same samples in the same order. The time on a worker tells it from the others.
        ahead = tf.cast(tf.timestamp() * 1e6, tf.int64)
        # Numbers are put into a random order, and not the samples, which would all be copied.
        order = tf.data.Dataset.range(len(train)).shuffle(len(train)).repeat()
        endless = order.map(lambda number: (number + ahead) % len(train))
        return without_tuning(endless.batch(batch, drop_remainder=True).map(fetch))
