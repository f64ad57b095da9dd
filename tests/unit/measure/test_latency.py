"""Percentiles, and what an interval of a median promises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeconv.measure.timing import latency_of, make_latency
from edgeconv.runtimes.interface import Timed
from edgeconv.statistics.comparison import median_interval

TIMES = st.lists(st.floats(0.5, 1e6), min_size=1, max_size=30)


def latency(*rounds_us: tuple[float, ...]):
    count = len(rounds_us)
    return make_latency(
        rounds_us, load_us=(1.0,) * count, first_us=(2.0,) * count, threads=1, batch=1
    )


def test_percentiles_are_of_the_samples_of_all_rounds():
    made = latency(tuple(range(1, 51)), tuple(range(51, 102)))
    assert (made.p50_us, made.p90_us, made.p99_us) == (51.0, 91.0, 100.0)
    assert made.rounds_us[1][0] == 51


def test_a_latency_of_runs_has_a_round_for_each_and_the_warm_ups_that_are_told():
    def run(warmup: int | None) -> Timed:
        return Timed(
            runtime="r", version="1", load_us=3.0, first_us=4.0, samples_us=(5.0,), warmup=warmup
        )

    made = latency_of([run(20), run(30)], threads=2, batch=8)
    assert (made.warmup, made.load_us, made.first_us) == ((20, 30), (3.0, 3.0), (4.0, 4.0))
    assert (made.threads, made.batch) == (2, 8)
    assert latency_of([run(None)], threads=1, batch=1).warmup == ()


@given(st.lists(TIMES, min_size=1, max_size=6))
def test_the_interval_holds_the_median_of_all_samples(rounds):
    low, high = median_interval(rounds)
    middle = float(np.median(np.concatenate(rounds)))
    assert low <= middle * (1 + 1e-9)
    assert high >= middle * (1 - 1e-9)


@given(st.lists(TIMES, min_size=2, max_size=5), st.floats(0.01, 100))
def test_the_interval_has_the_unit_of_the_samples(rounds, factor):
    scaled = median_interval([[factor * value for value in one] for one in rounds])
    assert scaled == pytest.approx([factor * end for end in median_interval(rounds)], rel=1e-6)


def test_rounds_that_agree_to_the_digit_have_an_interval_without_width():
    assert median_interval([[7.0, 9.0, 8.0]] * 3) == (8.0, 8.0)


def test_three_rounds_have_the_interval_of_students_t_with_two_degrees():
    # Logarithms of the medians 1, 2 and 3: deviation 1, t of 97.5 % is 4.3027 (any table).
    rounds = [[math.exp(1)], [math.exp(2)], [math.exp(3)]]
    low, high = median_interval(rounds)
    assert math.log(high) == pytest.approx(2 + 4.30265 / math.sqrt(3), abs=1e-4)
    assert math.log(low) == pytest.approx(2 - 4.30265 / math.sqrt(3), abs=1e-4)


def test_one_round_is_taken_apart_into_ten_runs_of_samples():
    steady = [5.0 + (i % 2) for i in range(100)]
    drifting = sorted(steady)
    assert median_interval([steady]) == (5.5, 5.5)
    low, high = median_interval([drifting])
    assert low < 5.2
    assert high > 5.8
    assert median_interval([[4.0]]) == (4.0, 4.0)


def made_up_rounds(rng: np.random.Generator, rounds: int, samples: int) -> list[list[float]]:
    """Times around 100: each round has a factor of its own, and its samples hang together."""
    made = []
    for factor in np.exp(rng.normal(0, 0.03, rounds)):
        noise = rng.laplace(0, 0.02, samples)
        for i in range(1, samples):
            noise[i] = 0.7 * noise[i - 1] + 0.7 * noise[i]
        made.append(list(100 * factor * np.exp(noise)))
    return made


@pytest.mark.parametrize("rounds", [3, 5, 10])
def test_the_interval_holds_the_true_median_19_times_in_20(rounds):
    rng = np.random.default_rng(rounds)
    trials = 600
    held = 0
    for _ in range(trials):
        low, high = median_interval(made_up_rounds(rng, rounds, 40))
        held += low <= 100.0 <= high
    # Three standard deviations of the count of 600 tosses at 0.95 are 0.027.
    assert held / trials == pytest.approx(0.95, abs=0.027)
