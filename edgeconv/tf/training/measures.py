"""Losses and metrics as functions of (labels, outputs) that give one number a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.tf.training.spec import PerSample

# What the loss goes by in records and in Keras's logs.
_NAMES_OF_LOSSES = ("loss", "mean_loss")


def per_sample_loss(loss: str | PerSample) -> PerSample:
    """A loss by the name that Keras knows it by, or the function itself.

    Raises `InputRefused` for an unknown name, and for a class or an object of Keras's.
    """
    import tf_keras

    return _per_sample("LOSS", loss, tf_keras.losses.get)


def per_sample_metric(metric: str | PerSample) -> PerSample:
    """A metric by the name that Keras knows it by, "accuracy" for short, or the function itself.

    Raises `InputRefused` for an unknown name, and for a class or an object of Keras's.
    """
    import tf_keras

    found = _accuracy if metric == "accuracy" else metric
    return _per_sample("METRIC", found, tf_keras.metrics.get)


def name_of(metric: str | PerSample) -> str:
    """The name that a metric goes by in records, beside the one of the loss."""
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "")
    return name if name.isidentifier() and name not in _NAMES_OF_LOSSES else "metric"


def _accuracy(labels: Any, outputs: Any) -> Any:
    """Whether each sample's class is right; of one output, whether it is on the label's side."""
    import tensorflow as tf

    if outputs.shape[-1] == 1:
        return tf.equal(tf.cast(labels, tf.bool), outputs > 0.5)
    if labels.shape.rank == outputs.shape.rank:
        labels = tf.argmax(labels, -1) if labels.shape[-1] > 1 else tf.squeeze(labels, -1)
    return tf.equal(tf.cast(labels, tf.int64), tf.argmax(outputs, -1))


def _per_sample(what: str, named: str | PerSample, known: Callable[[str], Any]) -> PerSample:
    """The measure that is `named`, `what` of a module, as one number a sample."""
    measure = _function(what, named, known)

    def measured(labels: Any, outputs: Any) -> Any:
        import tensorflow as tf

        if labels.shape.rank == outputs.shape.rank - 1 and outputs.shape[-1] == 1:
            labels = labels[..., tf.newaxis]
        values = tf.cast(measure(labels, outputs), tf.float32)
        if values.shape.rank == 0:
            raise InputRefused(
                f"{what} of the model module gives one number for a whole batch",
                hint="let it give one for each sample, without the mean over them",
            )
        return tf.reduce_mean(tf.reshape(values, (tf.shape(values)[0], -1)), axis=1)

    return measured


def _function(what: str, named: str | PerSample, known: Callable[[str], Any]) -> PerSample:
    """The function itself. Keras answers to some unknown names with the name."""
    try:
        found: Any = known(named) if isinstance(named, str) else named
    except ValueError as error:
        raise _no_measure(what, named, "Keras knows none") from error
    if isinstance(found, str):
        raise _no_measure(what, named, "Keras knows none")
    if isinstance(found, type) or hasattr(found, "result") or hasattr(found, "reduction"):
        raise _no_measure(what, named, "that is a class, or an object, of Keras's")
    if not callable(found):
        raise _no_measure(what, named, "that is no function")
    return cast("PerSample", found)


def _no_measure(what: str, named: Any, why: str) -> InputRefused:
    return InputRefused(
        f"{what} of the model module is {named!r}: {why}",
        hint="it is the name of a function of Keras's, such as mean_absolute_error, or a function "
        "of (labels, outputs) that gives one number a sample",
    )
