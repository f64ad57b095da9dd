"""Convolutions and attention over series and token ids."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage.drawn import COUNT, TINY_COUNT, keep, rows, series, tokens
from benchmarks.coverage.settled import library_of, save, spread_head

CLASSES = 5


def conv1d(directory: Path, *, library: str = "tf_keras", kind: str = "saved_model") -> Path:
    """A keyword-spotting-like stack of 1-D convolutions."""
    keras = library_of(library)
    layers = keras.layers
    wave = layers.Input((64, 8), name="wave")
    x = layers.Conv1D(16, 5, padding="same", activation="relu")(wave)
    x = layers.MaxPooling1D(2)(x)
    x = layers.SeparableConv1D(24, 5, padding="same", activation="relu")(x)
    x = layers.GlobalAveragePooling1D()(x)
    model = keras.Model(wave, layers.Dense(CLASSES, activation="softmax")(x))
    values = series(TINY_COUNT, 64, 8)
    keep(directory, wave=values)
    return save(keras, spread_head(keras, model, values), directory, kind)


def wavenet(directory: Path, *, library: str, kind: str) -> Path:
    """Dilated causal convolutions with gates, residual and skip paths."""
    keras = library_of(library)
    layers = keras.layers
    wave = layers.Input((64, 4), name="wave")
    x = layers.Conv1D(16, 1)(wave)
    skips = []
    for dilation in (1, 2, 4, 8):
        conv = {"padding": "causal", "dilation_rate": dilation}
        gate = layers.Conv1D(16, 2, activation="sigmoid", **conv)(x)
        gated = layers.Multiply()([layers.Conv1D(16, 2, activation="tanh", **conv)(x), gate])
        skips.append(layers.Conv1D(16, 1)(gated))
        x = layers.Add()([x, skips[-1]])
    x = layers.ReLU()(layers.Add()(skips))
    model = keras.Model(wave, layers.Conv1D(CLASSES, 1, activation="softmax")(x))
    values = series(TINY_COUNT, 64, 4)
    keep(directory, wave=values)
    return save(keras, spread_head(keras, model, values), directory, kind)


def transformer(directory: Path, *, library: str, kind: str) -> Path:
    """Two encoder blocks of self-attention over a series."""
    keras = library_of(library)
    layers = keras.layers
    steps = layers.Input((16, 8), name="steps")
    x = layers.Dense(32)(steps)
    for _ in range(2):
        x = _encoder(layers, x, 32)
    x = layers.GlobalAveragePooling1D()(x)
    model = keras.Model(steps, layers.Dense(CLASSES, activation="softmax")(x))
    values = series(TINY_COUNT, 16, 8)
    keep(directory, steps=values)
    return save(keras, spread_head(keras, model, values), directory, kind)


def _encoder(layers: Any, x: Any, width: int) -> Any:
    seen = layers.MultiHeadAttention(4, width // 4)(x, x)
    x = layers.LayerNormalization()(layers.Add()([x, seen]))
    thought = layers.Dense(width)(layers.Dense(2 * width, activation="gelu")(x))
    return layers.LayerNormalization()(layers.Add()([x, thought]))


def token_transformer(directory: Path) -> Path:
    """Token and position embeddings under an encoder block."""
    keras = library_of("keras")
    layers = keras.layers
    ids = layers.Input((12,), dtype="int32", name="ids")
    x = layers.Embedding(60, 32)(ids)
    x = x + layers.Embedding(12, 32)(keras.ops.arange(12))
    x = layers.GlobalAveragePooling1D()(_encoder(layers, x, 32))
    model = keras.Model(ids, layers.Dense(CLASSES, activation="softmax")(x))
    values = tokens(TINY_COUNT, 12, 60)
    keep(directory, ids=values)
    return save(keras, spread_head(keras, model, values), directory, "keras")


def bert(directory: Path) -> Path:
    """A tiny BERT of keras_hub with a classifying head, as a SavedModel."""
    import keras_hub

    keras = library_of("keras")
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=200,
        num_layers=2,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=64,
        max_sequence_length=16,
    )
    inputs = {
        name: keras.layers.Input((16,), dtype="int32", name=name)
        for name in ("token_ids", "segment_ids", "padding_mask")
    }
    pooled = backbone(inputs)["pooled_output"]
    model = keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(pooled))
    ids = tokens(COUNT, 16, 200)
    segments = np.tile((np.arange(16) >= 8).astype(np.int32), (COUNT, 1))
    keep(directory, token_ids=ids, segment_ids=segments, padding_mask=(ids > 0).astype(np.int32))
    return save(keras, model, directory, "saved_model")


def embedding_bag(directory: Path, *, library: str = "tf_keras", kind: str = "h5") -> Path:
    """The mean of word vectors under two dense layers."""
    keras = library_of(library)
    layers = keras.layers
    ids = layers.Input((20,), dtype="int32", name="ids")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(300, 24)(ids))
    x = layers.Dense(32, activation="relu")(x)
    model = keras.Model(ids, layers.Dense(CLASSES, activation="softmax")(x))
    values = tokens(TINY_COUNT, 20, 300)
    keep(directory, ids=values)
    return save(keras, spread_head(keras, model, values), directory, kind)


def integer_features(directory: Path) -> Path:
    """Whole-number features, one of them a category, beside measured ones."""
    keras = library_of("keras")
    layers = keras.layers
    shop = layers.Input((1,), dtype="int32", name="shop")
    measured = layers.Input((6,), name="measured")
    x = layers.Concatenate()([layers.Flatten()(layers.Embedding(30, 8)(shop)), measured])
    x = layers.Dense(24, activation="relu")(x)
    model = keras.Model([shop, measured], layers.Dense(3)(x))
    ids = np.random.default_rng(3).integers(0, 30, (TINY_COUNT, 1)).astype(np.int32)
    keep(directory, shop=ids, measured=rows(TINY_COUNT, 6))
    return save(keras, model, directory, "saved_model")
