"""LSTM layers of Keras 3 files: one operator each, and right."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from edge_models import invoked

from edgeconv import convert, embed
from edgeconv.model.tflite import summarize
from edgeconv.requests.recipes import make_recipes
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter

LSTM = "UNIDIRECTIONAL_SEQUENCE_LSTM"
STEPS, SIZE = 5, 5
SAMPLES = np.random.default_rng(0).normal(size=(64, STEPS, SIZE)).astype(np.float32)


def network(name):
    """A model with LSTM layers whose weights, biases too, are far from zero."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(3)
    start = layers.Input((STEPS, SIZE), name="x")
    body = {
        "stacked": [layers.LSTM(6, return_sequences=True), layers.LSTM(7)],
        "of many kinds": [
            keras.Sequential([layers.LSTM(6, use_bias=False, return_sequences=True)]),
            layers.LSTM(5, dropout=0.3, recurrent_dropout=0.3, return_sequences=True),
            layers.Bidirectional(layers.LSTM(4, return_sequences=True)),
            layers.LSTM(6, go_backwards=True),
        ],
        "masked": [layers.Masking(), layers.LSTM(6)],
        "hard": [layers.LSTM(6, recurrent_activation="hard_sigmoid")],
    }[name]
    model = keras.Sequential([start, *body, layers.Dense(3)])
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(0, 0.4, each.shape).astype(np.float32) for each in model.weights])
    return model


def answers(data, samples):
    interpreter = open_interpreter(data, threads=1)
    model = InProcessModel(interpreter, "serving_default")
    outputs = []
    for sample in samples:
        (output,) = model.run({"x": sample[None]}).values()
        outputs.append(output)
        interpreter.reset_all_variables()
    return np.concatenate(outputs)


@pytest.fixture(scope="module")
def stacked(folder):
    """The files of a network: with its loops unrolled, of three recipes, and with fused layers."""
    network("stacked").save(folder / "model.keras")
    np.save(folder / "samples.npy", SAMPLES)
    common = {"calibration": str(folder / "samples.npy"), "methods": "none"}
    recipes = ["int8x4", "int8", "dynamic"]
    return {
        False: convert(folder / "model.keras", to=recipes, out=folder / "unrolled", **common),
        True: convert(
            folder / "model.keras", to=["int8"], out=folder / "fused", fuse_lstm=True, **common
        ),
    }


@pytest.mark.slow
def test_int8_is_right_without_a_reset_unless_layers_are_to_be_fused(stacked):
    expected = network("stacked").predict(SAMPLES, verbose=0)
    for fuse_lstm, conversion in stacked.items():
        file = Path(conversion["int8"].path)
        assert (LSTM in operators_of(file.read_bytes())) is fuse_lstm
        off = invoked(file, SAMPLES, reset=fuse_lstm) - expected
        assert np.mean(off**2) < np.var(expected) / 100
    assert stacked[False]["int8"].size_bytes > stacked[True]["int8"].size_bytes


@pytest.mark.slow
def test_the_code_of_a_file_with_fused_layers_resets_them(stacked, tmp_path, monkeypatch):
    embed(stacked[True]["int8"].path, "python", tmp_path / "code", symbol="fused_net")
    monkeypatch.syspath_prepend(tmp_path / "code")
    model = importlib.import_module("fused_net").Model()
    given = np.concatenate([model.run(x=sample[None])[0] for sample in SAMPLES])
    off = given - network("stacked").predict(SAMPLES, verbose=0)
    assert np.mean(off**2) < np.var(given) / 100


@pytest.mark.parametrize(
    "name",
    [*(pytest.param(name, marks=pytest.mark.slow) for name in ("of many kinds", "hard")), "masked"],
)
def test_float32_keeps_the_loops_and_int8_fuses_the_layers_where_that_is_right(tmp_path, name):
    model = network(name)
    samples = SAMPLES.copy()
    samples[::2, -3:] = 0  # what is masked
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "samples.npy", samples)
    conversion = convert(
        tmp_path / "model.keras",
        out=tmp_path / "out",
        to=["float32", "int8"],
        calibration=str(tmp_path / "samples.npy"),
        methods="none",
        fuse_lstm=True,
    )
    assert conversion.failures == ()
    expected = model.predict(samples, verbose=0)
    floating, int8 = (
        (tmp_path / "out" / artifact.file).read_bytes() for artifact in conversion.artifacts
    )
    assert LSTM not in operators_of(floating)
    np.testing.assert_allclose(answers(floating, samples), expected, atol=1e-5)
    assert operators_of(int8).get(LSTM, 0) == (5 if name == "of many kinds" else 0)
    off = answers(int8, samples) - expected
    assert np.mean(off**2) < np.var(expected) / 100


def operators_of(data):
    return {each.name: each.count for each in summarize(data, where="it").operators}


@pytest.mark.slow
def test_steps_share_weights_of_4_bits_and_a_file_that_is_no_smaller_says_so(stacked):
    conversion = stacked[False]
    assert conversion.failures == ()
    sizes = {each.recipe.name: each.size_bytes for each in conversion.artifacts}
    (warning,) = conversion["int8x4"].verification.warnings
    assert f"no smaller than int8 ({sizes['int8x4']:,} and {sizes['int8']:,} bytes)" in warning
    assert conversion["int8x4"].verification.grade == "close"


def test_methods_act_on_a_model_with_a_loop(tmp_path):
    network("hard").save(tmp_path / "model.keras")
    np.save(tmp_path / "samples.npy", SAMPLES)
    conversion = convert(
        tmp_path / "model.keras",
        out=tmp_path / "out",
        to=make_recipes(["weight-only-int8"], methods=["bias-correction"]),
        calibration=str(tmp_path / "samples.npy"),
    )
    assert conversion.failures == ()
    (artifact,) = conversion.artifacts
    assert artifact.post_training.methods == ("bias-correction",)
    data = (tmp_path / "out" / artifact.file).read_bytes()
    assert "WHILE" in {each.name for each in summarize(data, where="it").operators}
