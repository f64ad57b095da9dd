"""What quantization-aware training works towards: labels, or the float model's own outputs.

Each output has a term in the loss. With labels it is the loss that the model was compiled with,
where that is known and fits them; or else the cross-entropy of classes, or the squared error of
values over their variance. Without labels, it is that error from the float model's outputs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeconv.tf import keras_files
from edgeconv.tf.custom_objects import custom_objects
from edgeconv.tf.keras_io import arrange_inputs, infer
from edgeconv.tf.lazy import tf, tf_keras
from edgeconv.tf.qat.labels import (
    LabelKind,
    is_softmax,
    kind_of_labels,
    labels_by_output,
    metric_name,
    misfits,
    threshold_of,
    variance_of,
)
from edgeconv.tf.qat.opened import saved_configs
from edgeconv.tf.training.spec import LabeledSamples, PerSample
from edgeconv.types import Opening, SourceKind
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import quoted

Array = NDArray[Any]
Inputs = Mapping[str, Array]

_BATCH = 256
_CHECKED = 256
# Losses that tell probabilities from logits by themselves here.
_ENTROPIES = frozenset(
    {"sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy"}
)


class Term(NamedTuple):
    """The part of one output in the loss and the metric.

    Both take a row (batch, `size`) of labels for each sample, and the output (batch, ...); they
    return a number per sample. `loss_name` is the loss's name in Keras.
    """

    kind: LabelKind
    size: int
    loss: PerSample
    metric: PerSample
    loss_name: str
    weight: float = 1.0


class Goal(NamedTuple):
    """Loss and metric per sample, and the targets of the outputs.

    `terms` are by output name, in order. `targets` maps inputs and their labels to
    the rows of all terms side by side, float32 (n, sizes).
    """

    loss: PerSample
    metric: PerSample
    metric_name: str
    targets: Callable[[Inputs, Any], Any]
    terms: Mapping[str, Term]
    notes: tuple[str, ...] = ()

    def samples(self, inputs: Inputs, labels: Any) -> LabeledSamples:
        """The samples, (n, *input_shape) by input, with their targets."""
        return LabeledSamples(inputs, self.targets(inputs, labels))


def goal_of(model: Any, inputs: Inputs, labels: Any, own: OwnLosses) -> Goal:
    """What a model is trained to with these samples, (n, *input_shape) by input.

    `labels` are as `Samples` has them, `own` the losses that the model was compiled with. The
    metric is the mean of the terms': the share of right answers, or of the variance that is
    explained. Raises `InputRefused` for labels that do not fit, and without labels where the
    model's outputs are the same for every sample.
    """
    names, labeled = list(model.output_names), labels_by_output(labels, model.output_names)
    first = {name: array[:_CHECKED] for name, array in inputs.items()}
    scores = dict(zip(names, _outputs(model, first), strict=True))
    unlabeled = [name for name in names if name not in labeled]
    answers = dict(zip(names, _outputs(model, inputs), strict=True)) if unlabeled else {}
    terms: dict[str, Term] = {}
    for name in names:
        if name in labeled:
            terms[name] = _labeled(name, scores[name], labeled[name], own.by_output.get(name))
        elif answers[name].var() > 0:
            terms[name] = _imitating(answers[name])
    if not terms:
        raise InputRefused("the float model's outputs are the same for every training sample")

    def parts(labels: Any, outputs: Any) -> list[tuple[Term, Any, Any]]:
        rows = tf.split(labels, [term.size for term in terms.values()], axis=1)
        by_name = dict(zip(names, tf.nest.flatten(outputs), strict=True))
        pairs = zip(terms.items(), rows, strict=True)
        return [(term, row, by_name[name]) for (name, term), row in pairs]

    def loss(labels: Any, outputs: Any) -> Any:
        each = parts(labels, outputs)
        return tf.add_n([term.weight * term.loss(row, output) for term, row, output in each])

    def metric(labels: Any, outputs: Any) -> Any:
        each = [term.metric(row, output) for term, row, output in parts(labels, outputs)]
        return tf.add_n(each) / len(each)

    def targets(inputs: Inputs, labels: Any) -> Any:
        columns = labels_by_output(labels if labeled else None, names)
        if terms.keys() - columns.keys():
            columns = {**dict(zip(names, _outputs(model, inputs), strict=True)), **columns}
        rows = [np.asarray(columns[name], np.float32) for name in terms]
        return np.concatenate([row.reshape(len(row), -1) for row in rows], axis=1)

    checked = {name: labeled[name][:_CHECKED] for name in terms if name in labeled}
    notes = _notes({name: terms[name].kind for name in checked}, scores, checked, own)
    return Goal(
        loss, metric, metric_name(term.kind for term in terms.values()), targets, terms, notes
    )


def _notes(
    kinds: Mapping[str, LabelKind],
    scores: Mapping[str, Array],
    labels: Mapping[str, Array],
    own: OwnLosses,
) -> tuple[str, ...]:
    notes = []
    if kinds and own.unknown:
        notes.append(
            f"the model was compiled with the loss {quoted(own.unknown)}, which is not known here "
            "(--custom-objects MODULE names the module that has it): trained with another one"
        )
    if apart := misfits(kinds, scores, labels):
        notes.append(
            f"the float model is further from the labels of {quoted(apart)} than their mean is: "
            "are they scaled as in training?"
        )
    return tuple(notes)


class _Labels(NamedTuple):
    """What is known of the labels (n, ...) of an output, whose first values are `scores`."""

    kind: LabelKind
    scores: Array
    labels: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.scores.shape[1:]

    @property
    def size(self) -> int:
        return int(np.prod(self.labels.shape[1:], dtype=int))

    def classes(self, rows: Any) -> Any:
        """The class at each position, int64 (batch, positions), of class numbers or one-hot."""
        positions = int(np.prod(self.shape[:-1], dtype=int))
        if self.size == positions:
            return tf.cast(rows, tf.int64)
        return tf.argmax(tf.reshape(rows, (-1, positions, self.shape[-1])), axis=-1)

    def by_class(self, output: Any) -> Any:
        """The output as (batch, positions, classes)."""
        positions = int(np.prod(self.shape[:-1], dtype=int))
        return tf.reshape(output, (-1, positions, self.shape[-1]))


def _labeled(name: str, scores: Array, labels: Array, own: OwnLoss | None) -> Term:
    """The term of an output with labels (n, ...); `scores` are its first values, (m, ...)."""
    known = own.name if own and not own.is_custom else ""
    facts = _Labels(kind_of_labels(name, scores, labels, known), scores, labels)
    loss, loss_name = _default_loss(facts, known)
    if own and _is_usable(own, facts.kind):
        loss, loss_name = _own(own, facts), own.name
    weight = own.weight if own else 1.0
    return Term(facts.kind, facts.size, loss, _metric(facts), loss_name, weight)


def _is_usable(own: OwnLoss, kind: LabelKind) -> bool:
    if own.is_custom:
        return True
    needs_one_hot = own.name.startswith("categorical")
    return own.name not in _ENTROPIES and (kind != "classes" or needs_one_hot)


def _own(own: OwnLoss, facts: _Labels) -> PerSample:
    """The model's own loss. A function of the user's gets the labels as they are."""
    dtype = tf.int64 if facts.labels.dtype.kind in "biu" else tf.float32

    def prepared(rows: Any) -> Any:
        if own.is_custom:
            return tf.cast(tf.reshape(rows, (-1, *facts.labels.shape[1:])), dtype)
        if facts.kind == "classes":
            rows = tf.one_hot(facts.classes(rows), facts.shape[-1])
        return tf.reshape(rows, (-1, *facts.shape))

    def loss(rows: Any, output: Any) -> Any:
        count = tf.shape(rows)[0]
        values = tf.cast(own.function(prepared(rows), output), tf.float32)
        # A function of the user's may return the mean of a batch.
        if values.shape.rank == 0:
            return tf.fill([count], values)
        return tf.reduce_mean(tf.reshape(values, (count, -1)), axis=1)

    return loss


def _default_loss(facts: _Labels, known: str) -> tuple[PerSample, str]:
    """The loss where the model's own is not known, and its name in Keras.

    `known` may be a cross-entropy; whether the output is in logits is found here.
    """
    losses = tf_keras.losses
    in_shares = {"binary_crossentropy", "categorical_crossentropy"}
    if facts.kind == "values" and known not in in_shares:
        return _squared(variance_of(facts.labels)), "mean_squared_error"
    if facts.kind == "binary" or (facts.kind, known) == ("values", "binary_crossentropy"):
        in_logits = threshold_of(facts.scores) == 0

        def binary(rows: Any, output: Any) -> Any:
            return losses.binary_crossentropy(rows, _flat(output, rows), from_logits=in_logits)

        return binary, "binary_crossentropy"
    from_logits = not is_softmax(facts.scores)
    if facts.kind == "values":

        def soft(rows: Any, output: Any) -> Any:
            each = losses.categorical_crossentropy(
                facts.by_class(rows), facts.by_class(output), from_logits=from_logits
            )
            return tf.reduce_mean(each, axis=1)

        return soft, known

    def sparse(rows: Any, output: Any) -> Any:
        each = losses.sparse_categorical_crossentropy(
            facts.classes(rows), facts.by_class(output), from_logits=from_logits
        )
        return tf.reduce_mean(each, axis=1)

    return sparse, "sparse_categorical_crossentropy"


def _metric(facts: _Labels) -> PerSample:
    if facts.kind == "values":
        return _explained(_squared(variance_of(facts.labels)))
    threshold = threshold_of(facts.scores)

    def right(rows: Any, output: Any) -> Any:
        if facts.kind == "binary":
            are_right = tf.equal(rows > 0, _flat(output, rows) > threshold)
        else:
            are_right = tf.equal(facts.classes(rows), tf.argmax(facts.by_class(output), axis=-1))
        return tf.reduce_mean(tf.cast(are_right, tf.float32), axis=1)

    return right


def _imitating(answers: Array) -> Term:
    """The term of an output (n, ...) that is trained to the float model's answers."""
    size = int(answers[0].size)
    error = _squared(float(answers.var(dtype=np.float64)))
    return Term("model", size, error, _explained(error), "mean_squared_error")


def _squared(variance: float) -> PerSample:
    def error(rows: Any, output: Any) -> Any:
        return tf.reduce_mean((_flat(output, rows) - rows) ** 2, axis=1) / variance

    return error


def _explained(error: PerSample) -> PerSample:
    return lambda rows, output: 1.0 - error(rows, output)


def _flat(output: Any, rows: Any) -> Any:
    return tf.reshape(output, tf.shape(rows))


def _outputs(model: Any, inputs: Inputs) -> list[Array]:
    """The model's outputs for all samples, an array each."""
    count = len(next(iter(inputs.values())))
    call = tf.function(lambda values: tf.nest.flatten(infer(model, values)))
    batches = []
    for start in range(0, count, _BATCH):
        batch = {name: tf.constant(a[start : start + _BATCH]) for name, a in inputs.items()}
        batches.append([output.numpy() for output in call(arrange_inputs(model, batch))])
    return [np.concatenate(parts) for parts in zip(*batches, strict=True)]


class OwnLoss(NamedTuple):
    """The loss of one output: its name in Keras, and a function of (labels, outputs).

    `is_custom`: it is the user's, from the modules of `Opening`. `weight` is its share in the sum.
    """

    name: str
    function: Any
    is_custom: bool = False
    weight: float = 1.0


class OwnLosses(NamedTuple):
    """The losses by output, and the names of losses that are not known here."""

    by_output: dict[str, OwnLoss]
    unknown: tuple[str, ...] = ()


def own_losses(path: str, kind: SourceKind, opening: Opening, outputs: Sequence[str]) -> OwnLosses:
    """What a model was compiled with; nothing where it was not.

    `outputs` are the names of its outputs, in their order.
    """
    config = _compiled(path, kind)
    losses = _by_output(config.get("loss"), outputs)
    weights = _by_output(config.get("loss_weights"), outputs)
    if not losses:
        return OwnLosses({})
    objects = custom_objects(opening, [*map(_name_of, losses.values())])
    known: dict[str, OwnLoss] = {}
    unknown = []
    for output, serialized in losses.items():
        loss = _loss(serialized, objects)
        if loss is None:
            unknown.append(_name_of(serialized))
        else:
            known[output] = loss._replace(weight=float(weights.get(output, 1.0)))
    return OwnLosses(known, tuple(dict.fromkeys(unknown)))


def _compiled(path: str, kind: SourceKind) -> dict[str, Any]:
    if kind != "saved_model":
        return keras_files.compiled(path)
    configs = saved_configs(Path(path))
    known = (config.get("training_config") for config in configs if isinstance(config, dict))
    return next(filter(None, known), {})


def _by_output(value: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """One value for each output that has one, from any form that `compile` takes."""
    if isinstance(value, dict) and not {"class_name", "config"} & value.keys():
        named = value
    elif isinstance(value, (list, tuple)):
        named = dict(zip(outputs, value, strict=False))
    else:
        named = dict.fromkeys(outputs, value)
    return {name: named[name] for name in outputs if named.get(name) is not None}


def _name_of(serialized: Any) -> str:
    """The name of a serialized loss: of its function or class."""
    if isinstance(serialized, dict):
        config = serialized.get("config")
        return config if isinstance(config, str) else str(serialized.get("class_name"))
    return str(serialized)


def _loss(serialized: Any, objects: dict[str, Any]) -> OwnLoss | None:
    name = _name_of(serialized)
    config = serialized.get("config") if isinstance(serialized, dict) else None
    custom = objects.get(name)
    if custom is not None:
        return OwnLoss(name, _function(custom, config), is_custom=True)
    known = getattr(tf_keras.losses, name, None)
    if inspect.isclass(known) and issubclass(known, tf_keras.losses.Loss):
        return OwnLoss(_snake(name), _function(known, config))
    try:
        function = tf_keras.losses.get(name)
    except ValueError:
        return None
    # tf_keras returns some unknown names as they are.
    return OwnLoss(function.__name__, function) if callable(function) else None


def _function(loss: Any, config: Any) -> Any:
    """A loss, a class of Keras or a function, as a function of (labels, outputs)."""
    if not inspect.isclass(loss):
        return loss
    known = inspect.signature(loss).parameters
    settings = config if isinstance(config, dict) else {}
    kept = {k: v for k, v in settings.items() if k in known and k not in ("reduction", "dtype")}
    built: Any = loss(**kept)
    return built.call


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
