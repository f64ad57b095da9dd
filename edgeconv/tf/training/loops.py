"""The steps of one epoch: by Keras's own `fit`, by a loop of ours, by a coordinator.

Each is called with the epoch, its first step and `on_steps`, which it calls from time to time
with how many steps are done and the sums over them; and returns nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from edgeconv.tf.keras_io import arranged, keras_of
from edgeconv.tf.training.evaluation import weighted_sums
from edgeconv.tf.training.feeding import Feeder

if TYPE_CHECKING:
    from edgeconv.tf.training.feeding import Order
    from edgeconv.tf.training.spec import TrainSpec


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


class Loop(Protocol):
    """What does the steps of an epoch."""

    def run(self, epoch: int, first: int, pause_steps: int | None, on_steps: OnSteps) -> None:
        """Train from step `first` on to the end of the epoch.

        `on_steps(done, sums)`: `done` steps of this call are behind it, `sums` are of those
        since the last time; every `pause_steps` steps, and at the end.
        """


def train_step(spec: TrainSpec, model: Any, optimizer: Any, batch: int, replicas: int) -> Any:
    """The function of one replica's share (inputs, labels, weights) that changes the model.

    The loss of each sample is divided by the global batch, so that the sum of the replicas'
    gradients, which the optimizer makes, is the gradient of the mean. Gives the weighted sums.
    """
    import tensorflow as tf

    def step(inputs: Any, labels: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model(arranged(model, inputs), training=True)
            loss = tf.reduce_sum(spec.loss(labels, outputs) * weights) / batch
            if model.losses:
                loss += tf.add_n([tf.cast(one, loss.dtype) for one in model.losses]) / replicas
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return weighted_sums(spec, labels, outputs, weights)

    return step


class CustomLoop:
    """`strategy.run` on each step of a distributed dataset."""

    def __init__(
        self, spec: TrainSpec, model: Any, optimizer: Any, order: Order, strategy: Any
    ) -> None:
        self._spec, self._model, self._optimizer = spec, model, optimizer
        self._order, self._strategy = order, strategy
        self._feeder = Feeder(spec.train)
        self._traced: Any = None
        self._trained: set[int] = set()

    def _step(self) -> Any:
        """The step as a TensorFlow function; traced anew where other variables are trained."""
        import tensorflow as tf

        if self._trained != trained_by(self._model):
            self._trained = trained_by(self._model)
            replicas = self._strategy.num_replicas_in_sync
            own = train_step(self._spec, self._model, self._optimizer, self._order.batch, replicas)

            def reduced(values: Any) -> Any:
                return self._strategy.reduce("SUM", self._strategy.run(own, args=values), axis=None)

            self._traced = tf.function(reduced)
        return self._traced

    def run(self, epoch: int, first: int, pause_steps: int | None, on_steps: OnSteps) -> None:
        """See `Loop`."""
        import tensorflow as tf

        reduced, total = self._step(), tf.zeros(3, tf.float64)
        steps = self._feeder.distributed(self._strategy, *self._order.epoch(epoch, first))
        for done, values in enumerate(steps, start=1):
            total += tf.cast(reduced(values), tf.float64)
            if self._spec.at_step is not None:
                self._spec.at_step(epoch * self._order.steps + first + done, self._model)
            if pauses(first + done, pause_steps, self._order.steps):
                on_steps(done, MetricSums(*total.numpy().tolist()))
                total = tf.zeros(3, tf.float64)


def trained_by(model: Any) -> set[int]:
    """Which variables a step changes, batch normalisation's statistics included."""
    frozen = {id(v) for layer in model.layers if not layer.trainable for v in layer.weights}
    return {id(variable) for variable in model.weights} - frozen


def pauses(step: int, pause_steps: int | None, steps: int) -> bool:
    """Whether a step, counted from 1 in its epoch, is one after which a pause is made."""
    return step == steps or bool(pause_steps and step % pause_steps == 0)


class FitLoop:
    """`model.fit`, an epoch at a time."""

    def __init__(
        self, spec: TrainSpec, model: Any, optimizer: Any, order: Order, strategy: Any
    ) -> None:
        self._spec, self._model, self._optimizer = spec, model, optimizer
        self._order, self._strategy = order, strategy
        self._feeder = Feeder(spec.train, model)
        self._trained: set[int] = set()

    def run(self, epoch: int, first: int, pause_steps: int | None, on_steps: OnSteps) -> None:
        """See `Loop`."""
        steps = self._order.steps - first
        indices, weights = self._order.epoch(epoch, first)
        watch = _watch(self, epoch, first, weights.sum(axis=1), pause_steps, on_steps)
        # It is traced when it is compiled.
        if self._trained != trained_by(self._model):
            self._trained = trained_by(self._model)
            compile_model(self._spec, self._model, self._optimizer, self._strategy)
        self._model.fit(
            self._feeder.distributed(self._strategy, indices, weights),
            steps_per_epoch=steps,
            epochs=1,
            shuffle=False,
            callbacks=[watch],
            verbose=0,
        )

    def stepped(self, number: int) -> None:
        """A step of the whole training is done."""
        if self._spec.at_step is not None:
            self._spec.at_step(number, self._model)

    @property
    def steps(self) -> int:
        """Those of an epoch."""
        return self._order.steps

    @property
    def metric_name(self) -> str:
        """The metric's name in the logs of Keras."""
        return self._spec.metric_name


def compile_model(spec: TrainSpec, model: Any, optimizer: Any, strategy: Any) -> None:
    """Compile a model for `fit`, with the spec's loss and metric, in the strategy's scope."""
    keras = keras_of(model)

    class PerSampleLoss(keras.losses.Loss):  # type: ignore[misc, name-defined]
        """The spec's loss; Keras divides by the batch, filling included."""

        def call(self, y_true: Any, y_pred: Any) -> Any:
            return spec.loss(y_true, y_pred)

    wrapper = keras.metrics.MeanMetricWrapper
    with strategy.scope():
        model.compile(
            optimizer=optimizer,
            loss=PerSampleLoss(),
            weighted_metrics=[
                wrapper(spec.loss, name=MEAN_LOSS),
                wrapper(spec.metric, name=spec.metric_name),
            ],
        )


# Keras's own "loss" counts the samples that only fill up the last batch.
MEAN_LOSS = "mean_loss"


def _watch(
    loop: FitLoop,
    epoch: int,
    first: int,
    step_weights: Any,
    pause_steps: int | None,
    on_steps: OnSteps,
) -> Any:
    """A Keras callback that turns the running means of `fit` into sums for `on_steps`."""
    import numpy as np

    keras = keras_of(loop._model)
    weights = np.cumsum(step_weights)
    told = MetricSums()

    class FitCallback(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        """Called by Keras after each step."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            nonlocal told
            del logs
            done = batch + 1
            loop.stepped(epoch * loop.steps + first + done)
            if not pauses(first + done, pause_steps, loop.steps):
                return
            # The logs have the sum of the workers' means; the metrics know of all workers.
            means, weight = self.model.get_metrics_result(), float(weights[batch])
            loss, metric = (float(means[n]) * weight for n in (MEAN_LOSS, loop.metric_name))
            since = MetricSums(loss - told.loss, metric - told.metric, weight - told.weight)
            told = MetricSums(loss, metric, weight)
            on_steps(done, since)

    return FitCallback()
