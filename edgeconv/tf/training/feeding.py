"""Which samples a step trains on, the datasets that bring them, and the loss over all of them.

The order is computed from the seed alone. So a training that is resumed, on any number of
processes, goes on with the samples that come next. Every step has one global batch, split evenly
among the replicas: each sample is seen once in a pass.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgeconv.tf.keras_io import arrange_inputs, fit_inputs, infer
from edgeconv.tf.lazy import tf

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.tf.training.spec import LabeledSamples, TrainSpec


class Order:
    """Which samples each step has: of (batch,) indices and weights.

    Without `steps_per_epoch` an epoch is one pass over a permutation; its last batch is filled up
    with samples of that batch that weigh 0. With it, epochs follow one another in an endless
    chain of such permutations.
    """

    def __init__(
        self, count: int, batch: int, seed: int, steps_per_epoch: int | None = None
    ) -> None:
        self.count, self.batch, self._seed = count, batch, seed
        self._chained = steps_per_epoch is not None
        self.steps = steps_per_epoch or -(-count // batch)

    def epoch(self, epoch: int, first: int = 0) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Indices and weights, both (steps - first, batch), of an epoch from step `first` on."""
        import numpy as np

        if self._chained:
            start = (epoch * self.steps + first) * self.batch
            chain = self._chain(start, (self.steps - first) * self.batch)
            return chain.reshape(-1, self.batch), np.ones((self.steps - first, self.batch), "f")
        shuffled = self._shuffled(epoch)[first * self.batch :]
        whole = np.resize(shuffled, (self.steps - first) * self.batch)
        last = len(shuffled) % self.batch
        if last:
            whole[-self.batch :] = np.resize(shuffled[-last:], self.batch)
        weights = np.ones(len(whole), np.float32)
        weights[len(shuffled) :] = 0
        return whole.reshape(-1, self.batch), weights.reshape(-1, self.batch)

    def samples(self, first: int, last: int) -> int:
        """How many samples the steps `first` to `last` (not included) of an epoch have."""
        if self._chained:
            return (last - first) * self.batch
        return min(last * self.batch, self.count) - first * self.batch

    def _shuffled(self, number: int) -> NDArray[np.int64]:
        import numpy as np

        return np.random.default_rng((self._seed, number)).permutation(self.count)

    def _chain(self, start: int, length: int) -> NDArray[np.int64]:
        import numpy as np

        passes = range(start // self.count, (start + length - 1) // self.count + 1)
        chain = np.concatenate([self._shuffled(number) for number in passes])
        return chain[start % self.count :][:length]


def in_order(count: int, batch: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Indices and weights, (steps, batch), of all samples once, in ascending order."""
    import numpy as np

    steps = -(-count // batch)
    indices = np.arange(steps * batch)
    weights = (indices < count).astype(np.float32)
    return np.minimum(indices, count - 1).reshape(steps, batch), weights.reshape(steps, batch)


class Feeder:
    """Samples as distributed datasets; TensorFlow gets them once."""

    def __init__(self, samples: LabeledSamples) -> None:
        self._samples = samples

    @cached_property
    def _tensors(self) -> tuple[dict[str, Any], Any]:
        with tf.device("CPU:0"):
            inputs = {name: tf.constant(a) for name, a in self._samples.inputs.items()}
            return inputs, tf.constant(self._samples.labels)

    def distributed(
        self,
        strategy: Any,
        indices: NDArray[np.int64],
        weights: NDArray[np.float32],
        fit_model: Any = None,
    ) -> Any:
        """The steps of `indices` and `weights`, both (steps, batch), as a distributed dataset.

        An element is (inputs of (b, …), labels (b, …), weights (b,)) on each replica, b the
        share of a replica in the batch. The inputs are by name, or as `fit` of `fit_model` takes
        them.
        """

        def pipeline(context: Any) -> Any:
            inputs, labels = self._tensors
            pipelines = context.num_input_pipelines
            replicas = strategy.num_replicas_in_sync
            shape = (len(indices), pipelines, replicas // pipelines, -1)
            own = context.input_pipeline_id
            share = indices.shape[1] // replicas
            parts = tuple(a.reshape(shape)[:, own].reshape(-1, share) for a in (indices, weights))

            def fetch(index: Any, weight: Any) -> Any:
                chosen = {name: tf.gather(tensor, index) for name, tensor in inputs.items()}
                values = chosen if fit_model is None else fit_inputs(fit_model, chosen)
                return values, tf.gather(labels, index), weight

            return without_tuning(tf.data.Dataset.from_tensor_slices(parts).map(fetch))

        return strategy.distribute_datasets_from_function(pipeline)

    def batch(self, indices: NDArray[np.int64]) -> tuple[dict[str, Any], Any]:
        """The samples of `indices`, (batch,), as arrays: inputs by name, and labels."""
        inputs = {name: array[indices] for name, array in self._samples.inputs.items()}
        return inputs, self._samples.labels[indices]


def without_tuning(dataset: Any) -> Any:
    """A tf.data.Dataset that TensorFlow neither shards, being sharded already, nor tunes.

    The tuning thread sleeps for up to a minute, and the end of a training waits for it.
    """
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    options.autotune.enabled = False
    return dataset.with_options(options)


_BATCH = 256


class Evaluation:
    """The metrics of one model on one set of samples; TensorFlow traces it once."""

    def __init__(self, spec: TrainSpec, samples: LabeledSamples, model: Any, strategy: Any) -> None:
        def sums(inputs: Any, labels: Any, weights: Any) -> Any:
            outputs = infer(model, arrange_inputs(model, inputs))
            return weighted_sums(spec, labels, outputs, weights)

        def reduced(step: Any) -> Any:
            return strategy.reduce("SUM", strategy.run(sums, args=step), axis=None)

        self._metric_name, self._strategy = spec.metric_name, strategy
        self._feeder, self._count = Feeder(samples), len(samples)
        self._step = tf.function(reduced)

    def metrics(self) -> dict[str, float]:
        """The loss and the metric, by name."""
        import numpy as np

        replicas = self._strategy.num_replicas_in_sync
        batch = -(-min(_BATCH, self._count) // replicas) * replicas
        steps = self._feeder.distributed(self._strategy, *in_order(self._count, batch))
        sums = np.array([self._step(step).numpy() for step in steps], np.float64).sum(axis=0)
        loss, metric, weight = sums.tolist()
        return {"loss": loss / weight, self._metric_name: metric / weight}


def weighted_sums(spec: TrainSpec, labels: Any, outputs: Any, weights: Any) -> Any:
    """The sums of loss, metric and weights over a batch, a tensor of (3,)."""
    loss = tf.reduce_sum(spec.loss(labels, outputs) * weights)
    metric = tf.reduce_sum(spec.metric(labels, outputs) * weights)
    return tf.stack([loss, metric, tf.reduce_sum(weights)])
