"""The verb `build`: the models of a configuration, converted and embedded where stale."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.embedding.build_steps import BuildStep, Inputs, do_step, inputs
from edgeconv.embedding.embedding import make_rule
from edgeconv.embedding.plan import RECORD
from edgeconv.requests.config.chosen import Chosen, NoConfig, settled
from edgeconv.requests.config.lock import FILE_NAME, accepted_hashes
from edgeconv.requests.config.reach import find_config
from edgeconv.requests.config.tables import read_config
from edgeconv.requests.embed import EmbedRequest
from edgeconv.requests.texts import path_within
from edgeconv.system.store import publish_bytes, refuse_inputs
from edgeconv.types.errors import EdgeconvError, UsageError

if TYPE_CHECKING:
    from edgeconv.requests.check import BuildRequest
    from edgeconv.requests.config.file import ModelTable
    from edgeconv.requests.convert import ConvertRequest
    from edgeconv.types import Built

EMBED, CONVERT = "embed", "convert"


def build(
    request: BuildRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> tuple[Built, ...]:
    """Convert and embed each model of the request where anything changed.

    Raises an `EdgeconvError`, whose `location` is a line of the configuration, for the first model
    that cannot be built.
    """
    request = settled(request, "build")
    steps = make_steps(request)
    return finish(request, [build_step(step, on_progress) for step in steps])


def build_step(step: BuildStep, on_progress: Callable[[str], None]) -> Built:
    """Do a step. Raises an `EdgeconvError` with the line of the model."""
    on_progress(f"building {step.name}")
    try:
        return do_step(step, on_progress=on_progress)
    except EdgeconvError as error:
        error.location = error.location or step.location
        raise


def finish(request: BuildRequest, built: Sequence[Built]) -> tuple[Built, ...]:
    """The models that were built; writes the depfile of the request."""
    if request.depfile:
        config = str(_config(request))
        inputs = {Path(path) for model in built for path in (*model.inputs, config)}
        target = request.depfile_target or str(Path(built[0].directory, RECORD))
        publish_bytes(make_rule(target, sorted(inputs)), Path(request.depfile).absolute())
    return tuple(built)


def make_steps(request: BuildRequest) -> list[BuildStep]:
    """A step for each named model, by default for all with [embed].

    All paths are absolute, so the keys do not depend on the working directory. Raises
    `UsageError`, with the line, for a model that cannot be built, and for two models in one
    directory.
    """
    chosen = Chosen(request, read_config(_config(request)))
    models = _models_to_embed(chosen, request.names)
    _refuse_shared(chosen)
    steps = [_step(chosen, model) for model in models]
    if request.depfile:
        refuse_inputs([Path(request.depfile)])
    for step in steps:
        _refuse_inside(chosen, step)
    return steps


def _config(request: BuildRequest) -> Path:
    file = Path(request.config) if request.config is not None else find_config(Path())
    if file is None:
        raise NoConfig()
    # Not resolved: the keys do not depend on where a link leads.
    return Path(os.path.abspath(file))  # noqa: PTH100


def _models_to_embed(chosen: Chosen, names: Sequence[str]) -> list[ModelTable]:
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
    """Raise `UsageError` for two models that are written into one directory."""
    for verb in (EMBED, CONVERT):
        taken: dict[str, str] = {}
        for model in chosen.config.models.values():
            directory = _own_directory(chosen, model, verb)
            if not directory or not model.tables.get(EMBED):
                continue
            other = taken.setdefault(directory, model.name)
            if other != model.name:
                raise UsageError(
                    f"models {other} and {model.name} have the same `out` of [{verb}], {directory}",
                    hint="give each model its own directory",
                    location=chosen.config.origin("model", model.name, verb, "out"),
                )


def _own_directory(chosen: Chosen, model: ModelTable, verb: str) -> str:
    """Where a verb writes for a model; "" where the model's table does not name it."""
    config = chosen.config
    out = model.tables.get(verb, {}).get("out")
    # A general `out` gets a folder for each model.
    is_own = config.key(verb, "out", model=model.name)[0] == "model"
    if not is_own or not isinstance(out, str) or "\0" in out:
        return ""
    return os.path.realpath(path_within(out, config.folder))


def _refuse_inside(chosen: Chosen, step: BuildStep) -> None:
    """Raise `UsageError` for outputs inside an input, which would never be up to date."""
    for path in step.inputs.roots:
        if path == step.directory or path in step.directory.parents:
            raise UsageError(
                f"{step.name} would be embedded in {step.directory}, inside its input {path}",
                hint="choose another `out`",
                location=chosen.config.origin("model", step.name, EMBED, "out"),
            )


def _step(chosen: Chosen, model: ModelTable) -> BuildStep:
    table = chosen.config.origin("model", model.name, EMBED)
    converting = chosen.converting(model)
    directory = chosen.directory(model, EMBED)
    fields = {"artifact": model.source, **({"out": str(directory)} if directory else {})}
    embedding = chosen.request(EmbedRequest, EMBED, model, fields)
    if embedding.remake:
        raise UsageError(
            "remake of [embed] is for `edgeconv embed`; a build always converts",
            hint='set it in [convert]: io = "int8" and batch = 1',
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
        accepted=_accepted_hashes(chosen, model),
    )


def _accepted_hashes(chosen: Chosen, model: ModelTable) -> frozenset[str] | None:
    name = model.tables.get("check", {}).get("lock")
    folder = chosen.config.folder
    path = Path(path_within(name, folder)) if isinstance(name, str) else folder / FILE_NAME
    return accepted_hashes(chosen.within_project(path, "the lock"), model.name)


def _inputs(converting: ConvertRequest, embedding: EmbedRequest) -> Inputs:
    """The files that the requests read; the artifact is an intermediate file."""
    reads = [converting.inputs(), replace(embedding, artifact="").inputs()]
    return inputs(
        [path for each in reads for path in each.paths],
        [source for each in reads for source in each.sources],
    )
