"""What quantization-aware training works towards: the labels, or the float model's own answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.errors import InputRefused
from edgeconv.tf.keras_io import arranged
from edgeconv.tf.training.spec import LabeledSamples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from edgeconv.tf.training.spec import PerSample

    Inputs = Mapping[str, NDArray[Any]]

_BATCH = 256
_CHECKED = 256
_TOLERANCE = 1e-3


class Goal(NamedTuple):
    """How far an output is off, and what is wanted of each sample.

    `wanted` gives the labels, (n, ...), of inputs and the labels that came with them.
    """

    loss: PerSample
    metric: PerSample
    metric_name: str
    wanted: Callable[[Inputs, Any], Any]

    def samples(self, inputs: Inputs, labels: Any) -> LabeledSamples:
        """The samples with what is wanted of them."""
        return LabeledSamples(inputs, self.wanted(inputs, labels))


def labels_goal(model: Any, inputs: Inputs, labels: Any) -> Goal:
    """The class of each sample, int (n,), by cross-entropy.

    The model has one output of (batch, classes), in probabilities or logits, or of (batch, 1)
    for two classes. Raises `InputRefused` for another one, or for labels it has no class for.
    """
    if labels is None:
        raise InputRefused(
            "the training samples have no labels",
            hint="bring samples with labels, or train to the float model's own answers with "
            "--qat-target model",
        )
    outputs = model.outputs
    if len(outputs) != 1 or outputs[0].shape.rank != 2:
        shapes = ", ".join(str(tuple(output.shape)) for output in outputs)
        raise InputRefused(
            f"the model's output is no vector of classes: {shapes}",
            hint="train to the float model's own answers with --qat-target model",
        )
    (answers,) = _answers(model, {name: a[:_CHECKED] for name, a in inputs.items()})
    classes = max(answers.shape[1], 2)
    if labels.min() < 0 or labels.max() >= classes:
        raise InputRefused(
            f"labels from {labels.min()} to {labels.max()}, and the model has {classes} classes",
            hint="look at the labels; `edgeconv doctor` finds out how they are numbered",
        )
    if answers.shape[1] == 1:
        return _two_classes(are_probabilities=answers.min() >= 0 and answers.max() <= 1)
    sums = answers.sum(axis=1)
    return _classes(are_probabilities=answers.min() >= 0 and abs(sums - 1).max() < _TOLERANCE)


def _classes(*, are_probabilities: bool) -> Goal:
    import tf_keras

    def loss(labels: Any, outputs: Any) -> Any:
        return tf_keras.losses.sparse_categorical_crossentropy(
            labels, outputs, from_logits=not are_probabilities
        )

    def accuracy(labels: Any, outputs: Any) -> Any:
        import tensorflow as tf

        return tf.cast(tf.equal(labels, tf.argmax(outputs, axis=1)), tf.float32)

    return Goal(loss, accuracy, "accuracy", lambda _inputs, labels: labels)


def _two_classes(*, are_probabilities: bool) -> Goal:
    import tf_keras

    def loss(labels: Any, outputs: Any) -> Any:
        return tf_keras.losses.binary_crossentropy(
            labels[:, None], outputs, from_logits=not are_probabilities
        )

    def accuracy(labels: Any, outputs: Any) -> Any:
        import tensorflow as tf

        is_second = outputs[:, 0] > (0.5 if are_probabilities else 0.0)
        return tf.cast(tf.equal(tf.cast(labels, tf.bool), is_second), tf.float32)

    return Goal(loss, accuracy, "accuracy", lambda _inputs, labels: labels)


def model_goal(model: Any, inputs: Inputs) -> Goal:
    """What the float model answers, by squared error over the variance of each output.

    The metric is the share of the variance that is right: 1 for the same answers, 0 for their
    mean. Raises `InputRefused` where the model answers the same to every sample.
    """
    outputs = _answers(model, inputs)
    sizes = [output[0].size for output in outputs]
    variances = [float(output.var()) for output in outputs]
    if not max(variances) > 0:
        raise InputRefused("the float model answers the same to every training sample")

    def error(labels: Any, answers: Any) -> Any:
        import tensorflow as tf

        wanted_of = tf.split(labels, sizes, axis=1)
        parts = zip(wanted_of, tf.nest.flatten(answers), variances, strict=True)
        errors = [
            tf.reduce_mean((tf.reshape(answer, tf.shape(wanted)) - wanted) ** 2, axis=1) / variance
            for wanted, answer, variance in parts
            if variance > 0
        ]
        return tf.add_n(errors) / len(errors)

    def explained(labels: Any, answers: Any) -> Any:
        return 1.0 - error(labels, answers)

    return Goal(error, explained, "explained_variance", lambda own, _: _flat(_answers(model, own)))


def _flat(outputs: Sequence[Any]) -> Any:
    import numpy as np

    return np.concatenate([output.reshape(len(output), -1) for output in outputs], axis=1)


def _answers(model: Any, inputs: Inputs) -> list[Any]:
    """The model's outputs to all samples, an array each."""
    import numpy as np
    import tensorflow as tf

    count = len(next(iter(inputs.values())))
    call = tf.function(lambda values: tf.nest.flatten(model(values, training=False)))
    batches = [
        [
            output.numpy()
            for output in call(
                arranged(model, {n: tf.constant(a[i : i + _BATCH]) for n, a in inputs.items()})
            )
        ]
        for i in range(0, count, _BATCH)
    ]
    return [np.concatenate(parts) for parts in zip(*batches, strict=True)]
