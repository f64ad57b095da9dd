"""What quantization-aware training works towards: the labels, or the float model's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.errors import InputRefused
from edgeconv.tf.keras_io import arrange_inputs
from edgeconv.tf.lazy import tf, tf_keras
from edgeconv.tf.training.spec import LabeledSamples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from edgeconv.tf.training.spec import PerSample

    Inputs = Mapping[str, NDArray[Any]]

_BATCH = 256
_CHECKED = 256
_TOLERANCE = 1e-3


class Goal(NamedTuple):
    """Loss and metric per sample, and what the outputs are compared with.

    `targets` maps inputs and their labels to the labels to train on, (n, ...).
    """

    loss: PerSample
    metric: PerSample
    metric_name: str
    targets: Callable[[Inputs, Any], Any]

    def samples(self, inputs: Inputs, labels: Any) -> LabeledSamples:
        """The samples, (n, *input_shape) by input, with their targets."""
        return LabeledSamples(inputs, self.targets(inputs, labels))


def labels_goal(model: Any, inputs: Inputs, labels: Any) -> Goal:
    """The class of each sample, int (n,), by cross-entropy.

    The model has one output of (batch, classes), in probabilities or logits, or of (batch, 1)
    for two classes. Raises `InputRefused` for another one, or for labels it has no class for.
    """
    if labels is None:
        raise InputRefused(
            "the training samples have no labels",
            hint="give samples with labels, or train to the float model's outputs with "
            "--qat-target model",
        )
    outputs = model.outputs
    if len(outputs) != 1 or outputs[0].shape.rank != 2:
        shapes = ", ".join(str(tuple(output.shape)) for output in outputs)
        raise InputRefused(
            f"the model's output is not a vector of classes: {shapes}",
            hint="train to the float model's outputs with --qat-target model",
        )
    (scores,) = _outputs(model, {name: a[:_CHECKED] for name, a in inputs.items()})
    classes = max(scores.shape[1], 2)
    if labels.min() < 0 or labels.max() >= classes:
        raise InputRefused(
            f"labels from {labels.min()} to {labels.max()}, and the model has {classes} classes",
            hint="check the labels; `edgeconv doctor` finds out how they are numbered",
        )
    if scores.shape[1] == 1:
        are_probabilities = scores.min() >= 0 and scores.max() <= 1
        return _classes(is_binary=True, from_logits=not are_probabilities)
    sums = scores.sum(axis=1)
    are_probabilities = scores.min() >= 0 and abs(sums - 1).max() < _TOLERANCE
    return _classes(is_binary=False, from_logits=not are_probabilities)


def _classes(*, is_binary: bool, from_logits: bool) -> Goal:
    def loss(labels: Any, outputs: Any) -> Any:
        if is_binary:
            losses = tf_keras.losses.binary_crossentropy
            return losses(labels[:, None], outputs, from_logits=from_logits)
        losses = tf_keras.losses.sparse_categorical_crossentropy
        return losses(labels, outputs, from_logits=from_logits)

    def accuracy(labels: Any, outputs: Any) -> Any:
        if is_binary:
            is_second = outputs[:, 0] > (0.0 if from_logits else 0.5)
            return tf.cast(tf.equal(tf.cast(labels, tf.bool), is_second), tf.float32)
        return tf.cast(tf.equal(labels, tf.argmax(outputs, axis=1)), tf.float32)

    return Goal(loss, accuracy, "accuracy", lambda _inputs, labels: labels)


def model_goal(model: Any, inputs: Inputs) -> Goal:
    """The outputs of the float model, by squared error over the variance of each output.

    `inputs` are by name, (n, *input_shape). The metric is the share of the variance that is
    explained: 1 for the same outputs, 0 for their mean. Raises `InputRefused` where the model's
    outputs are the same for every sample.
    """
    outputs = _outputs(model, inputs)
    sizes = [output[0].size for output in outputs]
    variances = [float(output.var()) for output in outputs]
    if not max(variances) > 0:
        raise InputRefused("the float model's outputs are the same for every training sample")

    def error(labels: Any, outputs: Any) -> Any:
        targets = tf.split(labels, sizes, axis=1)
        parts = zip(targets, tf.nest.flatten(outputs), variances, strict=True)
        errors = [
            tf.reduce_mean((tf.reshape(output, tf.shape(target)) - target) ** 2, axis=1) / variance
            for target, output, variance in parts
            if variance > 0
        ]
        return tf.add_n(errors) / len(errors)

    def explained(labels: Any, outputs: Any) -> Any:
        return 1.0 - error(labels, outputs)

    def targets(inputs: Inputs, _labels: Any) -> Any:
        rows = [output.reshape(len(output), -1) for output in _outputs(model, inputs)]
        return np.concatenate(rows, axis=1)

    return Goal(error, explained, "explained_variance", targets)


def _outputs(model: Any, inputs: Inputs) -> list[Any]:
    """The model's outputs for all samples, an array each."""
    count = len(next(iter(inputs.values())))
    call = tf.function(lambda values: tf.nest.flatten(model(values, training=False)))
    batches = []
    for start in range(0, count, _BATCH):
        batch = {name: tf.constant(a[start : start + _BATCH]) for name, a in inputs.items()}
        batches.append([output.numpy() for output in call(arrange_inputs(model, batch))])
    return [np.concatenate(parts) for parts in zip(*batches, strict=True)]
