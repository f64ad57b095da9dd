"""A convolutional network for the polarity of sentences of film reviews.

Y. Kim, "Convolutional Neural Networks for Sentence Classification" (2014): filters of 3, 4 and 5
words and the maximum of each over the sentence, which becomes REDUCE_MAX. A module for
`edgeconv train`, which names the directory with rt-polarity.pos and rt-polarity.neg as its data.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from edgeconv.models import Data

INPUT_NAME = "word_ids"
OUTPUT_NAME = "probabilities"
# 0 is a place after the last word, 1 a word that is not in the vocabulary.
SPECIALS = 2
VOCABULARY = 6000
LENGTH = 32
WIDTH = 32
FILTERS = 32
TEST_SHARE = 0.2
SPLIT_SEED = 0
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 4
GLOBAL_BATCH = 32
LEARNING_RATE = 2e-3


def build() -> Any:
    """A new tf_keras.Model: int32 (batch, 32) to probabilities (batch, 2)."""
    from tf_keras import Model, layers

    words = layers.Input((LENGTH,), dtype="int32", name=INPUT_NAME)
    x = layers.Dropout(0.2)(layers.Embedding(VOCABULARY, WIDTH)(words))
    each = [layers.Conv1D(FILTERS, size, activation="relu")(x) for size in (3, 4, 5)]
    x = layers.Concatenate()([layers.GlobalMaxPooling1D()(part) for part in each])
    x = layers.Dropout(0.5)(x)
    return Model(words, layers.Dense(2, activation="softmax", name=OUTPUT_NAME)(x))


def data(location: str | None = None) -> Data:
    """Numbers of words, int32 (n, 32), and whether the sentence is positive, int64 (n,).

    A fifth of them, drawn with a fixed seed, is for testing; the vocabulary is of the others.
    Raises `FileNotFoundError` where `location` lacks one of the files.
    """
    sentences, labels = [], []
    for label, name in enumerate(("rt-polarity.neg", "rt-polarity.pos")):
        text = (Path(location or ".") / name).read_text(encoding="utf-8", errors="replace")
        read = [re.findall(r"[a-z']+|[.,!?]", line.lower()) for line in text.splitlines() if line]
        sentences += read
        labels += [label] * len(read)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    test, train = np.split(order, [round(TEST_SHARE * len(order))])
    ids = vocabulary(sentences[index] for index in train)
    x, y = np.stack([numbers_of(words, ids) for words in sentences]), np.array(labels, np.int64)
    return Data({INPUT_NAME: x[train]}, y[train], {INPUT_NAME: x[test]}, y[test])


def vocabulary(sentences: Any) -> dict[str, int]:
    """The numbers of the most common words of the sentences, from 2 on."""
    counts = Counter(word for words in sentences for word in words)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: SPECIALS + rank for rank, word in enumerate(ranked[: VOCABULARY - SPECIALS])}


def numbers_of(words: list[str], ids: dict[str, int]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The numbers of a sentence's first words, int32 (32,)."""
    row = np.zeros(LENGTH, np.int32)
    row[: len(words)] = [ids.get(word, 1) for word in words[:LENGTH]]
    return row
