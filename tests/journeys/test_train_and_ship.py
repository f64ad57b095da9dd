"""A baseline trained under each strategy, and all that follows until its code is compiled."""

import json
from pathlib import Path

import numpy as np
import pytest
from reports import accuracies

# Whatever is kept for each worker is in it: moving averages, random numbers, a metric.
MODULE = """\
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS, GLOBAL_BATCH, LEARNING_RATE = 3, 32, 1e-2


def build():
    import tf_keras
    from tf_keras import layers

    return tf_keras.Sequential(
        [
            tf_keras.Input((8, 8, 1), name="image"),
            layers.Conv2D(16, 3, strides=2, use_bias=False),
            layers.BatchNormalization(momentum=0.8),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(10, activation="softmax", name="digit"),
        ]
    )


def data(location=None):
    import numpy as np
    from edgeconv.models import Data
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = np.float32(images.reshape(-1, 8, 8, 1) / 16)
    return Data({"image": images[:1000]}, labels[:1000], {"image": images[1000:]}, labels[1000:])
"""
CONFIG = """\
[model.digits]
source = "export/digits"

[convert]
to = ["int8"]
calibration = "train.npz"

[bench]
data = "test.npz"
rounds = 1

[budget]
max-accuracy-drop = 0.1
"""
LOCAL = ("--workers", 2)
# By which loop, and with which options; test_train_matrix.py has the other loop of each.
STRATEGIES = {
    "none": ("fit",),
    "mirrored": ("custom",),
    "central-storage": ("fit",),
    "multiworker": ("custom", *LOCAL),
    "parameter-server": ("fit", *LOCAL, "--servers", 1),
}


@pytest.fixture
def project(tmp_path) -> Path:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = np.float32(images.reshape(-1, 8, 8, 1) / 16)
    np.savez(tmp_path / "train.npz", image=images[:1000])
    np.savez(tmp_path / "test.npz", image=images[1000:], labels=labels[1000:])
    (tmp_path / "digits.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "edgeconv.toml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_baseline_of_each_strategy_becomes_code_that_compiles(strategy, project, machine):
    loop, *options = STRATEGIES[strategy]
    train = ("train", "digits.py", "--strategy", strategy, *options, "-o", "export")
    machine.edgeconv(project, *train, "--loop", loop)
    record = json.loads((project / "export/digits/1.training.json").read_text(encoding="utf-8"))
    assert (record["loop"], record["workers"]) == (loop, 2 if options else 1)
    assert record["test_metrics"]["accuracy"] > 0.7
    machine.edgeconv(project, "convert", "export/digits", "--config", "edgeconv.toml")
    files = project / "digits.tflites"
    machine.edgeconv(project, "bench", files, "--data", "test.npz", "--rounds", 1, "-o", "report")
    assert accuracies(project / "report")["int8"] > record["test_metrics"]["accuracy"] - 0.05
    assert "PASS" in machine.edgeconv(project, "check", "--update")
    embed = ("embed", files / "digits.int8.tflite", "--target", "c", "--symbol", "digits")
    machine.edgeconv(project, *embed, "-o", "firmware")
    compile_all = "cc -std=c11 -Wall -Wextra -Werror -Ifirmware -c firmware/*.c"
    machine.shell(project, compile_all)
    assert (project / "digits_model.o").is_file()
