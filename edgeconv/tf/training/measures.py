"""Losses and metrics as functions of (labels, outputs) that return one number per sample.

Labels and outputs are tensors of (batch, ...), the result is float32 (batch,).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from edgeconv.errors import InputRefused
from edgeconv.tf.lazy import tf, tf_keras

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.tf.training.spec import PerSample

# What the loss goes by in records and in Keras's logs.
_NAMES_OF_LOSSES = ("loss", "mean_loss")
# Attributes of Keras's metric and loss objects.
_OF_KERAS = ("result", "reduction")


def per_sample_loss(loss: str | PerSample) -> PerSample:
    """A loss by its name in Keras, or the function itself.

    Raises `InputRefused` for an unknown name, and for a class or object of Keras.
    """
    return _per_sample("LOSS", loss, tf_keras.losses.get)


def per_sample_metric(metric: str | PerSample) -> PerSample:
    """A metric by its name in Keras, or the function itself. Raises as `per_sample_loss`."""
    measure = _accuracy if metric == "accuracy" else metric
    return _per_sample("METRIC", measure, tf_keras.metrics.get)


def name_of(metric: str | PerSample) -> str:
    """The name of a metric in records; it differs from those of the loss."""
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "")
    return name if name.isidentifier() and name not in _NAMES_OF_LOSSES else "metric"


def _accuracy(labels: Any, outputs: Any) -> Any:
    """Whether each sample's class is correct; one output is a probability of the second class."""
    if outputs.shape[-1] == 1:
        return tf.equal(tf.cast(labels, tf.bool), outputs > 0.5)
    if labels.shape.rank == outputs.shape.rank:
        labels = tf.argmax(labels, -1) if labels.shape[-1] > 1 else tf.squeeze(labels, -1)
    return tf.equal(tf.cast(labels, tf.int64), tf.argmax(outputs, -1))


def _per_sample(what: str, named: str | PerSample, known: Callable[[str], Any]) -> PerSample:
    measure = _function(what, named, known)

    def measured(labels: Any, outputs: Any) -> Any:
        if labels.shape.rank == outputs.shape.rank - 1 and outputs.shape[-1] == 1:
            labels = labels[..., tf.newaxis]
        values = tf.cast(measure(labels, outputs), tf.float32)
        if values.shape.rank == 0:
            raise InputRefused(
                f"{what} of the model module returns one number for a whole batch",
                hint="let it return one per sample, without the mean over them",
            )
        return tf.reduce_mean(tf.reshape(values, (tf.shape(values)[0], -1)), axis=1)

    return measured


def _function(what: str, named: str | PerSample, known: Callable[[str], Any]) -> PerSample:
    """The function itself."""
    try:
        function: Any = known(named) if isinstance(named, str) else named
    except ValueError:
        function = ""
    # Keras returns some unknown names as they are.
    if isinstance(function, str):
        why = "Keras has no function of this name"
    elif isinstance(function, type) or any(hasattr(function, name) for name in _OF_KERAS):
        why = "this is a class or an object of Keras"
    elif not callable(function):
        why = "this is not a function"
    else:
        return cast("PerSample", function)
    raise InputRefused(
        f"{what} of the model module is {named!r}: {why}",
        hint="give the name of a function of Keras, such as mean_absolute_error, or a function "
        "of (labels, outputs) that returns one number per sample",
    )
