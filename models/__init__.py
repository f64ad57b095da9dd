"""Baseline models: how each is built, its data, its loss and its metric.

A model is one plain module here, beside a card of the same name that says what it is
for, where its data comes from and what was measured. `ModelModule` is what such a module
has to have, and so has a user's own; `edgeconv.plugins.BASELINE_MODELS` names those of this
package. Modules import TensorFlow inside functions only, so that reading `data` costs no
TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    # (labels, outputs), both tensors of (batch, ...), to one number a sample, (batch,).
    PerSample = Callable[[Any, Any], Any]


class Data(NamedTuple):
    """Training and test samples.

    The `x_…` hold one array of shape (n, *sample_shape) per input, by the input's name;
    the `y_…` are the labels, of shape (n, *label_shape). `groups_train`, integers (n,), says
    which training samples belong together, such as several of one text or of one speaker: what
    is kept apart to validate with then is whole groups.
    """

    x_train: dict[str, NDArray[Any]]
    y_train: NDArray[Any]
    x_test: dict[str, NDArray[Any]]
    y_test: NDArray[Any]
    groups_train: NDArray[Any] | None = None


class ModelModule(Protocol):
    """What a model module has to have.

    `LOSS` and `METRIC` are names that Keras knows ("sparse_categorical_crossentropy",
    "accuracy"), or functions of (labels, outputs) that give one number a sample; the
    metric is better the larger it is. A module may also have a function
    `optimizer(learning_rate, steps, replicas)` that gives the Keras optimizer; without one it
    is Adam, its rate falling to 0 along a cosine. `steps` are those of the whole training.
    """

    LOSS: str | PerSample
    METRIC: str | PerSample
    EPOCHS: int
    GLOBAL_BATCH: int
    LEARNING_RATE: float

    def build(self) -> Any:
        """A new, uncompiled model of tf_keras or Keras 3, whose inputs are named as in `data`."""

    def data(self, place: str | None = None) -> Data:
        """The samples, the same ones in the same order at every call.

        `place` is a file or directory that has them; None: where the module finds them itself.
        Raises `FileNotFoundError` with what is missing, and `ValueError` for what is there and
        is not it.
        """
