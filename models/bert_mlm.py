"""A tiny BERT that fills in masked words: 2 layers, 128 wide, 2 heads, 32 words at a time.

J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding" (2019), section 3.1, has the task; it is built from the layers of keras_hub.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from edgeconv.models import Data
    from numpy.typing import NDArray

TOKENS_NAME = "token_ids"
POSITIONS_NAME = "mask_positions"
OUTPUT_NAME = "logits"
UNKNOWN = 0
MASK = 1
SPECIALS = 2
VOCABULARY = 4096
LENGTH = 32
MASKED = 5
# How often each training passage comes in an epoch, masked differently each time.
COPIES = 6
LAYERS = 2
WIDTH = 128
HEADS = 2
EPOCHS = 3
GLOBAL_BATCH = 64
LEARNING_RATE = 5e-4
TRAIN_FILE = "wiki.valid.tokens"
TEST_FILE = "wiki.test.tokens"


def build() -> Any:
    """A new Keras 3 model.

    `token_ids`, int32 (batch, 32), and `mask_positions`, int32 (batch, 5), to logits of the
    words at those positions, float32 (batch, 5, 4096). Raises `ModuleNotFoundError` without
    keras_hub.
    """
    hub = _keras_hub()
    import keras

    tokens = keras.Input((LENGTH,), dtype="int32", name=TOKENS_NAME)
    positions = keras.Input((MASKED,), dtype="int32", name=POSITIONS_NAME)
    spread = keras.initializers.TruncatedNormal(stddev=0.05)
    embedding = hub.layers.TokenAndPositionEmbedding(
        VOCABULARY, LENGTH, WIDTH, embeddings_initializer=spread, name="embedding"
    )
    x = keras.layers.Dropout(0.1, name="embedding_dropout")(embedding(tokens))
    for index in range(LAYERS):
        # BERT does not normalize first. Without it the training long predicts common words only.
        x = hub.layers.TransformerEncoder(
            4 * WIDTH,
            HEADS,
            dropout=0.1,
            activation="gelu",
            normalize_first=True,
            name=f"encoder_{index}",
        )(x)
    x = keras.layers.LayerNormalization(name="norm")(x)
    head = hub.layers.MaskedLMHead(
        token_embedding=embedding.token_embedding, intermediate_activation="gelu", name=OUTPUT_NAME
    )
    return keras.Model([tokens, positions], head(x, mask_positions=positions))


def _keras_hub() -> Any:
    try:
        import keras_hub
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "bert_mlm is built from keras_hub, which is missing: pip install 'edgeconv[bert]'",
            name=error.name,
        ) from error
    return keras_hub


def optimizer(learning_rate: float, steps: int, replicas: int) -> Any:
    """Adam at `replicas` times the rate, falling to 0 in a straight line over `steps`."""
    import keras

    rate = keras.optimizers.schedules.PolynomialDecay(learning_rate * replicas, steps, 0.0)
    return keras.optimizers.Adam(rate, global_clipnorm=1.0)


def masked_cross_entropy(labels: Any, outputs: Any) -> Any:
    """The mean cross-entropy of a sample's masked words, in nats: (batch,)."""
    import tensorflow as tf

    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(labels, tf.int32), outputs)
    return tf.reduce_mean(losses, axis=-1)


def masked_accuracy(labels: Any, outputs: Any) -> Any:
    """Which share of a sample's masked words is guessed right: (batch,)."""
    import tensorflow as tf

    guesses = tf.argmax(outputs, axis=-1, output_type=tf.int32)
    right = tf.equal(guesses, tf.cast(labels, tf.int32))
    return tf.reduce_mean(tf.cast(right, tf.float32), axis=-1)


LOSS = masked_cross_entropy
METRIC = masked_accuracy


def data(location: str | None = None) -> Data:
    """Passages of WikiText-2 with 5 of their 32 words masked, which are the labels.

    `location` is the directory that has wiki.valid.tokens, to train on, and wiki.test.tokens, to
    test on. All arrays are int32: (n, 32), (n, 5) and labels (n, 5). The masked words are drawn
    with a fixed seed, and each training passage comes six times with other words masked. Words that
    are not among the most common of the training text are [UNK], and never masked.
    """
    import numpy as np
    from edgeconv.models import Data

    train, test = (_words(location, name) for name in (TRAIN_FILE, TEST_FILE))
    ids = vocabulary(train)
    passages = _passages(train, ids, TRAIN_FILE)
    x_train, y_train = masked(np.tile(passages, (COPIES, 1)), seed=0)
    x_test, y_test = masked(_passages(test, ids, TEST_FILE), seed=1)
    for name, labels in ((TRAIN_FILE, y_train), (TEST_FILE, y_test)):
        if not len(labels):
            raise ValueError(f"{name} has no passage with {MASKED} words that training knows")
    groups = np.tile(np.arange(len(passages)), COPIES)
    return Data(x_train, y_train, x_test, y_test, groups_train=groups)


def vocabulary(words: list[str]) -> dict[str, int]:
    """The number of each of the most common words, from 2 on, the most common first."""
    from collections import Counter

    counts = Counter(words)
    del counts["<unk>"]
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: SPECIALS + rank for rank, word in enumerate(ranked[: VOCABULARY - SPECIALS])}


def masked(
    passages: NDArray[np.int32], seed: int
) -> tuple[dict[str, NDArray[np.int32]], NDArray[np.int32]]:
    """The model's inputs, and the words under the masks, int32 (n, 5).

    `passages` is (n, 32), each with 5 known words at least.
    """
    import numpy as np

    known = passages != UNKNOWN
    drawn = np.where(known, np.random.default_rng(seed).random(passages.shape), 2.0)
    positions = np.sort(np.argsort(drawn, axis=1)[:, :MASKED], axis=1).astype(np.int32)
    tokens = passages.copy()
    np.put_along_axis(tokens, positions, MASK, axis=1)
    labels = np.take_along_axis(passages, positions, axis=1)
    return {TOKENS_NAME: tokens, POSITIONS_NAME: positions}, labels


def _words(location: str | None, name: str) -> list[str]:
    """The words of one file, in lower case."""
    if location is None:
        raise FileNotFoundError(
            f"bert_mlm needs a directory with WikiText-2's {TRAIN_FILE} and {TEST_FILE}"
        )
    path = Path(location) / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: bert_mlm needs WikiText-2's {TRAIN_FILE} and {TEST_FILE}"
        )
    try:
        return path.read_text(encoding="utf-8").lower().split()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from error


def _passages(words: list[str], ids: dict[str, int], name: str) -> NDArray[np.int32]:
    """The numbers of the words, int32 (n, 32).

    The rest of an incomplete passage is dropped, and so are passages with fewer than 5 known words.
    """
    import numpy as np

    count = len(words) // LENGTH
    if count < 1:
        raise ValueError(f"{name} has {len(words)} words; a passage alone is {LENGTH}")
    numbers = [ids.get(word, UNKNOWN) for word in words[: count * LENGTH]]
    passages = np.array(numbers, np.int32).reshape(count, LENGTH)
    return passages[(passages != UNKNOWN).sum(axis=1) >= MASKED]
