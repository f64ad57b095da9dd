"""What the labels of an output are, and how far the output is right; without TensorFlow.

Labels are class numbers ("classes"; one-hot ones are the same), a yes or no for each value of the
output ("binary"), or numbers that the output should have ("values"). An output without labels is
trained to the float model's answers ("model").
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgeconv.types.errors import InputRefused
from edgeconv.types.words import quoted

Array = NDArray[Any]


LabelKind = Literal["classes", "binary", "values", "model"]
# Losses, by their names in Keras, that are for class numbers and for a yes or no.
_FOR_CLASSES = frozenset(
    {
        "categorical_crossentropy",
        "sparse_categorical_crossentropy",
        "categorical_focal_crossentropy",
    }
)
_FOR_BINARY = frozenset({"binary_crossentropy", "binary_focal_crossentropy"})
_TOLERANCE = 1e-3
WITHOUT_LABELS = (
    "train to the float model's outputs with --qat-target model, which ignores the labels (or "
    "leave them out of the source with ?labels=none)"
)


def labels_by_output(labels: Array | None, outputs: Sequence[str]) -> dict[str, Array]:
    """The labels (n, ...) of each output that has some; see `Samples.labels`.

    Raises `InputRefused` for one array and several outputs.
    """
    if labels is None:
        return {}
    if labels.dtype.names:
        return {name: labels[name] for name in labels.dtype.names}
    if len(outputs) > 1:
        raise InputRefused(
            f"the labels are one array, and the model has {len(outputs)} outputs: "
            f"{quoted(outputs)}",
            hint="give an array for each output under its name, as in np.savez(…, "
            f"{', '.join(f'{name}=…' for name in outputs)}) without 'labels'; or "
            f"{WITHOUT_LABELS}",
        )
    return {outputs[0]: labels}


def kind_of_labels(output: str, scores: Array, labels: Array, loss: str = "") -> LabelKind:
    """What the labels (n, ...) of an output are, some of whose values are `scores` (m, ...).

    `loss` is the name of the loss that the model was trained with, if that is known. Raises
    `InputRefused` for labels that do not fit the output.
    """
    shape, label_shape = scores.shape[1:], labels.shape[1:]
    is_vector = bool(shape) and shape[-1] > 1
    if is_vector and _squeezed(label_shape) == _squeezed(shape[:-1]) and _are_whole(labels):
        _refuse_classes(output, labels, shape[-1])
        return "classes"
    if _squeezed(label_shape) != _squeezed(shape):
        raise _no_fit(output, shape, labels)
    are_shares, zeros_and_ones = _within(scores, 0, 1), bool(np.isin(labels, (0, 1)).all())
    if loss in _FOR_BINARY or (loss and loss not in _FOR_CLASSES):
        return "binary" if loss in _FOR_BINARY and zeros_and_ones else "values"
    is_one_hot = zeros_and_ones and is_vector and _sum_to_one(labels.reshape(-1, shape[-1]))
    if is_one_hot and (loss or not are_shares or is_softmax(scores)):
        return "classes"
    if zeros_and_ones and (are_shares or labels.dtype.kind in "biu"):
        return "binary"
    if labels.dtype.kind in "iu" and are_shares:
        _refuse_classes(output, labels, 2)
    return "values"


def is_softmax(scores: Array) -> bool:
    """Whether scores (n, ..., classes) come from a softmax, and are not logits."""
    return bool(scores.min() >= 0) and _sum_to_one(scores)


def _sum_to_one(rows: Array) -> bool:
    return bool(abs(rows.sum(axis=-1, dtype=np.float64) - 1).max() < _TOLERANCE)


def rows_of(kind: LabelKind, labels: Array, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The labels of an output of `shape` as a row for each sample: a class or value each."""
    if kind == "classes" and _squeezed(labels.shape[1:]) == _squeezed(shape):
        labels = labels.reshape(-1, *shape).argmax(axis=-1)
    return labels.reshape(len(labels), -1).astype(np.float32)


def right_shares(kind: LabelKind, scores: Array, labels: Array) -> NDArray[np.float64]:
    """How far an output (n, ...) is right in each sample, (n,), 1 where it is in all.

    For classes, and yes or no, it is the share of right ones. For values it is 1 minus
    the mean squared error over the variance of the labels, whose mean is the explained variance.
    """
    rows, values = rows_of(kind, labels, scores.shape[1:]), scores.reshape(len(scores), -1)
    if kind == "classes":
        classes = scores.argmax(axis=-1).reshape(len(scores), -1)
        return np.asarray((classes == rows).mean(axis=1))
    if kind == "binary":
        return np.asarray(((values > threshold_of(scores)) == (rows > 0)).mean(axis=1))
    errors = np.square(values.astype(np.float64) - rows).mean(axis=1)
    return np.asarray(1 - errors / variance_of(rows))


def metric_name(kinds: Iterable[LabelKind]) -> str:
    """What the mean of `right_shares` over outputs of these kinds is called."""
    are_shares = {kind in ("classes", "binary") for kind in kinds}
    if len(are_shares) > 1:
        return "mean_score"
    return "accuracy" if are_shares == {True} else "explained_variance"


def threshold_of(scores: Array) -> float:
    """The value above which an output (n, ...) says yes: in probabilities, or in logits."""
    return 0.5 if _within(scores, 0, 1) else 0.0


def variance_of(rows: Array) -> float:
    """The variance of values (n, ...); 1 where they are all the same."""
    return float(rows.var(dtype=np.float64)) or 1.0


def misfits(
    kinds: Mapping[str, LabelKind], scores: Mapping[str, Array], labels: Mapping[str, Array]
) -> tuple[str, ...]:
    """The outputs (n, ...) that are further from their labels than the labels' mean is."""
    return tuple(
        name
        for name, kind in kinds.items()
        if kind == "values" and right_shares(kind, scores[name], labels[name]).mean() < 0
    )


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _within(array: Array, low: float, high: float) -> bool:
    return bool(array.min() >= low and array.max() <= high)


def _are_whole(labels: Array) -> bool:
    return labels.dtype.kind in "biu" or bool((labels == np.rint(labels)).all())


def _refuse_classes(output: str, labels: Array, classes: int) -> None:
    if labels.min() < 0 or labels.max() >= classes:
        raise InputRefused(
            f"labels from {labels.min():g} to {labels.max():g}, and the model has {classes} "
            f"classes in its output {output!r}",
            hint="check the labels; `edgeconv doctor` finds out how they are numbered",
        )


def _no_fit(output: str, shape: tuple[int, ...], labels: Array) -> InputRefused:
    need = f"{labels.dtype} labels of shape (n, …) = {labels.shape}"
    sizes = ", ".join(["n", *map(str, shape)])
    classes = f", or class numbers ({', '.join(['n', *map(str, shape[:-1])])})" if shape else ""
    return InputRefused(
        f"{need} do not fit the output {output!r}, which needs values ({sizes}){classes}",
        hint=f"give labels of that shape; or {WITHOUT_LABELS}",
    )
