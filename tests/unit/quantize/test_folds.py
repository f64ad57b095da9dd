"""Whatever decides how files are compared is decided for all held-back samples together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sure_classifier import KEY, classifier, sure_samples, unsure_samples

from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.choose import MIN_SAMPLES_TO_CHOOSE, MethodSearch, _parts
from edgeconv.quantize.held_back import HeldBackTrials
from edgeconv.quantize.quantize import MethodSettings
from edgeconv.quantize.trials import outputs_of
from edgeconv.requests.recipes import make_recipes

# The quantiser asks for this mode itself.
PLAIN = MethodSettings("minmax", ())
FOLDS = 3


def rows(feed: Feed) -> np.ndarray:
    return np.concatenate([batch["x"] for batch in feed])


def faint(count: int, seed: int) -> np.ndarray:
    """Samples that the classifier is not sure of."""
    return 0.3 * rows(unsure_samples(count, seed))


def mixed(sure: int, unsure: int) -> np.ndarray:
    return np.concatenate([rows(sure_samples(sure, 1)), faint(unsure, 2)])


def by_fold(folds: list[np.ndarray]) -> dict[str, Feed]:
    """Samples of which each fold holds back those of one array: they take turns."""
    turns = np.stack(folds, axis=1)
    return {KEY: Feed({"x": turns.reshape(-1, turns.shape[-1])}, 1)}


def trials_on(feeds: dict[str, Feed], kind: str = "SOFTMAX") -> HeldBackTrials:
    graph = CalibratedGraph(classifier(kind), feeds, threads=1)
    return HeldBackTrials(graph.folds(*_parts(feeds)))


def recipe(name: str):
    return make_recipes([name])[0]


@pytest.mark.parametrize("name", ["int8", "int16x8", "int8x4", "dynamic"])
@pytest.mark.parametrize("kind", ["SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("sure", [0, 1, 2])
def test_a_fold_that_is_sure_and_others_that_are_not_give_a_file(name, kind, sure):
    """It died of a `KeyError` where the first fold was sure, and else ignored the logits."""
    parts = [faint(20, seed) for seed in range(FOLDS)]
    parts[sure] = rows(sure_samples(20, 5))
    for fold, part in enumerate(parts):
        shares = outputs_of(classifier(kind), {KEY: Feed({"x": part}, 1)}, threads=1)[KEY, "p"]
        most = shares.max(axis=1) if kind == "SOFTMAX" else np.maximum(shares, 1 - shares)
        assert (most.mean() > 0.9) == (fold == sure)
    search = MethodSearch(CalibratedGraph(classifier(kind), by_fold(parts), threads=1))
    record = search.file(recipe(name)).record
    assert record.held_back in (20, FOLDS * 20)
    assert not [trial.failed for trial in record.trials if trial.failed]


@pytest.mark.parametrize("name", ["int8", "weight-only-int8"])
def test_logits_are_compared_whichever_fold_is_the_sure_one(name):
    """The samples are the same, and the error is that of the same outputs."""
    parts = [rows(sure_samples(20, 1)), rows(sure_samples(20, 2)), faint(20, 3)]
    found = []
    for turn in range(FOLDS):
        trials = trials_on(by_fold(parts[turn:] + parts[:turn]))
        errors = trials.errors(recipe(name), PLAIN)
        found.append((errors.noise.shape, errors.snr_db))
    outputs_and_logits = (2, FOLDS * 20)
    assert {shape for shape, _ in found} == {outputs_and_logits}
    assert np.ptp([snr_db for _, snr_db in found]) < 1e-6


@settings(max_examples=30, deadline=None)
@given(
    samples=st.integers(MIN_SAMPLES_TO_CHOOSE, 200),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(["SOFTMAX", "LOGISTIC"]),
    name=st.sampled_from(["int8", "int16x8", "weight-only-int4"]),
)
def test_any_number_of_samples_in_any_order_is_compared_in_full(samples, share, seed, kind, name):
    sure = 1 + round(share * (samples - 2))
    x = mixed(sure, samples - sure)
    order = np.random.default_rng(seed).permutation(samples)
    trials = trials_on({KEY: Feed({"x": x[order]}, 1)}, kind)
    errors = trials.errors(recipe(name), PLAIN)
    assert errors.samples == trials.samples
    assert np.isfinite(errors.noise).all()
    again = trials_on({KEY: Feed({"x": x}, 1)}, kind).errors(recipe(name), PLAIN)
    if trials.samples == samples:
        # All samples are held back in turn, so that the order changes nothing but the folds.
        assert len(again.noise) == len(errors.noise)
