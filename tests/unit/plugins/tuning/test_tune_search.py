"""The search itself, on made-up layers: no file and no process."""

import itertools
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeconv.plugins.scale.tune_confirming import MOST, closest, next_to_confirm
from edgeconv.plugins.scale.tune_search import (
    LIKELY,
    LIKELY_OF_MANY,
    SURE,
    Space,
    chance_within,
    cheapest,
    in_order,
    is_candidate,
    pareto,
    search,
)
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import (
    Confirmation,
    LayerRule,
    Loss,
    PostTraining,
    PostTrainingMethod,
    Recipe,
    Sensitivity,
    TuningTrial,
)

BUDGET = 0.005
SAMPLES = 100_000
BYTES = {"int4": 0.5, "int8": 1.0, "int16x8": 1.0, "float16": 2.0, "float32": 4.0}
OF_RECIPE = {
    "weight-only-int4": "int4",
    "int8x4": "int4",
    "int8": "int8",
    "weight-only-int8": "int8",
    "dynamic": "int8",
    "int16x8": "int16x8",
    "float16": "float16",
    "float32": "float32",
}
NAMES = tuple(OF_RECIPE)


class Model:
    """Layers with weights, and what each adds to the drop in each precision.

    `activations` is added by recipes with 8-bit activations for each layer that has them.
    """

    def __init__(
        self, weights: Sequence[int], drops: Sequence[float], activations: float = 0.0
    ) -> None:
        self.weights, self.drops, self.activations = tuple(weights), tuple(drops), activations
        self.measured: list[Recipe] = []

    def sensitivities(self, precision: str) -> tuple[Sensitivity, ...]:
        return tuple(
            Sensitivity(
                layer=f"layer{i}",
                operator="CONV_2D",
                weights=weight,
                precision=precision,
                snr_db=40 - 1000 * self._drop(i, precision),
            )
            for i, weight in enumerate(self.weights)
        )

    def measure(self, recipe: Recipe) -> TuningTrial:
        self.measured.append(recipe)
        plain = OF_RECIPE[recipe.name]
        rules = {rule.pattern: rule.precision for rule in recipe.layers}
        given = [rules.get(f"layer{i}", plain) for i in range(len(self.weights))]
        drop = sum(self._drop(i, one) for i, one in enumerate(given))
        if recipe.name in ("int8", "int8x4"):
            narrow = sum(one in ("int8", "int4") for one in given)
            drop += self.activations * narrow / len(given)
        loss = Loss(value=0.9 - drop, drop=drop, samples=SAMPLES, variance=0.01)
        return TuningTrial(
            name=f"{recipe.name}{sorted(rules.items())}",
            recipe=recipe,
            size_bytes=round(sum(w * BYTES[p] for w, p in zip(self.weights, given, strict=True))),
            loss=loss,
            chance=chance_within(loss, BUDGET, SAMPLES),
        )

    def _drop(self, layer: int, precision: str) -> float:
        return self.drops[layer] if precision == "int4" else 0.0

    def space(self, names: Sequence[str] = NAMES[:-1]) -> Space:
        recipes = {one.name: one for one in make_recipes(names, methods=["none"])}
        ordered = in_order(recipes, "size")
        uniform = tuple(recipes[name] for name in ordered)
        return Space("size", uniform, sum(self.weights), self.sensitivities)

    def found(self, names: Sequence[str] = NAMES[:-1]) -> list[TuningTrial]:
        return list(search(self.space(names), self.measure))


def test_what_must_be_larger_than_a_sure_one_is_not_tried():
    trials = Model([1000, 1001], [0.0, 0.0]).found()
    assert [trial.recipe.name for trial in trials] == ["weight-only-int4"]


def test_what_may_be_smaller_than_a_sure_one_is_tried():
    """Of a tiny model the rest of the file weighs more than the weights."""
    model = Model([1000, 1000], [0.0, 0.0])

    def measure(recipe: Recipe) -> TuningTrial:
        trial = model.measure(recipe)
        rest = 9000 if recipe.name == "weight-only-int4" else 3000
        return msgspec.structs.replace(trial, size_bytes=trial.size_bytes + rest)

    trials = list(search(model.space(), measure))
    best = cheapest(trials, "size")
    assert best.recipe.name == "int8x4"


def test_the_one_bad_layer_is_raised_and_all_others_keep_four_bits():
    model = Model([4000] * 8, [0.0] * 3 + [0.05] + [0.0] * 4)
    best = cheapest(model.found(), "size")
    assert [(rule.pattern, rule.precision) for rule in best.recipe.layers] == [("layer3", "int8")]
    assert best.size_bytes == 4000 * 7 // 2 + 4000


def test_a_heavy_layer_is_not_raised_for_what_light_ones_cost():
    """Both ways are within the budget: sensitivity counts for each byte."""
    model = Model([100_000, 100, 100], [0.004, 0.004, 0.004])
    best = cheapest(model.found(), "size")
    assert {rule.pattern for rule in best.recipe.layers} == {"layer1", "layer2"}


def test_where_activations_are_to_blame_weights_stay_small():
    best = cheapest(Model([1000] * 4, [0.0] * 4, activations=0.03).found(), "size")
    assert best.recipe.name == "weight-only-int4"


def test_where_only_int8_is_asked_for_layers_get_wider_activations():
    model = Model([1000] * 8, [0.0] * 8, activations=0.01)
    best = cheapest(model.found(["int8"]), "size")
    assert best.recipe.name == "int8"
    assert {rule.precision for rule in best.recipe.layers} == {"int16x8"}
    # Half of them are enough.
    assert len(best.recipe.layers) <= 5


def with_methods(space: Space, *methods: PostTrainingMethod) -> Space:
    """Each uniform recipe as it is, and then with these methods."""
    uniform = tuple(
        msgspec.structs.replace(recipe, methods=chosen)
        for recipe in space.uniform
        for chosen in ((), methods)
    )
    return space._replace(uniform=uniform)


def test_a_recipe_gets_methods_only_where_it_fails_without():
    model = Model([1000] * 4, [0.05] * 4)
    tried = list(search(with_methods(model.space(["int8x4", "int8"]), "rounding"), model.measure))
    uniform = [(trial.recipe.name, trial.recipe.methods) for trial in tried if trial.is_uniform]
    assert uniform == [("int8x4", ()), ("int8x4", ("rounding",)), ("int8", ())]


def test_a_mix_starts_from_the_methods_that_lose_least():
    model = Model([4000] * 4, [0.05, 0.0, 0.0, 0.0])

    def measure(recipe: Recipe) -> TuningTrial:
        trial = model.measure(recipe)
        if recipe.layers or recipe.methods != ("rounding",):
            return trial
        return with_drop(trial, 0.03)

    space = with_methods(model.space(["int8x4", "int8"]), "rounding")
    mixes = [trial for trial in search(space, measure) if trial.recipe.layers]
    assert {trial.recipe.methods for trial in mixes} == {("rounding",)}


def with_drop(trial: TuningTrial, drop: float) -> TuningTrial:
    assert trial.loss is not None
    loss = msgspec.structs.replace(trial.loss, drop=drop)
    return msgspec.structs.replace(trial, loss=loss, chance=chance_within(loss, BUDGET, SAMPLES))


def refusing(model: Model, bad: str):
    """Measures a model of which verification refuses uniform files of the recipe `bad`."""

    def measure(recipe: Recipe) -> TuningTrial:
        trial = model.measure(recipe)
        if recipe.name != bad or recipe.layers:
            return trial
        return msgspec.structs.replace(trial, error="SNR 5 dB", refused=True, chance=0.0)

    return measure


def test_a_mix_starts_from_a_recipe_that_verification_refused_too():
    """One light layer in 8 bits, and the refused file is the best of all."""
    model = Model([48, 4000, 4000, 500], [0.3, 0.0, 0.0, 0.0])
    trials = list(search(model.space(["int8x4", "int8"]), refusing(model, "int8x4")))
    best = cheapest(trials, "size")
    assert [(rule.pattern, rule.precision) for rule in best.recipe.layers] == [("layer0", "int8")]
    assert best.size_bytes == 48 + 8500 // 2


def test_what_verification_refused_is_never_the_answer():
    model = Model([1000, 1000], [0.0, 0.0])
    trials = list(search(model.space(["int8x4", "int8"]), refusing(model, "int8x4")))
    refused = next(trial for trial in trials if trial.refused)
    assert refused.loss.drop <= BUDGET
    assert not is_candidate(refused)
    assert refused.name not in {trial.name for trial in pareto(trials, "size")}
    best = cheapest(trials, "size")
    assert best.name != refused.name
    assert next_to_confirm([refused], [], "size", BUDGET) is None
    assert closest([refused], []) == ""


def test_layers_that_the_recipe_kept_at_8_bits_are_not_raised_again():
    model = Model([4000] * 4, [0.05, 0.05, 0.0, 0.0])

    def measure(recipe: Recipe) -> TuningTrial:
        kept = PostTraining(calibration_range="minmax", methods=(), eight_bit=("layer1",))
        return msgspec.structs.replace(model.measure(recipe), post_training=kept)

    mixes = [t for t in search(model.space(["int8x4", "int8"]), measure) if t.recipe.layers]
    assert mixes
    assert not any(rule.pattern == "layer1" for mix in mixes for rule in mix.recipe.layers)


def test_int16x8_gets_methods_where_int8_and_plain_int16x8_fail():
    model = Model([1000, 1000], [0.0, 0.0])

    def measure(recipe: Recipe) -> TuningTrial:
        good = recipe.name == "float16" or (recipe.name == "int16x8" and recipe.methods)
        return with_drop(model.measure(recipe), 0.0 if good else 0.1)

    space = with_methods(model.space(["int8", "int16x8", "float16"]), "rounding")
    best = cheapest(search(space, measure), "size")
    assert (best.recipe.name, best.recipe.methods) == ("int16x8", ("rounding",))


def test_for_latency_the_bad_layers_of_int8_go_back_to_float():
    """int8 is fast and fails; what fails is not timed."""
    model = Model([1000] * 8, [0.0] * 8, activations=0.01)

    def measure(recipe: Recipe) -> TuningTrial:
        trial = model.measure(recipe)
        floats = 8 if recipe.name == "float32" else len(recipe.layers)
        latency_us = 100.0 + 10 * floats if trial.chance >= LIKELY_OF_MANY else None
        return msgspec.structs.replace(trial, latency_us=latency_us)

    space = model.space(["int8", "float32"])._replace(objective="latency")
    best = cheapest(search(space, measure), "latency")
    assert best.recipe.name == "int8"
    assert {rule.precision for rule in best.recipe.layers} == {"float32"}
    assert 4 <= len(best.recipe.layers) <= 5


def test_a_recipe_that_fails_is_passed_over():
    model = Model([1000] * 4, [0.0] * 4)

    def measure(recipe: Recipe) -> TuningTrial:
        if recipe.name == "weight-only-int4":
            return TuningTrial(name="weight-only-int4", recipe=recipe, error="no kernel")
        return model.measure(recipe)

    trials = list(search(model.space(), measure))
    best = cheapest(trials, "size")
    assert best.recipe.name == "int8x4"
    assert next(iter(trials)).error == "no kernel"


def test_with_no_layers_to_raise_the_uniform_recipes_are_all_there_is():
    model = Model([1000] * 3, [0.05] * 3)
    space = model.space()._replace(sensitivities=lambda _: ())
    assert all(trial.is_uniform for trial in search(space, model.measure))


LAYERS = st.lists(st.tuples(st.integers(1, 100_000), st.floats(0.0, 0.01)), min_size=1, max_size=12)


@given(LAYERS, st.floats(0.0, 0.02), st.sampled_from([LIKELY, LIKELY_OF_MANY, SURE]))
@settings(max_examples=150, deadline=None)
def test_nothing_found_is_larger_than_the_best_uniform_recipe_that_does(
    layers, activations, enough
):
    model = Model(*zip(*layers, strict=True), activations)
    trials = list(search(model.space(), model.measure, enough))
    best = cheapest(trials, "size")
    every = [model.measure(recipe) for recipe in model.space().uniform]
    able = [trial.size_bytes for trial in every if is_candidate(trial)]
    assert best.size_bytes <= min(able)
    assert best.chance >= LIKELY_OF_MANY or best.is_uniform


@given(LAYERS, st.floats(0.0, 0.02))
@settings(max_examples=50, deadline=None)
def test_the_search_is_the_same_each_time_and_tries_nothing_twice(layers, activations):
    first, second = (Model(*zip(*layers, strict=True), activations) for _ in range(2))
    assert first.found() == second.found()
    assert len(set(first.measured)) == len(first.measured)
    # Uniform ones, and for each of four mixes a bisection and some lowerings.
    assert len(first.measured) <= 7 + 4 * (2 + 4 + 6)


def trial(name: str, size: int, chance: float, *, rules: int = 0, drop: float = 0.0) -> TuningTrial:
    layers = tuple(LayerRule(pattern=f"l{i}", precision="int8") for i in range(rules))
    return TuningTrial(
        name=name,
        recipe=Recipe(name="int8x4", layers=layers),
        size_bytes=size,
        loss=Loss(value=0.9, drop=drop, samples=100, variance=0.1),
        chance=chance,
    )


def confirmed(name: str, *, is_met: bool, drop: float = 0.01) -> Confirmation:
    loss = Loss(value=0.9, drop=drop, samples=100, variance=0.1)
    return Confirmation(trial=name, loss=loss, is_met=is_met)


def test_the_cheapest_likely_trial_is_confirmed_first_and_then_the_next_larger():
    trials = [trial("large", 300, 0.99), trial("small", 100, 0.6), trial("middle", 200, 0.7)]
    first = next_to_confirm(trials, [], "size", BUDGET)
    assert first.name == "small"
    second = next_to_confirm(trials, [confirmed("small", is_met=False)], "size", BUDGET)
    assert second.name == "middle"


def test_the_last_confirmation_goes_to_the_cheapest_that_is_all_but_sure():
    trials = [trial(str(i), i, 0.6 + i / 100) for i in range(1, 6)]
    trials += [trial("sure", 50, SURE), trial("surer", 60, 0.999)]
    done = [confirmed("1", is_met=False), confirmed("2", is_met=False)]
    last = next_to_confirm(trials, done, "size", BUDGET)
    assert last.name == "sure"
    unsure = next_to_confirm(trials[:5], done, "size", BUDGET)
    assert unsure.name == "5"


def test_no_more_is_confirmed_than_is_said_and_nothing_after_a_success():
    trials = [trial(str(i), i, 0.9) for i in range(1, 9)]
    done = [confirmed(str(i), is_met=False) for i in range(1, MOST + 1)]
    assert next_to_confirm(trials, done, "size", BUDGET) is None
    assert next_to_confirm(trials, [confirmed("1", is_met=True)], "size", BUDGET) is None
    assert next_to_confirm([trial("bad", 1, 0.4)], [], "size", BUDGET) is None


def test_a_mix_that_would_fail_with_the_one_that_failed_is_passed_over():
    trials = [
        trial("4 raised", 100, 0.9, rules=4, drop=-0.01),
        trial("5 raised", 101, 0.95, rules=5, drop=-0.012),
        trial("9 raised", 120, 0.99, rules=9, drop=-0.02),
    ]
    # It lost 0.02 more on the fresh samples.
    failed = confirmed("4 raised", is_met=False, drop=0.01)
    second = next_to_confirm(trials, [failed], "size", BUDGET)
    assert second.name == "9 raised"


def test_the_recipe_that_failed_is_not_confirmed_again_with_methods_that_gain_nothing():
    def uniform(name: str, *methods: PostTrainingMethod, size: int, drop: float) -> TuningTrial:
        recipe = Recipe(name=name, methods=methods)
        return msgspec.structs.replace(
            trial(f"{name}{methods}", size, 0.9, drop=drop), recipe=recipe
        )

    trials = [
        uniform("int8", size=100, drop=0.004),
        uniform("int8", "rounding", size=100, drop=0.004),
        uniform("dynamic", size=120, drop=0.004),
    ]
    failed = [confirmed("int8()", is_met=False, drop=0.01)]
    second = next_to_confirm(trials, failed, "size", BUDGET)
    assert second.recipe.name == "dynamic"
    better = uniform("int8", "bias-correction", size=100, drop=-0.002)
    second = next_to_confirm([*trials, better], failed, "size", BUDGET)
    assert second is better


def test_a_mix_among_many_needs_more_than_a_uniform_recipe():
    assert is_candidate(trial("uniform", 100, 0.55))
    assert not is_candidate(trial("mixed", 100, 0.55, rules=2))


def test_the_closest_is_by_the_fresh_samples_where_there_were_confirmations():
    trials = [trial("a", 1, 0.4, drop=0.006), trial("b", 2, 0.1, drop=0.2)]
    assert closest(trials, []) == "a"
    done = [confirmed("a", is_met=False, drop=0.03), confirmed("b", is_met=False, drop=0.02)]
    assert closest(trials, done) == "b"
    assert closest([], []) == ""


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(-5, 20)), min_size=1, max_size=20))
def test_the_pareto_set_is_what_no_other_betters(pairs):
    trials = [
        certain(trial(str(i), size, 1.0, drop=drop / 100)) for i, (size, drop) in enumerate(pairs)
    ]
    found = {one.name for one in pareto(trials, "size")}
    keys = [(one.size_bytes, one.loss.drop) for one in trials if one.loss]
    for one, key in zip(trials, keys, strict=True):
        bettered = any(other != key and other[0] <= key[0] and other[1] <= key[1] for other in keys)
        assert not (one.name in found and bettered)
        if not bettered:
            assert any(keys[int(name)] == key for name in found)


def certain(one: TuningTrial) -> TuningTrial:
    """Its drop is known without any doubt."""
    assert one.loss is not None
    return msgspec.structs.replace(one, loss=msgspec.structs.replace(one.loss, variance=0.0))


def test_drops_that_chance_explains_are_equal_in_the_pareto_set():
    small, large = trial("small", 100, 0.9, drop=0.02), trial("large", 200, 0.9, drop=0.01)
    assert [one.name for one in pareto([small, large], "size")] == ["small"]
    sure = [certain(small), certain(large)]
    assert [one.name for one in pareto(sure, "size")] == ["small", "large"]


def timed(name: str, size: int, latency_us: float, share: float) -> TuningTrial:
    """A trial whose median time has an interval of this share to either side."""
    ends = latency_us / (1 + share), latency_us * (1 + share)
    one = trial(name, size, 0.9)
    return msgspec.structs.replace(one, latency_us=latency_us, latency_interval_us=ends)


def test_of_files_that_are_as_fast_within_noise_the_smallest_is_the_best():
    slow = timed("slow", 50, 20.0, 0.05)
    trials = [timed("float32", 400, 10.0, 0.2), timed("int8", 100, 10.9, 0.2), slow]
    best = cheapest(trials, "latency")
    assert best.name == "int8"
    assert {one.name for one in pareto(trials, "latency")} == {"float32", "int8"}
    sharp = [timed("float32", 400, 10.0, 0.01), timed("int8", 100, 10.9, 0.01), slow]
    best = cheapest(sharp, "latency")
    assert best.name == "float32"


def test_latency_ranks_by_time_and_what_was_not_timed_never_wins():
    fast = msgspec.structs.replace(trial("fast", 300, 0.9), latency_us=10.0)
    slow = msgspec.structs.replace(trial("slow", 100, 0.9), latency_us=20.0)
    best = cheapest([slow, trial("untimed", 1, 0.99), fast], "latency")
    assert best.name == "fast"


@pytest.mark.parametrize("stop", [1, 2, 5])
def test_whoever_stops_asking_has_the_trials_so_far(stop):
    model = Model([4000] * 8, [0.0, 0.05] * 4)
    some = list(itertools.islice(search(model.space(), model.measure), stop))
    assert len(model.measured) == len(some) == stop


def test_int16x8_is_not_tried_where_what_is_good_is_no_larger_than_int8():
    """Its file has what that of int8 has, and larger biases."""
    model = Model([1000, 1000], [0.01, 0.01])

    def measure(recipe: Recipe) -> TuningTrial:
        trial = model.measure(recipe)
        rest = {"int8": 60, "int16x8": 90}.get(recipe.name, 50)
        return msgspec.structs.replace(trial, name=recipe.name, size_bytes=trial.size_bytes + rest)

    tried = [trial.recipe.name for trial in search(model.space(), measure) if trial.is_uniform]
    assert "dynamic" in tried
    assert "int16x8" not in tried
