"""A 1-D network on the waveform of spoken digits: one second at 8 kHz.

W. Dai et al., "Very deep convolutional neural networks for raw waveforms" (2017), their M5, less
wide. A module for `edgeconv train`; its recordings are those of `spoken_digits`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from edgeconv.models import Data
    from numpy.typing import NDArray

INPUT_NAME = "waveform"
OUTPUT_NAME = "probabilities"
CLASSES = 10
SAMPLES = 8000
FIRST_FILTERS = 24
FILTERS = (24, 48, 64)
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 25
GLOBAL_BATCH = 32
LEARNING_RATE = 3e-3


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 8000, 1) to probabilities (batch, 10)."""
    from tf_keras import Model, layers

    waveform = layers.Input((SAMPLES, 1), name=INPUT_NAME)
    x = layers.Conv1D(FIRST_FILTERS, 80, strides=4, padding="same", use_bias=False)(waveform)
    x = layers.MaxPooling1D(4)(_normalized(x))
    for filters in FILTERS:
        x = layers.Conv1D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.MaxPooling1D(4)(_normalized(x))
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling1D()(x))
    return Model(waveform, layers.Dense(CLASSES, activation="softmax", name=OUTPUT_NAME)(x))


def _normalized(x: Any) -> Any:
    from tf_keras import layers

    # The running averages follow a short training only with less inertia than the default.
    return layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))


def data(location: str | None = None) -> Data:
    """Waveforms, float32 (n, 8000, 1) within ±1, and the digits, int64 (n,).

    `location` is what `spoken_digits.data` takes; longer recordings are cut, and shorter ones
    padded with silence.
    """
    import numpy as np
    from edgeconv.models import Data, spoken_digits

    clips = sorted(spoken_digits._clips(location), key=lambda clip: clip[:3])
    test = np.array([clip.number < spoken_digits.TEST_RECORDINGS for clip in clips])
    x = np.stack([_second_of(clip.samples) for clip in clips])[..., np.newaxis]
    y = np.array([clip.digit for clip in clips], np.int64)
    return Data({INPUT_NAME: x[~test]}, y[~test], {INPUT_NAME: x[test]}, y[test])


def _second_of(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    """The first second of a recording as float32 (8000,)."""
    import numpy as np

    second = np.zeros(SAMPLES, np.float32)
    second[: len(samples)] = samples[:SAMPLES] / np.float32(32768)
    return second
