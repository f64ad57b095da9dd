"""Loss and metric over a whole set of samples, each counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.tf.inference import infer
from edgeconv.tf.keras_io import arrange_inputs
from edgeconv.tf.lazy import tf
from edgeconv.tf.training.feeding import Feeder, in_order

if TYPE_CHECKING:
    from edgeconv.tf.training.spec import LabeledSamples, TrainSpec

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
