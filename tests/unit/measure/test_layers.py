"""The error of each layer of a quantised model."""

from pathlib import Path

import numpy as np
import pytest
from places import SHARED
from tiny_tflite import BIASES, WEIGHTS, Graph, float_model, int8_model, packed, run
from wording import fails

from edgeconv.measure.debug import LayerErrors, layer_errors, layers_of
from edgeconv.model.tflite import ensure_signature, summarize
from edgeconv.model.tflite.cut import with_fixed_shapes
from edgeconv.runtimes.interface import Model
from edgeconv.types import Allowance
from edgeconv.types.errors import ToolFailed

X = np.random.default_rng(5).uniform(-8, 8, (6, 4)).astype(np.float32)


def compared(path: Path, quantised: bytes, floating: bytes, **inputs: np.ndarray) -> LayerErrors:
    files = []
    for name, data in (("int8", quantised), ("float32", floating)):
        files.append(path / f"{name}.tflite")
        files[-1].write_bytes(data)
    models = [Model(file=file) for file in files]
    return layer_errors(*models, inputs, scratch=path, allowance=Allowance(timeout_s=120))


def test_a_layers_error_is_that_of_its_dequantised_output_over_all_samples(tmp_path):
    found = compared(tmp_path, packed(int8_model()), packed(float_model()), x=X)
    stored = np.clip(np.rint(X / 0.5) - 3, -128, 127).astype(np.int8)
    have = np.array([run(packed(int8_model()), row[None])[0][0] for row in stored])
    have = (have.astype(np.float64) - 5) * 64
    want = X.astype(np.float64) @ WEIGHTS.T + BIASES
    (error,) = found.errors
    assert (error.layer, error.operator, error.samples) == ("y", "FULLY_CONNECTED", 6)
    snr_db = 10 * np.log10(np.var(want) / np.mean((have - want) ** 2))
    assert error.snr_db == pytest.approx(snr_db, abs=0.01)
    assert error.max_error == pytest.approx(np.abs(have - want).max(), rel=1e-5)
    assert found.left_out == 0


def two_layers(*, first: str, width: int = 3) -> bytes:
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    w = graph.tensor("w", (width, 4), "float32", data=WEIGHTS[:width].astype(np.float32))
    b = graph.tensor("b", (width,), "float32", data=BIASES[:width].astype(np.float32))
    between = graph.computed(first, (1, width), "FULLY_CONNECTED", [x, w, b])
    y = graph.computed("y", (1, width), "RELU", [between])
    return packed(graph.model([x], [y], signature=("main", ["x"], ["y"])))


def test_a_layer_without_a_counterpart_is_left_out_and_counted(tmp_path):
    found = compared(tmp_path, two_layers(first="dense"), two_layers(first="renamed"), x=X)
    assert [(one.layer, one.snr_db, one.max_error) for one in found.errors] == [("y", 200.0, 0.0)]
    assert found.left_out == 1


def test_models_without_a_layer_in_common_are_an_error(tmp_path):
    other = packed(float_model(names=("x", "another")))
    with fails(ToolFailed):
        compared(tmp_path, packed(int8_model()), other, x=X)


def test_layers_of_other_shapes_do_not_compare(tmp_path):
    with fails(ToolFailed):
        compared(tmp_path, two_layers(first="a"), two_layers(first="a", width=2), x=X)


def test_a_layer_with_numbers_that_are_not_finite_is_the_worst_there_is(tmp_path):
    nan = np.full((2, 4), np.nan, np.float32)
    worst = compared(tmp_path, two_layers(first="d"), two_layers(first="d"), x=nan).errors[0]
    assert worst.snr_db == -200.0
    assert worst.max_error == np.finfo(np.float64).max


def test_a_model_that_does_not_run_is_an_error_that_says_so(tmp_path):
    graph = Graph()
    x, y = (graph.tensor(name, (1, 4), "float32") for name in "xy")
    graph.operator("NoSuchOperator", [x], [y])
    broken = packed(graph.model([x], [y]))
    with fails(ToolFailed):
        compared(tmp_path, broken, broken, x=X)


def test_bridges_between_types_and_widened_weights_are_no_layers():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    half = graph.tensor("half", (1, 4), "float16", data=np.ones((1, 4), np.float16))
    sums, bytes_ = graph.tensor("sums", (1, 4), "float32"), graph.tensor("q", (1, 4), "int8")
    wide = graph.computed("wide", (1, 4), "DEQUANTIZE", [half])
    graph.operator("ADD", [x, wide], [sums])
    graph.operator("QUANTIZE", [sums], [bytes_])
    data = packed(graph.model([x], [bytes_]))
    layers = layers_of(with_fixed_shapes(data, None, {"x": (1, 4)}))
    assert {name: layer.operator for name, layer in layers.items()} == {"sums": "ADD"}


LSTM = SHARED / "tflm_models/mnist_lstm__trained_lstm.tflite"


@pytest.mark.skipif(not LSTM.is_file(), reason="no ../shared/data/tflm_models beside the project")
def test_the_layers_of_a_model_with_state_are_compared(tmp_path):
    data = ensure_signature(LSTM.read_bytes())
    (spec,) = summarize(data, where="it").signatures[0].inputs
    images = np.random.default_rng(0).uniform(size=(3, *spec.shape[1:])).astype(np.float32)
    found = compared(tmp_path, data, data, **{spec.name: images})
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in {error.operator for error in found.errors}
    assert {error.max_error for error in found.errors} == {0.0}
