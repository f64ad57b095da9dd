"""The whole conversion on one screen: a model in, verified and published artifacts out."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.errors import EdgeconvError
from edgeconv.nouns import Artifact, Conversion, Failure, Recipe
from edgeconv.plan import Plan, make_plan, published
from edgeconv.publish import kept, publish
from edgeconv.quantize.recipes import make_recipes
from edgeconv.stages import Execution, Run
from edgeconv.store import Cache, cache_directory, locked, writable_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def convert(
    model: str | Path,
    directory: str | Path | None,
    to: Sequence[str | Recipe],
    *,
    calibration: str | None = None,
    samples: int | None = None,
    signature: str | None = None,
    batch: int | None = None,
    execution: Execution = Execution(),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Conversion:
    """Convert `model` by the recipes `to` and publish what passes verification.

    `directory`: where to publish; None takes NAME.tflites in the current directory.
    `to`: recipe names, or recipes of `edgeconv.quantize.recipes.make_recipes`.
    `calibration`: a data source such as "samples.npz"; `samples` of it calibrate and
    others are held back to verify with. `batch` fixes a dynamic batch dimension.

    What is published already and unchanged is left alone, without starting TensorFlow.
    A recipe whose result fails verification is in `Conversion.failures`, and nothing of
    it is published. Raises an `EdgeconvError` where nothing could be done at all; then
    nothing was written.
    """
    plan = make_plan(
        model,
        directory,
        _recipes(to),
        signature=signature,
        batch=batch,
        calibration=calibration,
        samples=samples,
    )
    if len(found := _up_to_date(plan)) == len(plan.recipes):
        return _conversion(plan, found, found, ())
    with (
        _writable(plan.directory),
        locked(
            plan.directory / ".edgeconv.lock",
            on_wait=lambda: on_progress(f"waiting for another run into {plan.directory}"),
        ),
    ):
        return _convert_missing(plan, execution, on_progress)


def _convert_missing(
    plan: Plan, execution: Execution, on_progress: Callable[[str], None]
) -> Conversion:
    found = _up_to_date(plan)
    cache = Cache(cache_directory() if execution.use_cache else None)
    made, failures = dict(found), []
    with tempfile.TemporaryDirectory(prefix="edgeconv-") as scratch:
        run = Run(plan, cache, execution, Path(scratch), on_progress)
        missing = []
        for recipe in (recipe for recipe in plan.recipes if recipe not in found):
            artifact = kept(run, recipe)
            if artifact is None:
                missing.append(recipe)
            else:
                made[recipe] = artifact
        for recipe, outcome in _make(run, missing) if missing else ():
            if isinstance(outcome, EdgeconvError):
                failures.append(_failure(recipe, outcome))
            else:
                made[recipe] = outcome
    return _conversion(plan, made, found, failures)


def _make(run: Run, recipes: Sequence[Recipe]) -> Iterator[tuple[Recipe, Artifact | EdgeconvError]]:
    """Make, verify and publish each recipe; yields its artifact, or the error it ended in."""
    from edgeconv.stages.judge import judge_all, judge_float, second_opinion
    from edgeconv.stages.make import first_engine
    from edgeconv.stages.prepare import prepare

    prepared = prepare(run)
    floating = next((recipe for recipe in recipes if recipe.name == "float32"), None)
    quantized = [recipe for recipe in recipes if recipe.name != "float32"]
    made = first_engine(run, prepared, [r for r in quantized if r.engine != "tflite"])
    float_model, outputs = judge_float(run, prepared, floating)
    if floating is not None:
        yield floating, publish(run, prepared, float_model)
    settled = judge_all(run, prepared, made, outputs)
    for recipe in quantized:
        outcome = settled.get(recipe)
        if outcome is None or (isinstance(outcome, EdgeconvError) and recipe.engine == "auto"):
            outcome = second_opinion(run, prepared, recipe, outcome, outputs)
        if isinstance(outcome, EdgeconvError):
            yield recipe, outcome
        else:
            yield recipe, publish(run, prepared, outcome)


def _recipes(to: Sequence[str | Recipe]) -> tuple[Recipe, ...]:
    if isinstance(to, str):
        to = to.split(",")
    ready = [recipe for recipe in to if isinstance(recipe, Recipe)]
    names = [recipe for recipe in to if isinstance(recipe, str)]
    return (*ready, *make_recipes(names)) if names or not ready else tuple(ready)


def _up_to_date(plan: Plan) -> dict[Recipe, Artifact]:
    pairs = ((recipe, published(plan, recipe)) for recipe in plan.recipes)
    return {recipe: artifact for recipe, artifact in pairs if artifact is not None}


def _conversion(
    plan: Plan,
    made: dict[Recipe, Artifact],
    found: dict[Recipe, Artifact],
    failures: Sequence[Failure],
) -> Conversion:
    return Conversion(
        directory=str(plan.directory),
        artifacts=tuple(made[recipe] for recipe in plan.recipes if recipe in made),
        failures=tuple(failures),
        reused=tuple(recipe.name for recipe in plan.recipes if recipe in found),
    )


def _failure(recipe: Recipe, error: EdgeconvError) -> Failure:
    return Failure(recipe=recipe.name, error=type(error).__name__, message=str(error))


@contextlib.contextmanager
def _writable(directory: Path) -> Iterator[None]:
    """Make `directory`; if it was not there and nothing came into it, take it away again."""
    made = writable_directory(directory)
    try:
        yield
    finally:
        if made is not None and all(p.name == ".edgeconv.lock" for p in directory.iterdir()):
            shutil.rmtree(made)
