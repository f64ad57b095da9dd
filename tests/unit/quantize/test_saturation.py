"""A network that is sure of its calibration samples does not hide its errors behind that."""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given
from hypothesis import strategies as st
from sure_classifier import CLASSES, INPUTS, KEY, WEIGHTS, classifier, sure_samples, unsure_samples
from tiny_tflite import Graph, packed

from edgeconv.model.tflite import Logits, with_logits
from edgeconv.quantize.calibrate import CalibratedGraph, Feed, Fold
from edgeconv.quantize.choose import MethodSearch
from edgeconv.quantize.held_back import HeldBackTrials, saturated
from edgeconv.quantize.quantize import MethodSettings
from edgeconv.quantize.trials import lowest_snr_db, outputs_of
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import LayerRule, PostTraining

# The quantiser asks for this mode itself.
SPIKE = 200


@pytest.mark.parametrize("kind", ["SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("reshaped", [False, True])
def test_logits_are_what_a_softmax_or_sigmoid_makes_an_output_of(kind, reshaped):
    data, (logits,) = with_logits(classifier(kind, reshaped=reshaped))
    assert (logits.signature, logits.output, logits.tensor) == (KEY, f"p before {kind}", "logits")
    assert logits.beta == (1.0 if kind == "SOFTMAX" else None)
    feed = sure_samples(5, 1)
    answers = outputs_of(data, {KEY: feed}, threads=1)
    x = np.concatenate([batch["x"] for batch in feed])
    np.testing.assert_allclose(answers[KEY, logits.output], x @ WEIGHTS.T, rtol=1e-4)
    assert answers[KEY, "p"].shape == (5, CLASSES)


def test_an_integer_file_has_the_same_logits():
    search = MethodSearch(CalibratedGraph(classifier(), {KEY: sure_samples(60, 1)}, threads=1))
    (recipe,) = make_recipes(["int8"], methods=["none"])
    file = search.file(recipe).file.model
    answers = [
        outputs_of(with_logits(model)[0], {KEY: sure_samples(50, 2)}, threads=1)[
            KEY, "p before SOFTMAX"
        ]
        for model in (classifier(), file)
    ]
    # Its range ends where a softmax sees nothing.
    np.testing.assert_allclose(answers[0].max(axis=1), answers[1].max(axis=1), rtol=0.02)


def test_a_model_without_probabilities_comes_back_as_it_is():
    graph = Graph()
    x, y = graph.tensor("x", (1, 3), "float32"), graph.tensor("y", (1, 3), "float32")
    graph.operator("RELU", [x], [y])
    data = packed(graph.model([x], [y], signature=(KEY, ["x"], ["y"])))
    assert with_logits(data) == (data, ())


@given(scale=st.floats(20, 200), seed=st.integers(0, 50), beta=st.sampled_from([None, 0.5, 1.0]))
def test_sure_probabilities_become_those_of_a_network_that_errs_one_time_in_ten(scale, seed, beta):
    values = np.random.default_rng(seed).normal(scale=scale, size=(200, 6)) / (beta or 1.0)
    logits = Logits(KEY, "p", "y", "t", beta)
    (found,) = saturated([logits], {(KEY, "p"): values})
    shares = found.probabilities(values).reshape(200, 6)
    most = np.maximum(shares, 1 - shares) if beta is None else shares.max(axis=1)
    assert most.mean() == pytest.approx(0.9, abs=0.01)
    np.testing.assert_array_equal(np.argsort(shares, axis=1), np.argsort(values, axis=1))


def test_probabilities_that_are_not_sure_hide_nothing():
    values = np.random.default_rng(0).normal(size=(200, 6))
    assert saturated([Logits(KEY, "p", "y", "t", 1.0)], {(KEY, "p"): values}) == ()


def test_a_part_of_a_range_that_a_softmax_does_not_see_is_no_error(monkeypatch):
    """The file's logits end at the floor, and those of the float graph do not."""
    feeds = {KEY: sure_samples(60, 1)}
    (recipe,) = make_recipes(["int8"], methods=["none"])
    graph = CalibratedGraph(classifier(), feeds, threads=1)
    assert graph.ends(8)["logits"][0] > graph.fitted("ema", bits=16).ranges["logits"]["min"] + 5
    plain = MethodSettings("minmax", ())
    seen_db = HeldBackTrials([Fold(graph, feeds)]).errors(recipe, plain).snr_db
    monkeypatch.setattr(CalibratedGraph, "ends", lambda *_: {})
    assert seen_db > HeldBackTrials([Fold(graph, feeds)]).errors(recipe, plain).snr_db + 3


def test_what_sure_samples_hide_is_found_and_mended():
    """On its own samples the plain file looks perfect, and on others it is not."""
    model = classifier()
    rules = [LayerRule(pattern="*", precision="int4")]
    feeds, fresh = {KEY: sure_samples(200, 1)}, {KEY: unsure_samples(400, 9)}
    expected = outputs_of(model, fresh, threads=1)
    search = MethodSearch(CalibratedGraph(model, feeds, threads=1))
    files = {}
    for methods in ("none", "auto"):
        (recipe,) = make_recipes(["weight-only-int4"], methods=[methods], layers=rules)
        files[methods] = search.file(recipe)
    record = files["auto"].record
    plain_db, chosen_db = (
        lowest_snr_db(expected, outputs_of(each.file.model, fresh, threads=1))
        for each in files.values()
    )
    seen = outputs_of(model, feeds, threads=1)
    own_db = lowest_snr_db(seen, outputs_of(files["none"].file.model, feeds, threads=1))
    assert own_db > plain_db + 6, "the samples of the training hide the error"
    assert record.trials[0].snr_db < own_db - 6
    assert "rounding" in record.methods
    assert chosen_db > plain_db + 2


def with_spikes() -> bytes:
    """The classifier behind a layer of which one unit is hardly ever on, then large, and unused."""
    graph = Graph()
    x = graph.tensor("x", (1, INPUTS), "float32", dynamic=True)
    first = np.eye(INPUTS, dtype=np.float32)
    first[0, 0] = SPIKE
    second = np.where(np.arange(INPUTS) > 0, WEIGHTS, 0).astype(np.float32)
    for name, rows in (("hidden", first), ("logits", second)):
        y = graph.tensor(name, (1, len(rows)), "float32", dynamic=True)
        weights = graph.tensor(f"{name}/w", rows.shape, "float32", data=rows)
        bias = np.zeros(len(rows), np.float32)
        biases = graph.tensor(f"{name}/b", bias.shape, "float32", data=bias)
        graph.operator("FULLY_CONNECTED", [x, weights, biases], [y])
        x = y
    y = graph.tensor("y", (1, CLASSES), "float32", dynamic=True)
    graph.operator("SOFTMAX", [x], [y], options=schema.SoftmaxOptionsT(beta=1.0))
    return packed(graph.model([0], [y], signature=(KEY, ["x"], ["p"])))


def spiky(samples: int, seed: int) -> dict[str, Feed]:
    x = np.concatenate([batch["x"] for batch in unsure_samples(samples, seed)])
    x[:, 0] = np.random.default_rng(seed).uniform(size=samples) < 0.03
    return {KEY: Feed({"x": x}, 1)}


@pytest.mark.parametrize("name", ["int8", "int8x4"])
def test_ranges_are_chosen_by_default_where_minima_and_maxima_do_harm(name):
    model, feeds, fresh = with_spikes(), spiky(200, 1), spiky(400, 9)
    expected = outputs_of(model, fresh, threads=1)

    def chosen(**options) -> tuple[float, list[str], str]:
        search = MethodSearch(CalibratedGraph(model, feeds, threads=1))
        (recipe,) = make_recipes([name], **options)
        file = search.file(recipe)
        snr_db = lowest_snr_db(expected, outputs_of(file.file.model, fresh, threads=1))
        record = file.record or PostTraining(calibration_range="minmax", methods=())
        return snr_db, [t.calibration_range for t in record.trials], record.calibration_range

    plain, by_default = chosen(methods=["none"]), chosen()
    assert by_default[1][0] == "minmax", "the plain file comes first"
    assert by_default[2] != "minmax"
    assert by_default[0] > plain[0] + 3
    # What is named is obeyed.
    assert set(chosen(calibration_range="minmax")[1]) == {"minmax"}
    assert chosen(methods=["bias-correction"])[2] == "minmax"
