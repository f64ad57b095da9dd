"""Searching and confirming in turns: losses are made up, all else is real."""

import time
from pathlib import Path
from typing import Any, cast

from tune_models import two_layers

from edgeconv.data import parse_source
from edgeconv.plugins.scale.tune_confirming import MOST, SearchResult, search_and_confirm
from edgeconv.plugins.scale.tune_search import chance_within
from edgeconv.plugins.scale.tune_trials import TimeIsUp, name_of
from edgeconv.requests.tune import TuneRequest
from edgeconv.types import Loss, Recipe, TuningTrial

BUDGET, SAMPLES = 0.005, 1000
# Those that a recipe of 4 bits has at once.
METHODS = " + rounding + bias-correction"
# Bytes of the file, and the answers that are lost of 1,000 when searching and when fresh.
RECIPES: dict[str, tuple[int, int, int]] = {
    "weight-only-int4": (4_000, 4, 20),
    "int8x4": (5_000, 3, 4),
    "int8": (6_500, 0, 0),
    "weight-only-int8": (7_000, 0, 0),
    "dynamic": (7_100, 0, 0),
    "int16x8": (7_500, 0, 0),
    "float16": (12_000, 0, 0),
}


def lost(answers: int) -> Loss:
    return Loss(
        value=0.9,
        drop=answers / SAMPLES,
        samples=SAMPLES,
        variance=(answers + 1) / SAMPLES,
        fixed=0,
        broken=answers,
    )


class Bench:
    """What `search_and_confirm` asks of a workshop and of the fresh samples' judge."""

    def __init__(self, place: Path, recipes: dict[str, tuple[int, int, int]], end_s: float) -> None:
        self.model = two_layers(place / "net.tflite")
        self.budget, self.end_s = BUDGET, end_s
        self.samples = SAMPLES
        self.recipes = recipes
        self.said: list[str] = []
        self.made: list[str] = []

    def on_progress(self, line: str) -> None:
        self.said.append(line)

    def trial(self, recipe: Recipe) -> TuningTrial:
        if time.monotonic() >= self.end_s:
            raise TimeIsUp
        self.made.append(name_of(recipe))
        size, searched, _ = self.recipes[recipe.name]
        loss = lost(searched)
        return TuningTrial(
            name=name_of(recipe),
            recipe=recipe,
            size_bytes=size,
            loss=loss,
            chance=chance_within(loss, BUDGET, SAMPLES),
        )

    def sensitivities(self, _: str) -> tuple[()]:
        return ()

    def file(self, recipe: Recipe) -> Path:
        return Path(recipe.name)

    def loss(self, file: Path) -> Loss:
        return lost(self.recipes[file.name][2])


def run(bench: Bench, trials: int = 40) -> SearchResult:
    fake = cast("Any", bench)
    request = TuneRequest(
        model="net.tflite", data=parse_source("data.npz"), max_drop=BUDGET, trials=trials
    )
    return search_and_confirm(fake, request, 500, fake)


def test_after_a_failure_the_search_goes_on_to_the_next_larger(tmp_path):
    bench = Bench(tmp_path, RECIPES, time.monotonic() + 60)
    done = run(bench)
    assert [(one.trial, one.is_met) for one in done.confirmations] == [
        (f"weight-only-int4{METHODS}", False),
        (f"int8x4{METHODS}", True),
    ]
    assert done.stopped == ""


def test_nothing_is_made_twice_and_each_trial_is_told_with_the_best_so_far(tmp_path):
    bench = Bench(tmp_path, RECIPES, time.monotonic() + 60)
    done = run(bench)
    assert len(set(bench.made)) == len(done.trials)
    assert f"trial 1: weight-only-int4{METHODS}" in bench.said[0]
    assert f"best so far: weight-only-int4{METHODS}" in bench.said[0]


def test_what_is_confirmed_at_once_leaves_larger_ones_unmade(tmp_path):
    bench = Bench(tmp_path, {**RECIPES, "weight-only-int4": (4_000, 0, 0)}, time.monotonic() + 60)
    done = run(bench)
    assert [one.trial for one in done.confirmations] == [f"weight-only-int4{METHODS}"]
    assert "float16" not in bench.made


def test_where_all_fail_the_fresh_samples_are_looked_at_no_more_than_that(tmp_path):
    bad = {name: (size, searched, 50) for name, (size, searched, _) in RECIPES.items()}
    done = run(Bench(tmp_path, bad, time.monotonic() + 60))
    assert len(done.confirmations) == MOST
    assert not any(one.is_met for one in done.confirmations)
    # The last one was all but sure.
    last = next(one for one in done.trials if one.name == done.confirmations[-1].trial)
    assert last.chance > 0.95


def test_what_is_there_when_the_trials_end_is_confirmed_all_the_same(tmp_path):
    bench = Bench(tmp_path, RECIPES, time.monotonic() + 60)
    done = run(bench, trials=2)
    assert done.stopped == "trials"
    assert [one.is_met for one in done.confirmations] == [False, True]


def test_without_any_time_there_is_nothing(tmp_path):
    done = run(Bench(tmp_path, RECIPES, time.monotonic()))
    assert (done.trials, done.confirmations, done.stopped) == ((), (), "time")
