"""The verb `build`: what a configuration names, converted and embedded where it is stale."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.building.inputs import Inputs, inputs
from edgeconv.building.steps import BuildStep, do_step
from edgeconv.config import find_config
from edgeconv.config.chosen import Chosen, NoConfig, settled
from edgeconv.config.lock import FILE_NAME, accepted_hashes
from edgeconv.config.tables import read_config
from edgeconv.embedding.depfile import make_rule
from edgeconv.embedding.plan import RECORD
from edgeconv.errors import EdgeconvError, UsageError
from edgeconv.requests.embed import EmbedRequest
from edgeconv.requests.paths import path_within
from edgeconv.store import publish_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.config.file import ModelTable
    from edgeconv.requests.check import BuildRequest
    from edgeconv.requests.convert import ConvertRequest
    from edgeconv.types import Built

EMBED, CONVERT = "embed", "convert"


def build(
    asked: BuildRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> tuple[Built, ...]:
    """Convert and embed every model that is asked for, where anything changed.

    Raises an `EdgeconvError`, whose `location` is a line of the configuration, for the first model
    that cannot be built.
    """
    asked = settled(asked, "build")
    steps = make_steps(asked)
    return finished(asked, [built(step, on_progress) for step in steps])


def built(step: BuildStep, on_progress: Callable[[str], None]) -> Built:
    """One step, done. Raises an `EdgeconvError`, which names the model and its line."""
    on_progress(f"building {step.name}")
    try:
        return do_step(step, on_progress=on_progress)
    except EdgeconvError as error:
        error.location = error.location or step.location
        raise


def finished(asked: BuildRequest, done: Sequence[Built]) -> tuple[Built, ...]:
    """The models that were built, and the depfile that is asked for."""
    if asked.depfile:
        config = str(_config(asked))
        made_from = {Path(path) for one in done for path in (*one.inputs, config)}
        target = asked.depfile_target or str(Path(done[0].directory, RECORD))
        publish_bytes(make_rule(target, sorted(made_from)), Path(asked.depfile).absolute())
    return tuple(done)


def make_steps(asked: BuildRequest) -> list[BuildStep]:
    """A step for each model of these names, for all with [embed] where none is named.

    All paths are absolute, from wherever it is called: so the same files get the same keys.
    Raises `UsageError`, with the line, where a model cannot be built, or two in one place.
    """
    chosen = Chosen(asked, read_config(_config(asked)))
    models = _embedded(chosen, asked.names)
    _refuse_shared(chosen)
    steps = [_step(chosen, model) for model in models]
    for step in steps:
        _refuse_inside(chosen, step)
    return steps


def _config(asked: BuildRequest) -> Path:
    found = Path(asked.config) if asked.config is not None else find_config(Path())
    if found is None:
        raise NoConfig()
    # Not resolved: where a link leads is no business of the keys.
    return Path(os.path.abspath(found))  # noqa: PTH100


def _embedded(chosen: Chosen, names: Sequence[str]) -> list[ModelTable]:
    models = chosen.models(names)
    without = [model.name for model in models if not model.tables.get(EMBED)]
    if names and without:
        raise _no_table(chosen, without[0], f"{without[0]} has no [embed] table")
    if len(without) == len(models):
        raise _no_table(chosen, models[0].name, "no model has an [embed] table")
    return [model for model in models if model.name not in without]


def _no_table(chosen: Chosen, name: str, message: str) -> UsageError:
    return UsageError(
        f"{message}, so there is nothing to build",
        hint=f'add [model.{name}.embed] with target = "android" and out = "app"',
        location=chosen.config.origin("model", name),
    )


def _refuse_shared(chosen: Chosen) -> None:
    """Raise `UsageError` for two models that are embedded, or converted, into one directory."""
    for verb in (EMBED, CONVERT):
        taken: dict[str, str] = {}
        for model in chosen.config.models.values():
            place = _written_place(chosen, model, verb)
            if not place or not model.tables.get(EMBED):
                continue
            other = taken.setdefault(place, model.name)
            if other != model.name:
                raise UsageError(
                    f"models {other} and {model.name} have the same `out` of [{verb}], {place}",
                    hint="give each model a directory of its own",
                    location=chosen.config.origin("model", model.name, verb, "out"),
                )


def _written_place(chosen: Chosen, model: ModelTable, verb: str) -> str:
    """Where a verb writes for a model; "" where its own table does not say it."""
    config = chosen.config
    out = model.tables.get(verb, {}).get("out")
    # A general one has a folder for each model.
    is_own = config.key(verb, "out", model=model.name)[0] == "model"
    if not is_own or not isinstance(out, str) or "\0" in out:
        return ""
    return os.path.realpath(path_within(out, config.folder))


def _refuse_inside(chosen: Chosen, step: BuildStep) -> None:
    """Raise `UsageError` for files that would be their own input, and never be up to date."""
    for path in step.inputs.roots:
        if path == step.directory or path in step.directory.parents:
            raise UsageError(
                f"{step.name} would be embedded in {step.directory}, inside {path}, which it is "
                "made of",
                hint="choose another `out`",
                location=chosen.config.origin("model", step.name, EMBED, "out"),
            )


def _step(chosen: Chosen, model: ModelTable) -> BuildStep:
    table = chosen.config.origin("model", model.name, EMBED)
    converting = chosen.converting(model)
    directory = chosen.directory(model, EMBED)
    given = {"artifact": model.source, **({"out": str(directory)} if directory else {})}
    embedding = chosen.request(EmbedRequest, EMBED, model, given)
    if embedding.remake:
        raise UsageError(
            "remake of [embed] is for `edgeconv embed`; a build converts in any case",
            hint='say it to the conversion: io = "int8" and batch = 1 in [convert]',
            location=table,
        )
    return BuildStep(
        name=model.name,
        config=chosen.config.path,
        converting=converting,
        embedding=embedding,
        inputs=_inputs(converting, embedding),
        location=chosen.config.origin("model", model.name),
        table=table,
        accepted=_accepted(chosen, model),
    )


def _accepted(chosen: Chosen, model: ModelTable) -> frozenset[str] | None:
    """What the lock accepted of a model; None where it is not locked."""
    named = model.tables.get("check", {}).get("lock")
    folder = chosen.config.folder
    place = Path(path_within(named, folder)) if isinstance(named, str) else folder / FILE_NAME
    return accepted_hashes(chosen.within_project(place, "the lock"), model.name)


def _inputs(converting: ConvertRequest, embedding: EmbedRequest) -> Inputs:
    """The model, and the files that the requests name; the artifact is made on the way."""
    reads = [converting.inputs(), replace(embedding, artifact="").inputs()]
    return inputs(
        [place for each in reads for place in each.paths],
        [source for each in reads for source in each.sources],
    )
