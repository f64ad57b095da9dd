"""Writes models of tokens with a vocabulary of 50, and sets of tokens that have others.

python token_zoo.py DIRECTORY
"""

import os
import sys
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


def _tagger(k: Any, recurrent: Any) -> Any:
    layers = k.layers
    return k.Sequential(
        [k.Input((20,), name="ids"), layers.Embedding(50, 8), recurrent, layers.Dense(3)]
    )


def write(root: Path) -> None:
    """Write everything into `root`."""
    import keras
    import numpy as np
    import tf_keras

    keras.utils.set_random_seed(4)
    for prefix, k in (("three", keras), ("two", tf_keras)):
        layers = k.layers
        _tagger(k, layers.LSTM(8)).save(root / f"{prefix}_lstm.keras")
        _tagger(k, layers.GRU(8)).save(root / f"{prefix}_gru.keras")
        pooled = _tagger(k, layers.GlobalAveragePooling1D())
        pooled.save(root / f"{prefix}_pooled.keras")
        if k is tf_keras:
            pooled.save(root / "saved")
    ids = np.random.default_rng(0).integers(0, 100, (60, 20)).astype(np.float32)
    np.savez(root / "beyond.npz", ids=ids)
    # Only one of many is beyond.
    ids = ids % 50
    ids[37, 3] = 50
    np.savez(root / "one.npz", ids=ids)
    np.savez(root / "right.npz", ids=ids % 50)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
