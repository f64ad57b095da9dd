"""What a file needs less space for: tables that are used twice, and constants of one number."""

from pathlib import Path

import numpy as np
import pytest
from forking import output_of

from edgeconv import convert

MODELS = """
import sys
import keras
import numpy as np
import tensorflow as tf

layers = keras.layers
random = np.random.default_rng(0)
table = tf.Variable(random.normal(size=(2000, 64)).astype(np.float32))
bias = tf.Variable(random.normal(size=(64,)).astype(np.float32))


def tied(ids):
    steps = tf.nn.relu(tf.gather(table, ids) + bias)
    return {"logits": tf.matmul(tf.reduce_mean(steps, 1), table, transpose_b=True)}


def ones(x):
    plus = tf.nn.relu(x * (tf.ones([256, 128]) * 3))
    return {"y": tf.reduce_mean(plus[:, None] + tf.ones([4, 256, 128]) * 3, [1, 2])}


for serve, spec in (
    (tied, tf.TensorSpec([None, 12], tf.int32, name="ids")),
    (ones, tf.TensorSpec([None, 256, 128], name="x")),
):
    module = tf.Module()
    module.table, module.bias = table, bias
    module.serve = tf.function(serve, input_signature=[spec])
    tf.saved_model.save(module, f"{sys.argv[1]}/{serve.__name__}", signatures=module.serve)
convolutions = [
    layers.Conv1D(16, 3, dilation_rate=rate, padding="causal", activation="relu")
    for rate in (2, 4, 8)
]
top = [layers.GlobalAveragePooling1D(), layers.Dense(4)]
model = keras.Sequential([keras.Input((64, 8), name="x"), *convolutions, *top])
model.save(f"{sys.argv[1]}/dilated.keras")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("small")
    output_of("-c", MODELS, root)
    return root


def test_a_table_that_is_used_twice_is_stored_once(place, tmp_path):
    recipes = ["float32", "float16", "dynamic", "weight-only-int8"]
    made = convert(str(place / "tied"), out=str(tmp_path), to=recipes)
    sizes = {each.recipe.name: each.size_bytes for each in made.artifacts}
    assert sizes["float16"] < 0.51 * sizes["float32"]
    for name in ("dynamic", "weight-only-int8"):
        assert sizes[name] < 0.31 * sizes["float32"]
    for each in made.artifacts:
        assert each.verification.outputs[0].snr_db > 30


def test_a_constant_of_one_number_takes_no_space(place, tmp_path):
    random = np.random.default_rng(1)
    np.savez(tmp_path / "x.npz", x=random.normal(size=(40, 256, 128)).astype(np.float32))
    made = convert(
        str(place / "ones"),
        out=str(tmp_path / "out"),
        to=["float32", "dynamic", "int8"],
        calibration=str(tmp_path / "x.npz"),
    )
    assert made.failures == ()
    for each in made.artifacts:
        assert each.size_bytes < 10_000
        # The step of its int8 output is a sixth of the deviation.
        assert each.verification.outputs[0].snr_db > 20


def test_a_note_says_that_a_fixed_batch_makes_dilated_convolutions_smaller(place, tmp_path):
    model = str(place / "dilated.keras")
    (open_batch,) = convert(model, out=str(tmp_path / "open"), to=["float32"]).artifacts
    assert any("--batch 1" in each for each in open_batch.notes)
    (fixed,) = convert(model, out=str(tmp_path / "fixed"), to=["float32"], batch=1).artifacts
    assert fixed.size_bytes < 0.9 * open_batch.size_bytes
    assert not any("--batch 1" in each for each in fixed.notes)
