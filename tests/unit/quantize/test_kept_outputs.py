"""Outputs of the float graph's layers, which all files of it share."""

import pytest
from refine_models import float_network, parts, quantised_network, samples

from edgeconv.quantize.calibrate import Feed
from edgeconv.quantize.refine import running
from edgeconv.quantize.refine.refining import refine_layers
from edgeconv.quantize.refine.running import KeptOutputs

BOTH, BIAS = frozenset({"rounding", "bias-correction"}), frozenset({"bias-correction"})
KIND = "int8"


def feeds(count=64):
    return {"serving_default": Feed({"x": samples(64)[:count]}, 1)}


@pytest.fixture
def computed(monkeypatch):
    """The layers whose float outputs were computed, in order."""
    calls = []
    original = running.layer_outputs

    def counting(inputs, geometry, weights, *, means):
        calls.append((weights.shape, means))
        return original(inputs, geometry, weights, means=means)

    monkeypatch.setattr(running, "layer_outputs", counting)
    return calls


def refined(kept: KeptOutputs | None, methods: frozenset[str], threads: int = 1) -> bytes:
    return refine_layers(
        quantised_network(KIND, parts()),
        float_network(),
        feeds(),
        methods=methods,
        threads=threads,
        kept=kept,
    ).model


@pytest.mark.parametrize("methods", [BOTH, BIAS])
def test_they_are_computed_once_and_the_file_has_the_same_bytes(computed, methods):
    alone = refined(None, methods)
    layers = len(computed)
    kept = KeptOutputs()
    assert refined(kept, methods) == alone
    assert refined(kept, methods) == alone
    assert len(computed) == 2 * layers, "the third file computed none"


def test_rows_for_means_are_others_than_those_for_second_moments(computed):
    kept = KeptOutputs()
    refined(kept, BIAS)
    assert refined(kept, BOTH) == refined(None, BOTH)
    assert {means for _, means in computed} == {True, False}


def test_what_is_too_large_is_computed_again_with_the_same_bytes(computed, monkeypatch):
    first = refined(None, BOTH)
    layers = len(computed)
    monkeypatch.setattr(running, "_MOST_BYTES", 0)
    kept = KeptOutputs()
    assert refined(kept, BOTH) == refined(kept, BOTH) == first
    assert len(computed) == 3 * layers


def test_where_only_some_are_kept_the_file_has_the_same_bytes(computed, monkeypatch):
    first = refined(None, BOTH)
    sizes = KeptOutputs()
    refined(sizes, BOTH)
    monkeypatch.setattr(running, "_MOST_BYTES", sizes._size_bytes // 2)
    kept = KeptOutputs()
    assert refined(kept, BOTH) == refined(kept, BOTH) == first


def test_nothing_is_kept_of_other_samples(computed):
    kept = KeptOutputs()
    refined(kept, BOTH)
    layers = len(computed)
    plain = quantised_network(KIND, parts())
    few = refine_layers(plain, float_network(), feeds(40), methods=BOTH, threads=1, kept=kept)
    assert len(computed) == 2 * layers
    alone = refine_layers(plain, float_network(), feeds(40), methods=BOTH, threads=1)
    assert few.model == alone.model
