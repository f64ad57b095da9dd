"""How far outputs are from those of a reference."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgeconv.measure.metrics import scores
from edgeconv.measure.metrics.agreement import agreement, agreements
from edgeconv.statistics.outputs import Signal, output_errors, snr_db
from edgeconv.types import MAX_SNR_DB

RNG = np.random.default_rng(2)
FLOATS = arrays(np.float32, (7, 3), elements=st.floats(-100, 100, width=32))


@settings(deadline=None)
@given(FLOATS, FLOATS)
def test_an_agreement_is_what_its_definition_says(have, want):
    found = agreement("y", have, want, "baseline")
    a, b = have.astype(np.float64), want.astype(np.float64)
    assert found.flips == (a.argmax(axis=1) != b.argmax(axis=1)).sum()
    assert found.max_error == np.abs(a - b).max()
    assert -1.0001 <= found.cosine <= 1.0001
    noise, signal = np.square(a - b).mean(), np.var(b)
    if noise and signal > 1e-9:
        assert found.snr_db == pytest.approx(
            np.clip(10 * math.log10(signal / noise), -MAX_SNR_DB, MAX_SNR_DB)
        )
    assert (found.samples, found.output, found.reference) == (7, "y", "baseline")
    assert found.span == (b.min(), b.max())
    assert found.varies_by == np.ptp(b, axis=0).max()


@settings(deadline=None)
@given(FLOATS, FLOATS, st.sampled_from([0.0, 3.0, 1e6]))
def test_bench_and_the_verification_of_a_conversion_give_the_same_number(have, want, offset):
    a, b = have.astype(np.float64) + offset, want.astype(np.float64) + offset
    measured = agreement("y", a, b, "float32")
    (verified,) = output_errors({"y": b}, {"y": a}, {})
    assert measured.snr_db == pytest.approx(verified.snr_db, abs=1e-6)
    assert (measured.span, measured.varies_by) == (verified.span, verified.varies_by)


@settings(deadline=None)
@given(st.lists(FLOATS, max_size=5), st.sampled_from([0.0, 1e7]))
def test_the_variance_of_blocks_is_that_of_the_whole(parts, offset):
    signal = Signal()
    blocks = [part.astype(np.float64) + offset for part in parts]
    for block in blocks:
        signal.add(block)
    whole = np.var(np.concatenate(blocks)) if blocks else 0.0
    assert signal.variance == pytest.approx(whole, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("signal", "noise", "expected"),
    [
        *((0.0, 0.0, 200.0), (1.0, 0.0, 200.0), (0.0, 1.0, -200.0), (1.0, 1.0, 0.0)),
        *((math.inf, 1.0, -200.0), (1.0, math.inf, -200.0), (math.nan, 1.0, -200.0)),
        *((1.0, math.nan, -200.0), (1e300, 1e-300, 200.0), (100.0, 1.0, 20.0)),
    ],
)
def test_a_signal_over_a_noise_is_a_number_of_decibels_whatever_they_are(signal, noise, expected):
    assert snr_db(signal, noise) == pytest.approx(expected)


def test_equal_outputs_agree_wholly_even_where_they_are_zero():
    same = np.array([[0.0, 0.0], [1.0, 2.0]])
    found = agreement("y", same, same, "b")
    assert (found.flips, found.cosine, found.snr_db, found.max_error) == (0, 1.0, MAX_SNR_DB, 0.0)


def test_the_cosine_is_the_mean_over_the_samples():
    found = agreement(
        "y", np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 9.0]]), "b"
    )
    assert (found.cosine, found.flips) == (0.5, 1)


def test_an_output_that_is_no_vector_of_scores_has_no_flips():
    for shape in ((5,), (5, 1), (5, 2, 3)):
        values = RNG.normal(size=shape)
        assert agreement("y", values, values, "b").flips is None


def test_what_is_not_finite_is_as_far_off_as_can_be_said():
    have = np.array([[1.0, np.nan], [1.0, 2.0]])
    found = agreement("y", have, np.array([[1.0, 2.0], [1.0, 2.0]]), "b")
    assert (found.snr_db, found.max_error) == (-MAX_SNR_DB, sys.float_info.max)
    assert found.cosine == 0.5


def test_blocks_add_up_to_the_whole(monkeypatch):
    have, want = RNG.normal(size=(50, 4)), RNG.normal(size=(50, 4))
    whole = agreement("y", have, want, "b")
    monkeypatch.setattr(scores, "_BLOCK_BYTES", 100)
    parts = agreement("y", have, want, "b")
    assert (parts.flips, parts.max_error) == (whole.flips, whole.max_error)
    assert (parts.cosine, parts.snr_db) == pytest.approx((whole.cosine, whole.snr_db))


def test_outputs_are_paired_by_name_and_a_lone_one_by_itself():
    y = RNG.normal(size=(3, 2))
    assert [one.output for one in agreements({"a": y}, {"b": y}, "r")] == ["a"]
    two = {"a": y, "b": y[:, :1]}
    assert [one.output for one in agreements(two, {"a": y, "b": y, "c": y}, "r")] == ["a"]
