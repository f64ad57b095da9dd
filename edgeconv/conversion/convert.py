"""The whole conversion on one screen: a model in, verified and published artifacts out."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from edgeconv.conversion.plan import FinishedArtifact, Plan, find_published, is_altered, make_plan
from edgeconv.system.processes.failures import machine_error
from edgeconv.system.store import Cache, cache_directory, owned, scratch_directory
from edgeconv.system.store.notes import note_converted
from edgeconv.types import Artifact, Conversion, Failure, Recipe
from edgeconv.types.errors import EdgeconvError, OutputRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from edgeconv.conversion.run import Run
    from edgeconv.requests.convert import ConvertRequest


def convert(
    request: ConvertRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> Conversion:
    """Convert a model by the recipes of the request, and publish what passes verification.

    Artifacts that are published already and unchanged are left alone, without starting TensorFlow.
    A recipe whose result fails verification is in `Conversion.failures`, and is not published.
    Raises an `EdgeconvError` where nothing could be done at all; then nothing was written.
    """
    plan, execution = make_plan(request), request.execution
    if len(published := _up_to_date(plan)) == len(plan.recipes):
        return _conversion(plan, published, published, ())
    # Not before: a conversion in which nothing changed loads little.
    from edgeconv.conversion.run import Run

    waiting = f"waiting for another run into {plan.directory}"
    lock = owned(plan.directory, on_wait=lambda: on_progress(waiting))
    with lock, _scratch() as scratch:
        cache = Cache(cache_directory() if execution.use_cache else None, on_progress)
        with Run(plan, cache, execution, scratch, on_progress) as run:
            return _convert_missing(run)


def _convert_missing(run: Run) -> Conversion:
    from edgeconv.conversion.publish import publish
    from edgeconv.conversion.run import find_cached

    plan = run.plan
    published = _up_to_date(plan)
    cached = {
        recipe: find_cached(run, recipe) for recipe in plan.recipes if recipe not in published
    }
    finished: dict[Recipe, FinishedArtifact] = {
        r: artifact for r, artifact in cached.items() if artifact is not None
    }
    missing = [recipe for recipe, artifact in cached.items() if artifact is None]
    failures = []
    for recipe, outcome in _make(run, missing) if missing else ():
        if isinstance(outcome, EdgeconvError):
            failures.append(_failure(recipe, outcome))
        else:
            finished[recipe] = outcome
    files = [artifact.artifact.file for artifact in finished.values()]
    altered = [file for file in files if is_altered(plan.directory / file)]
    # Last and together, so that a run that ends early has changed nothing.
    publish(plan, finished.values())
    artifacts = published | {recipe: artifact.artifact for recipe, artifact in finished.items()}
    choosing_s = sum(artifact.choosing_s for artifact in finished.values())
    why = "was not as it had been published, and is made again"
    notes = tuple(f"{file} {why}" for file in altered)
    return _conversion(plan, artifacts, published, failures, choosing_s, notes)


def _make(
    run: Run, recipes: Sequence[Recipe]
) -> Iterator[tuple[Recipe, FinishedArtifact | EdgeconvError]]:
    """Make and verify each recipe; yields what is to be published, or the error it ended in."""
    from edgeconv.conversion.climb import make_all
    from edgeconv.conversion.publish import finish_artifact
    from edgeconv.conversion.qat import make_qat
    from edgeconv.conversion.run import cache_artifact

    run.cache.refuse_unwritable()
    derived = [recipe for recipe in recipes if recipe.qat is None]
    outcomes = make_all(run, derived) if derived else {}
    trained = ((recipe, make_qat(run, recipe)) for recipe in recipes if recipe.qat)
    for recipe, outcome in (*outcomes.items(), *trained):
        if isinstance(outcome, EdgeconvError):
            yield recipe, outcome
        else:
            artifact = finish_artifact(run.plan, outcome)
            cache_artifact(run, artifact)
            yield recipe, artifact


def _up_to_date(plan: Plan) -> dict[Recipe, Artifact]:
    pairs = ((recipe, find_published(plan, recipe)) for recipe in plan.recipes)
    return {recipe: artifact for recipe, artifact in pairs if artifact is not None}


def _conversion(
    plan: Plan,
    artifacts: dict[Recipe, Artifact],
    published: dict[Recipe, Artifact],
    failures: Sequence[Failure],
    choosing_s: float = 0.0,
    notes: tuple[str, ...] = (),
) -> Conversion:
    # Its manifests may name it from now on.
    note_converted(plan.model.path, plan.model.sha256)
    return Conversion(
        directory=str(plan.directory),
        artifacts=tuple(artifacts[recipe] for recipe in plan.recipes if recipe in artifacts),
        failures=tuple(failures),
        reused=tuple(recipe.name for recipe in plan.recipes if recipe in published),
        choosing_s=round(choosing_s, 1),
        notes=notes,
    )


def _failure(recipe: Recipe, error: EdgeconvError) -> Failure:
    return Failure(
        recipe=recipe.name, error=type(error).__name__, message=error.message, hint=error.hint
    )


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A temporary directory for intermediate files; it is deleted when the run ends."""
    try:
        with scratch_directory() as path:
            yield path
    except OSError as error:
        raise machine_error(error, "intermediate files") or OutputRefused(
            f"cannot write intermediate files: {error}",
            hint="choose another directory for temporary files with TMPDIR",
        ) from error
