"""Trained under a strategy or not, a model converts to what it is.

What is trained, and how, is in qat_strategies.py.
"""

import msgspec
import numpy as np
import pytest
from edge_models import declared_release
from forking import output_of
from places import SUPPORT
from qat_strategies import Results

from edgeconv.conversion.candidate import Candidate
from edgeconv.conversion.graph_checks import verify_graph
from edgeconv.model.tflite import oldest_runtime, summarize
from edgeconv.tf.environment import use_tf_keras
from edgeconv.types import Qat, Recipe
from edgeconv.types.errors import ToolFailed

pytestmark = pytest.mark.slow

STRATEGIES = ("mirrored", "central")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("strategies")
    output_of(SUPPORT / "qat_strategies.py", root)
    return root


@pytest.fixture(scope="module")
def results(made):
    return msgspec.json.decode((made / "results.json").read_bytes(), type=Results)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_numbers_give_the_same_file_whatever_the_strategy(made, strategy):
    assert (made / f"{strategy}_same.tflite").read_bytes() == (made / "none.tflite").read_bytes()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ranges_found_under_a_strategy_are_those_found_without(results, strategy):
    assert results.untrained_ranges[strategy] == results.untrained_ranges["none"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_training_under_a_strategy_gives_the_same_ranges_up_to_noise(results, strategy):
    # Replicas normalise their own share of a batch, so the numbers are not quite the same.
    assert results.ranges[strategy] != results.ranges["none"]
    for name, (low, high) in results.ranges["none"].items():
        other_low, other_high = results.ranges[strategy][name]
        width = high - low
        assert abs(other_low - low) < 0.03 * width
        assert abs(other_high - high) < 0.03 * width


@pytest.mark.parametrize("strategy", ["none", *STRATEGIES])
def test_training_with_quantisation_keeps_the_accuracy(results, strategy):
    assert results.accuracies[strategy] >= results.accuracies["float"] - 0.01


@pytest.mark.parametrize("name", ["none", "mirrored_same", "central_same"])
def test_no_variable_is_left_in_the_graph_and_nothing_computes_in_float(made, name):
    recipe = Recipe(name="qat", qat=Qat())
    candidate = Candidate(recipe=recipe, file=made / f"{name}.tflite", engine="tflite")
    graph = verify_graph(candidate, ["serving_default"])
    assert graph.summary.float_operators == ()
    assert graph.summary.quantized_weight_share == 1.0
    assert graph.warnings == ()
    oldest = oldest_runtime(candidate.file.read_bytes(), name)
    assert all(need.declared == need.version for need in oldest.operators)
    assert declared_release(candidate.file) == oldest.version
    assert not any("VAR" in one.name for one in graph.summary.operators)


def test_inputs_and_outputs_have_the_types_and_the_batch_asked_for(made):
    for name, batch, types in (("io", 1, ("uint8", "int8")), ("none", -1, ("float32", "float32"))):
        (signature,) = summarize((made / f"{name}.tflite").read_bytes(), where="x").signatures
        (given,), (answer,) = signature.inputs, signature.outputs
        assert (signature.key, given.name, answer.name) == ("serving_default", "image", "probs")
        assert (given.dtype, answer.dtype) == types
        assert (given.shape, answer.shape) == ((batch, 8, 8, 1), (batch, 10))


def test_the_copy_for_the_converter_computes_what_the_trained_model_does(results):
    # Its batch normalisation is in the kernel before it, which rounds in another place.
    assert results.plain_error < 1e-3


def test_a_warm_up_finds_the_ranges_and_changes_nothing_else(results):
    assert results.warm_up.batches == 8
    assert results.warm_up.others_same
    assert results.warm_up.ranges["quant_image_range"] == (0.0, 1.0)
    for low, high in results.warm_up.ranges.values():
        assert low <= 0 < high
        assert 6.0 not in (-low, high)


def test_a_warm_up_refuses_numbers_that_are_not_finite(results):
    assert "image_range are not finite" in results.warm_up.refused


def test_frozen_batch_normalisation_keeps_its_statistics_and_trains_its_scale(results):
    assert results.frozen.layers == 1
    assert not results.frozen.statistics_before
    assert results.frozen.statistics_after
    assert not results.frozen.scales_after


def test_channels_of_zeros_only_have_a_scale_that_makes_sense(made, results):
    (signature,) = summarize((made / "dead.tflite").read_bytes(), where="x").signatures
    assert np.isfinite(signature.outputs[0].scale or 0).all()
    recipe = Recipe(name="qat", qat=Qat())
    candidate = Candidate(recipe=recipe, file=made / "dead.tflite", engine="tflite")
    assert verify_graph(candidate, ["serving_default"]).summary.float_operators == ()
    # The softmax has a table in the file, and is computed in the emulation.
    assert results.dead_channel_error <= 2


def test_a_softmax_input_does_not_reach_down_to_what_makes_no_difference(results):
    low, high = results.softmax_range
    assert high > 100
    assert low > -20


def test_what_the_converter_does_not_take_is_refused_by_name(results):
    assert results.refused.startswith("UnsupportedOperators")
    assert "MatrixDeterminant" in results.refused


def test_a_missing_tfmot_is_said_with_what_to_install(monkeypatch):
    import importlib.util

    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ToolFailed, match="not installed") as raised:
        use_tf_keras()
    assert raised.value.hint == "pip install tf-keras"
