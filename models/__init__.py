"""Baseline models: how each is built, its data, its loss and its metric.

A model is one plain module here, beside a card of the same name that says what it is
for, where its data comes from and what was measured. `ModelModule` is what such a module
has to have; `edgeconv.plugins.BASELINE_MODELS` names it. Modules import TensorFlow inside
`build` only, so that reading `data` costs no TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Data(NamedTuple):
    """Training and test samples.

    The `x_…` hold one array of shape (n, *sample_shape) per input, by the input's name;
    the `y_…` are the labels, int64 of shape (n,).
    """

    x_train: dict[str, NDArray[Any]]
    y_train: NDArray[np.int64]
    x_test: dict[str, NDArray[Any]]
    y_test: NDArray[np.int64]


class ModelModule(Protocol):
    """What a module of this package has to have."""

    LOSS: str
    METRIC: str
    EPOCHS: int
    GLOBAL_BATCH: int
    LEARNING_RATE: float

    def build(self) -> Any:
        """A new, uncompiled tf_keras.Model, whose inputs are named as in `data`."""

    def data(self) -> Data:
        """The samples, the same ones in the same order at every call."""
