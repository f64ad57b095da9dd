"""An LSTM on the spectrogram of spoken digits, a Sequential of tf_keras.

A module for `edgeconv train`; its data are those of `spoken_digits`, without the last axis.
"""

from typing import Any

from edgeconv.models import Data, spoken_digits

INPUT_NAME = "log_mel"
CLASSES = 10
FRAMES, BANDS = 64, 32
UNITS = 48
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 20
GLOBAL_BATCH = 32
LEARNING_RATE = 5e-3


def build() -> Any:
    """A new tf_keras.Sequential: float32 (batch, 64, 32) to probabilities (batch, 10)."""
    from tf_keras import Sequential, layers

    return Sequential(
        [
            layers.Input((FRAMES, BANDS), name=INPUT_NAME),
            # Most of a recording is silence at the end: its last state knows little of the digit.
            layers.LSTM(UNITS, return_sequences=True),
            layers.GlobalAveragePooling1D(),
            layers.Dense(CLASSES, activation="softmax", name="probabilities"),
        ]
    )


def data(location: str | None = None) -> Data:
    """Spectrograms, float32 (n, 64, 32), and the digits, int64 (n,)."""
    found = spoken_digits.data(location)
    x_train, x_test = (
        {name: x[..., 0] for name, x in part.items()} for part in (found.x_train, found.x_test)
    )
    return found._replace(x_train=x_train, x_test=x_test)
