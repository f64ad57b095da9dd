"""What a drop on the search samples says of fresh ones: real numbers, and a simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeconv.plugins.scale.tune_confirming import next_to_confirm
from edgeconv.plugins.scale.tune_search import LIKELY, chance_within, enough_samples, loss_of
from edgeconv.types import Accuracy, Confirmation, LayerRule, Loss, Recipe, TuningTrial

BUDGET = 0.005


def accuracy(correct: str) -> Accuracy:
    return Accuracy(value=correct.count("1") / len(correct), samples=len(correct), correct=correct)


def test_a_loss_has_the_flips_and_the_interval_of_the_pairs():
    loss = loss_of(accuracy("1111100000"), accuracy("1110110000"))
    assert (loss.value, loss.drop) == (0.5, 0.0)
    assert (loss.fixed, loss.broken) == (1, 1)
    assert loss.interval[0] < 0 < loss.interval[1]


def test_a_metric_of_which_less_is_better_loses_where_it_grows():
    before, after = (
        Accuracy(
            metric="mae",
            value=sum(v) / len(v),
            samples=len(v),
            higher_is_better=False,
            per_sample=v,
        )
        for v in ((1.0, 2.0, 3.0), (1.5, 2.5, 3.5))
    )
    loss = loss_of(before, after)
    assert loss.drop == pytest.approx(0.5)
    assert loss.variance == pytest.approx(0.0)
    assert chance_within(loss, 0.6, 10) == 1.0
    assert chance_within(loss, 0.4, 10) == 0.0


def counted(lost: int, won: int, samples: int) -> Loss:
    return Loss(
        value=0.9,
        drop=(lost - won) / samples,
        samples=samples,
        variance=(lost + won + 1) / samples,
        fixed=won,
        broken=lost,
    )


@given(st.integers(20, 5000), st.integers(0, 50), st.integers(0, 50), st.floats(0.0, 0.1))
def test_a_drop_within_the_budget_is_more_likely_than_not_to_stay_so(samples, lost, won, budget):
    loss = counted(min(lost, samples // 2), min(won, samples // 2), samples)
    chance = chance_within(loss, budget, samples)
    assert 0 <= chance <= 1
    if loss.drop <= budget:
        assert chance >= LIKELY


@given(st.integers(0, 30), st.integers(0, 30), st.floats(0.0, 0.05), st.floats(0.0, 0.05))
def test_a_larger_budget_is_never_less_likely_to_hold(lost, won, one, more):
    loss = counted(lost, won, 1000)
    assert chance_within(loss, one, 1000) <= chance_within(loss, one + more, 1000)


def test_the_chance_is_how_often_it_happens():
    """A budget that is said to hold in eight of ten cases holds as often, on other samples."""
    rng = np.random.default_rng(0)
    samples, rate, kept = 1000, 0.02, []
    for _ in range(4000):
        flips = rng.poisson(samples * rate, 4)
        loss = counted(flips[0], flips[1], samples)
        budget = loss.drop + 0.8416 * math.sqrt(loss.variance * 2 / samples) - 0.5 / samples
        assert chance_within(loss, budget, samples) == pytest.approx(0.8, abs=0.001)
        kept.append((flips[2] - flips[3]) / samples <= budget)
    assert np.mean(kept) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("budget", "samples"), [(0.005, 400), (0.01, 200), (0.5, 40), (0.0, 40)])
def test_enough_samples_let_one_answer_differ_in_each_half(budget, samples):
    assert enough_samples(budget) == samples
    if budget:
        assert 1 / (samples / 2) <= budget


# The shares of answers lost and won by a recipe, from the cheapest: four bits, mixes, int8, halves.
RECIPES = (
    ((0.06, 0.03), False),
    ((0.03, 0.02), True),
    ((0.02, 0.015), True),
    ((0.015, 0.014), True),
    ((0.011, 0.010), False),
    ((0.004, 0.004), False),
    ((0.0005, 0.0005), False),
)


def simulated(rng: np.random.Generator, samples: int) -> tuple[bool, int, int]:
    """Whether one search ended confirmed, by how many confirmations, and by which recipe."""
    trials, fresh = [], {}
    for number, ((lost, won), is_mix) in enumerate(RECIPES):
        rules = (LayerRule(pattern="l", precision="int8"),) if is_mix else ()
        recipe = Recipe(name="int8", layers=rules)
        loss = counted(*rng.poisson([samples * lost, samples * won]), samples)
        fresh[str(number)] = counted(*rng.poisson([samples * lost, samples * won]), samples)
        chance = chance_within(loss, BUDGET, samples)
        one = TuningTrial(
            name=str(number), recipe=recipe, size_bytes=number + 1, loss=loss, chance=chance
        )
        trials.append(one)
    done: list[Confirmation] = []
    while trial := next_to_confirm(trials, done, "size", BUDGET):
        loss = fresh[trial.name]
        done.append(Confirmation(trial=trial.name, loss=loss, is_met=loss.drop <= BUDGET))
    is_met = bool(done) and done[-1].is_met
    return is_met, len(done), int(done[-1].trial) if done else -1


@pytest.mark.parametrize("samples", [150, 500, 1000, 4000])
def test_nearly_every_search_ends_with_a_confirmed_artifact(samples):
    rng = np.random.default_rng(samples)
    ended = [simulated(rng, samples) for _ in range(400)]
    met = [one for one in ended if one[0]]
    # One that has almost no flips is there to be found.
    assert len(met) / len(ended) >= 0.95
    # What truly loses five times the budget or more is hardly ever taken for good.
    bad = sum(one[2] == 0 for one in met) / len(met)
    assert bad <= (0.12 if samples < 500 else 0.03)


def test_a_chance_has_no_meaning_of_its_own_without_a_spread():
    loss = Loss(value=0.5, drop=0.01, samples=10, variance=0.0)
    assert chance_within(loss, 0.01, 10) == 1.0
    assert math.isclose(chance_within(loss, 0.009, 10), 0.0)
