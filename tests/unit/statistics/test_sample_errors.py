"""Errors by sample: what they say of one model, and whether another is better beyond noise."""

import numpy as np
import pytest

from edgeconv.statistics.outputs import SampleErrors, output_errors, sample_errors, snr_interval_db

RNG = np.random.default_rng(0)


def errors_of(noise: np.ndarray) -> SampleErrors:
    """The errors of a model with one output of floats, and this noise in each sample."""
    return SampleErrors(noise[None], None, np.zeros(1))


def test_ratio_agreement_and_step_are_those_of_the_worst_output():
    reference = {"a": RNG.normal(size=(50, 4)), "b": RNG.normal(size=(50, 3))}
    actual = {"a": reference["a"] + 0.1, "b": reference["b"] + 0.01}
    actual["b"][:5] = -reference["b"][:5]
    errors = sample_errors(reference, actual, {"a": 0.5, "b": 0.5})
    by_output = {e.output: e for e in output_errors(reference, actual, {})}
    assert errors.snr_db == pytest.approx(min(e.snr_db for e in by_output.values()), abs=1e-6)
    assert errors.agreement == by_output["b"].argmax_agreement == 0.9
    assert errors.samples == 50
    assert errors.least_snr_db < errors.snr_db
    assert not errors.is_within_step
    assert sample_errors({"a": reference["a"]}, {"a": actual["a"]}, {"a": 0.5}).is_within_step
    assert not sample_errors({"a": reference["a"]}, {"a": actual["a"]}, {}).is_within_step


def test_an_output_that_never_varies_is_compared_with_its_magnitude():
    flat = {"y": np.full((40, 1), 5.0)}
    assert sample_errors(flat, {"y": np.full((40, 1), 5.05)}, {}).snr_db == pytest.approx(40.0)
    assert sample_errors(flat, flat, {}).snr_db == 200.0
    zeros = {"y": np.zeros((40, 1))}
    assert sample_errors(zeros, {"y": np.ones((40, 1))}, {}).snr_db < -100


@pytest.mark.parametrize("samples", [9, 14, 28, 64])
@pytest.mark.parametrize("spread", [0.3, 0.8, 1.3])
def test_an_interval_of_the_ratio_holds_the_true_one_in_about_95_of_100_draws(samples, spread):
    """Errors are skewed, and the output varies from sample to sample as well."""
    shape = (600, samples)
    energies = np.exp(spread * RNG.normal(size=shape) - spread**2 / 2) / 100
    signals = RNG.chisquare(4, size=shape) / 4
    intervals = [snr_interval_db(*each) for each in zip(signals, energies, strict=True)]
    held = [low < 20.0 < high for low, high in filter(None, intervals)]
    assert len(held) == 600
    assert np.mean(held) > 0.93


def test_few_errors_and_none_have_no_interval():
    assert snr_interval_db(np.ones(7), np.full(7, 0.1)) is None
    assert snr_interval_db(np.ones(40), np.zeros(40)) is None


def test_what_is_equally_good_is_seldom_taken_for_better():
    """Errors of few samples with heavy tails, as of a classifier that is usually sure."""
    wins = 0
    for _ in range(400):
        common = RNG.lognormal(0, 2, size=38)
        before, after = (errors_of(common * RNG.lognormal(0, 0.7, size=38)) for _ in range(2))
        wins += after.gain_db(before)[1] > 0.1
    assert wins <= 0.05 * 400


def test_half_the_error_is_found_with_38_samples():
    wins = 0
    for _ in range(200):
        common = RNG.lognormal(0, 1, size=38)
        before = errors_of(common * RNG.lognormal(0, 0.5, size=38))
        after = errors_of(common / 2 * RNG.lognormal(0, 0.5, size=38))
        wins += after.gain_db(before)[1] > 0.1
    assert wins > 0.9 * 200
    # Both have the mean of the two errors, 0.6, in addition.
    gain = errors_of(np.full(38, 0.2)).gain_db(errors_of(np.ones(38)))
    assert gain == pytest.approx((10 * np.log10(1.6 / 0.8),) * 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_errors_that_are_not_finite_gain_nothing(bad):
    good, broken = errors_of(np.ones(30)), errors_of(np.r_[np.ones(29), bad])
    assert broken.gain_db(good)[1] == -np.inf
    assert good.gain_db(broken)[1] == np.inf
    assert good.gain_db(good) == (0.0, 0.0, 0.0)
    assert broken.least_snr_db == -200.0


def test_an_answer_lost_by_chance_does_not_outweigh_a_smaller_error():
    noise = RNG.lognormal(0, 0.3, size=128)
    same = np.r_[np.zeros(2), np.ones(126)]
    before = SampleErrors(noise[None], same, np.zeros(1))
    chance, many = same.copy(), same.copy()
    chance[5], many[5:17] = 0, 0
    assert SampleErrors(noise[None] * 0.6, chance, np.zeros(1)).is_closer(before, margin_db=0.1)
    assert not SampleErrors(noise[None] * 0.6, many, np.zeros(1)).is_closer(before, margin_db=0.1)
    # Half the error is worth more than answers that were close.
    assert SampleErrors(noise[None] * 0.4, many, np.zeros(1)).is_closer(before, margin_db=0.1)
