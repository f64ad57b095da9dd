"""Baseline models: how each is built, its data, its loss and its metric.

A model is one plain module, next to a card of the same name with its purpose, its data and its
measurements. `ModelModule` describes such a module, also a user's. `plugins.BASELINE_MODELS` names
those of this package. Modules import TensorFlow inside functions only: `data` needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    # (labels, outputs), both tensors of (batch, ...), to one number per sample, (batch,).
    PerSample = Callable[[Any, Any], Any]


class Data(NamedTuple):
    """Training and test samples.

    The `x_…` hold one array of shape (n, *sample_shape) per input, by the input's name; the `y_…`
    are the labels, of shape (n, *label_shape). `groups_train`, integers (n,), is equal for training
    samples that belong together, such as those of one speaker: validation samples are whole groups.
    """

    x_train: dict[str, NDArray[Any]]
    y_train: NDArray[Any]
    x_test: dict[str, NDArray[Any]]
    y_test: NDArray[Any]
    groups_train: NDArray[Any] | None = None


class ModelModule(Protocol):
    """A model module.

    `LOSS` and `METRIC` are names of Keras ("sparse_categorical_crossentropy", "accuracy"), or
    functions of (labels, outputs) that return one number per sample; a larger metric is better. A
    module may also have a function `optimizer(learning_rate, steps, replicas)` that returns the
    Keras optimizer, with the steps of the whole training. The default is Adam, with a rate that
    falls to 0 along a cosine.
    """

    LOSS: str | PerSample
    METRIC: str | PerSample
    EPOCHS: int
    GLOBAL_BATCH: int
    LEARNING_RATE: float

    def build(self) -> Any:
        """A new, uncompiled model of tf_keras or Keras 3, whose inputs are named as in `data`."""

    def data(self, location: str | None = None) -> Data:
        """The samples, equal and in the same order at every call.

        `location` is their file or directory; None is the module's default. Raises
        `FileNotFoundError` for missing files, and `ValueError` for other content.
        """
