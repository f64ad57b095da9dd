"""The whole conversion on one screen: a model in, verified and published artifacts out."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.conversion.plan import Asked, Plan, make_plan, published
from edgeconv.conversion.publish import Ready, kept, publish, ready
from edgeconv.conversion.run import Run
from edgeconv.data import parse_preprocessing
from edgeconv.errors import EdgeconvError, InputRefused, OutputRefused
from edgeconv.quantize.recipes import make_recipes
from edgeconv.runtimes.targets import parse_target_runtime
from edgeconv.store import (
    Cache,
    cache_directory,
    owned,
    publish_all,
    scratch_directory,
    writable_directory,
)
from edgeconv.store.converted import note_converted
from edgeconv.types import (
    QAT,
    Artifact,
    Conversion,
    Execution,
    Failure,
    IoType,
    Opening,
    Preprocessing,
    Qat,
    Recipe,
    TargetRuntime,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


def convert(
    model: str | Path,
    directory: str | Path | None,
    to: Sequence[str | Recipe],
    *,
    calibration: str | Mapping[str, str] | None = None,
    samples: int | None = None,
    preprocess: str | Mapping[str, Preprocessing] = "none",
    training: str = "",
    signature: str | Sequence[str] | None = None,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    select_ops: bool = False,
    target_runtime: str | TargetRuntime = "litert",
    opening: Opening = Opening(),
    execution: Execution = Execution(),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Conversion:
    """Convert `model` by the recipes `to` and publish what passes verification.

    `directory`: where to publish; None takes NAME.tflites in the current directory.
    `to`: recipe names, or recipes of `edgeconv.quantize.recipes.make_recipes`.
    `calibration`: a data source such as "samples.npz", or one by signature; `samples` of it
    calibrate and others are held back to verify with. `preprocess`: what is done to a stored
    sample, as text (see `edgeconv.data.parse_preprocessing`) or by input name. `training`: a
    data source with labels, for the recipe qat; it calibrates too if no other does. `signature`:
    one key, several, or "all": several go into one file. `batch` and `shapes` (by input, -1
    for what stays) fix dynamic dimensions. `select_ops` allows operators that only TensorFlow
    has. `target_runtime`: prove the artifacts on this runtime as well. `opening`: the user's own
    Keras classes, or the tags of a SavedModel's graph.

    What is published already and unchanged is left alone, without starting TensorFlow.
    A recipe whose result fails verification is in `Conversion.failures`, and nothing of
    it is published. Raises an `EdgeconvError` where nothing could be done at all; then
    nothing was written.
    """
    asked = Asked(
        signatures=(signature,) if isinstance(signature, str) else tuple(signature or ()),
        batch=batch,
        shapes={name: tuple(shape) for name, shape in (shapes or {}).items()},
        calibration=_by_signature(calibration or training),
        samples=samples,
        preprocessing=_preprocessing(preprocess),
        training=training,
        select_ops=select_ops,
        target=_target(target_runtime),
    )
    recipes, allowed, allowance = _recipes(to), execution.allow_code, execution.allowance
    plan = make_plan(
        model, directory, recipes, asked, opening=opening, allow_code=allowed, allowance=allowance
    )
    if len(found := _up_to_date(plan)) == len(plan.recipes):
        return _conversion(plan, found, found, ())
    waiting = f"waiting for another run into {plan.directory}"
    own = owned(plan.directory, on_wait=lambda: on_progress(waiting))
    with own, _scratch() as scratch:
        cache = Cache(cache_directory() if execution.use_cache else None, on_progress)
        return _convert_missing(Run(plan, cache, execution, scratch, on_progress))


def qat(
    model: Any,
    directory: str | Path,
    training: str,
    settings: Qat = Qat(),
    *,
    name: str = "model",
    also: Sequence[str] = (),
    calibration: str | None = None,
    preprocess: str | Mapping[str, Preprocessing] = "none",
    input_type: IoType = "float32",
    output_type: IoType = "float32",
    opening: Opening = Opening(),
    execution: Execution = Execution(),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Conversion:
    """Train `model` on with quantisation, and publish the int8 file that it becomes.

    `model`: a Keras 3 or tf_keras model, which is saved as `directory`/`name`.keras, or the path
    of one. `training`: a data source with labels. `also`: further recipes, to be made of the
    float model. The other arguments are those of `convert`, which says what comes back.
    """
    path = model if isinstance(model, str | Path) else _saved(model, Path(directory), name)
    recipes = make_recipes(
        [*also, QAT], input_type=input_type, output_type=output_type, qat=settings
    )
    return convert(
        path,
        directory,
        recipes,
        calibration=calibration,
        preprocess=preprocess,
        training=training,
        opening=opening,
        execution=execution,
        on_progress=on_progress,
    )


def _saved(model: Any, directory: Path, name: str) -> Path:
    """A model in memory as a Keras file, written by the Keras that it is of."""
    if not hasattr(model, "save"):
        raise InputRefused(
            f"{type(model).__name__} is no Keras model",
            hint="give a Keras 3 or tf_keras model, or the path of one",
        )
    writable_directory(directory)
    path = directory / f"{name}.keras"
    with _scratch() as scratch:
        # Keras goes by the suffix.
        model.save(scratch / path.name)
        publish_all({path: scratch / path.name})
    return path


def _by_signature(calibration: str | Mapping[str, str] | None) -> dict[str, str]:
    if calibration is None or isinstance(calibration, str):
        return {"": calibration} if calibration else {}
    return dict(calibration)


def _preprocessing(preprocess: str | Mapping[str, Preprocessing]) -> dict[str, Preprocessing]:
    return parse_preprocessing(preprocess) if isinstance(preprocess, str) else dict(preprocess)


def _target(runtime: str | TargetRuntime) -> TargetRuntime:
    return parse_target_runtime(runtime) if isinstance(runtime, str) else runtime


def _convert_missing(run: Run) -> Conversion:
    plan = run.plan
    found = _up_to_date(plan)
    cached = {recipe: kept(run, recipe) for recipe in plan.recipes if recipe not in found}
    done: dict[Recipe, Ready] = {r: one for r, one in cached.items() if one is not None}
    missing = [recipe for recipe, one in cached.items() if one is None]
    failures = []
    for recipe, outcome in _make(run, missing) if missing else ():
        if isinstance(outcome, EdgeconvError):
            failures.append(_failure(recipe, outcome))
        else:
            done[recipe] = outcome
    # Last and together: a run that ends early, however, has changed nothing.
    publish(plan, done.values())
    made = found | {recipe: one.artifact for recipe, one in done.items()}
    return _conversion(plan, made, found, failures)


def _make(run: Run, recipes: Sequence[Recipe]) -> Iterator[tuple[Recipe, Ready | EdgeconvError]]:
    """Make and verify each recipe; yields what is to be published, or the error it ended in."""
    from edgeconv.conversion.climb import make_all
    from edgeconv.conversion.qat import make_qat

    run.cache.refuse_unwritable()
    derived = [recipe for recipe in recipes if recipe.qat is None]
    outcomes = make_all(run, derived) if derived else {}
    trained = ((recipe, make_qat(run, recipe)) for recipe in recipes if recipe.qat)
    for recipe, outcome in (*outcomes.items(), *trained):
        if isinstance(outcome, EdgeconvError):
            yield recipe, outcome
        else:
            yield recipe, ready(run, outcome.prepared, outcome.examined)


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
    # Its manifests may name it from now on.
    note_converted(plan.model.path, plan.model.sha256)
    return Conversion(
        directory=str(plan.directory),
        artifacts=tuple(made[recipe] for recipe in plan.recipes if recipe in made),
        failures=tuple(failures),
        reused=tuple(recipe.name for recipe in plan.recipes if recipe in found),
    )


def _failure(recipe: Recipe, error: EdgeconvError) -> Failure:
    return Failure(
        recipe=recipe.name, error=type(error).__name__, message=error.message, hint=error.hint
    )


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A temporary directory for what is made on the way; it goes when the run ends."""
    try:
        with scratch_directory() as path:
            yield path
    except OSError as error:
        raise OutputRefused(
            f"cannot write the files on the way: {error}",
            hint="free some space, or choose another place for temporary files with TMPDIR",
        ) from error
