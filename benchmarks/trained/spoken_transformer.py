"""A small transformer on the spectrogram of spoken digits.

A. Berg, M. O'Connor and M. Tairum Cruz, "Keyword Transformer: A Self-Attention Model for Keyword
Spotting" (2021), with two blocks of width 48; it averages over time and has no class token. A
module for `edgeconv train`; its data are those of `spoken_digits`.
"""

from typing import Any

from edgeconv.models import Data, spoken_digits

INPUT_NAME = "log_mel"
OUTPUT_NAME = "probabilities"
CLASSES = 10
FRAMES, BANDS = 64, 32
# Two frames are one token.
TOKENS = FRAMES // 2
WIDTH = 48
HEADS = 3
BLOCKS = 2
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 30
GLOBAL_BATCH = 32
LEARNING_RATE = 1e-3


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 64, 32, 1) to probabilities (batch, 10)."""
    from tf_keras import Model, layers

    log_mel = layers.Input((FRAMES, BANDS, 1), name=INPUT_NAME)
    tokens = layers.Reshape((TOKENS, FRAMES // TOKENS * BANDS))(log_mel)
    x = layers.Dense(WIDTH)(tokens)
    # It sees where the recording begins and ends, and so gives tokens their positions.
    x = layers.Add()([x, layers.DepthwiseConv1D(5, padding="same")(x)])
    for _ in range(BLOCKS):
        inner = layers.LayerNormalization(epsilon=1e-5)(x)
        inner = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, dropout=0.1)(inner, inner)
        x = layers.Add()([x, inner])
        inner = layers.LayerNormalization(epsilon=1e-5)(x)
        inner = layers.Dense(2 * WIDTH, activation="gelu")(inner)
        x = layers.Add()([x, layers.Dropout(0.1)(layers.Dense(WIDTH)(inner))])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-5)(x))
    return Model(log_mel, layers.Dense(CLASSES, activation="softmax", name=OUTPUT_NAME)(x))


def data(location: str | None = None) -> Data:
    """Spectrograms, float32 (n, 64, 32, 1), and the digits, int64 (n,)."""
    return spoken_digits.data(location)
