"""The steps of an epoch on the workers of a parameter-server cluster, without waiting for one
another: each step is one whole batch on whichever worker is free.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgeconv.tf.keras_io import fed, keras_of
from edgeconv.tf.training.feeding import Feeder, untuned
from edgeconv.tf.training.loops import (
    MEAN_LOSS,
    MetricSums,
    OnSteps,
    compile_model,
    pauses,
    train_step,
)

if TYPE_CHECKING:
    from edgeconv.tf.training.feeding import Order
    from edgeconv.tf.training.spec import TrainSpec


class CoordinatorLoop:
    """Every batch is scheduled by the coordinator, which sends its samples along.

    So each sample is seen once in a pass, also where a worker is lost and its step is done by
    another.
    """

    def __init__(
        self, spec: TrainSpec, model: Any, optimizer: Any, order: Order, strategy: Any
    ) -> None:
        self._spec, self._model, self._optimizer = spec, model, optimizer
        self._order, self._strategy = order, strategy
        self._feeder = Feeder(spec.train)

    @cached_property
    def _coordinator(self) -> Any:
        import tensorflow as tf

        return tf.distribute.coordinator.ClusterCoordinator(self._strategy)

    def run(self, epoch: int, first: int, pause_steps: int | None, on_steps: OnSteps) -> None:
        """See `loops.Loop`."""
        import tensorflow as tf

        step = train_step(self._spec, self._model, self._optimizer, self._order.batch, 1)

        def on_worker(*values: Any) -> Any:
            return self._strategy.run(step, args=values)

        scheduled = tf.function(on_worker)
        waiting: list[Any] = []
        indices, weights = self._order.epoch(epoch, first)
        for done, (index, weight) in enumerate(zip(indices, weights, strict=True), start=1):
            inputs, labels = self._feeder.batch(index)
            values = tf.nest.map_structure(tf.constant, (inputs, labels, weight))
            waiting.append(self._coordinator.schedule(scheduled, args=values))
            if pauses(first + done, pause_steps, self._order.steps):
                self._coordinator.join()
                on_steps(
                    done, sum((MetricSums(*one.fetch().tolist()) for one in waiting), MetricSums())
                )
                waiting = []


class CoordinatedFitLoop:
    """`model.fit`, which hands out steps and not samples.

    Every worker goes through a random order of its own, so a sample can be seen twice in an
    epoch, or not at all; and Keras tells nothing between the epochs.
    """

    def __init__(
        self, spec: TrainSpec, model: Any, optimizer: Any, order: Order, strategy: Any
    ) -> None:
        self._spec, self._model, self._optimizer = spec, model, optimizer
        self._order, self._strategy = order, strategy

    def run(self, epoch: int, first: int, pause_steps: int | None, on_steps: OnSteps) -> None:
        """See `loops.Loop`; `on_steps` is called once."""
        assert first == 0, "there are no checkpoints within an epoch"
        del epoch, pause_steps
        compile_model(self._spec, self._model, self._optimizer, self._strategy)
        keras = keras_of(self._model)
        creator = keras.utils.experimental.DatasetCreator(self._worker_dataset)
        history = self._model.fit(
            creator, steps_per_epoch=self._order.steps, epochs=1, shuffle=False, verbose=0
        ).history
        weight = float(self._order.steps * self._order.batch)
        loss, metric = history[MEAN_LOSS][0], history[self._spec.metric_name][0]
        on_steps(self._order.steps, MetricSums(loss * weight, metric * weight, weight))

    def _worker_dataset(self, _context: Any) -> Any:
        import tensorflow as tf

        train, batch = self._spec.train, self._order.batch
        inputs = {name: tf.constant(array) for name, array in train.inputs.items()}
        labels = tf.constant(train.labels)

        def fetch(index: Any) -> Any:
            chosen = {name: tf.gather(tensor, index) for name, tensor in inputs.items()}
            return fed(self._model, chosen), tf.gather(labels, index), tf.ones(batch)

        # No worker knows which one it is, and with the seed of the training all would go through
        # the same samples in the same order. The time on a worker tells it from the others.
        ahead = tf.cast(tf.timestamp() * 1e6, tf.int64)
        # Numbers are put into a random order, and not the samples, which would all be copied.
        order = tf.data.Dataset.range(len(train)).shuffle(len(train)).repeat()
        endless = order.map(lambda number: (number + ahead) % len(train))
        return untuned(endless.batch(batch, drop_remainder=True).map(fetch))
