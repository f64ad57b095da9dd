"""The steps of `edgeconv build`, from the models of a configuration."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.building.inputs import Inputs, inputs
from edgeconv.building.steps import Step
from edgeconv.cli.chosen import Chosen, explained
from edgeconv.cli.config_values import options_of
from edgeconv.cli.configured import origin_of, read_config
from edgeconv.cli.jobs import settings
from edgeconv.cli.options import allowance
from edgeconv.cli.values import KEYED_SOURCE, PLACE, SOURCE, STEPS, TREE, text_of
from edgeconv.data.custom import custom_files
from edgeconv.errors import EdgeconvError, InputRefused, UsageError
from edgeconv.requests.convert import by_signature
from edgeconv.requests.places import place_within
from edgeconv.store import cache_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import click

    from edgeconv.config.file import ModelTable
    from edgeconv.embedding.request import Request
    from edgeconv.types import Conversion

EMBED, CONVERT = "embed", "convert"
# Places in the tables of both commands that are written to, not read.
_WRITTEN = frozenset({"directory", "depfile"})
_READ = (PLACE, TREE, SOURCE, KEYED_SOURCE, STEPS)


@contextlib.contextmanager
def at_home(ctx: click.Context, *, anew: bool = False) -> Iterator[Chosen]:
    """The configuration of a command, read in its own folder.

    There its paths are what is written in it, from wherever the command was called: so the same
    files get the same keys, and checkouts share a cache. `anew`: read as it is now in any case.
    Raises `UsageError`.
    """
    config = origin_of(ctx).config
    if config is None or (config.folder == Path() and not anew):
        yield Chosen(ctx)
        return
    if "EDGECONV_CACHE_DIR" in os.environ:
        os.environ["EDGECONV_CACHE_DIR"] = str(cache_directory())
    called_in = Path.cwd()
    os.chdir(config.folder)
    try:
        yield Chosen(ctx, read_config(Path(config.path.name)))
    finally:
        os.chdir(called_in)


def make_steps(chosen: Chosen, names: Sequence[str], options: dict[str, Any]) -> list[Step]:
    """A step for each model of these names, for all with [embed] where none is named.

    Raises `UsageError`, with the line, where a model cannot be built, or two in one place.
    """
    models = _embedded(chosen, names)
    _refuse_shared(chosen)
    steps = [_step(chosen, model, options) for model in models]
    for step in steps:
        _refuse_inside(chosen, step)
    return steps


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
        place=chosen.config.origin("model", name),
    )


def _refuse_shared(chosen: Chosen) -> None:
    """Raise `UsageError` for two models that are embedded, or converted, into one directory."""
    for command in (EMBED, CONVERT):
        taken: dict[str, str] = {}
        for model in chosen.config.models.values():
            place = _written_place(chosen, model, command)
            if not place or not model.tables.get(EMBED):
                continue
            other = taken.setdefault(place, model.name)
            if other != model.name:
                raise UsageError(
                    f"models {other} and {model.name} have the same `out` of [{command}], {place}",
                    hint="give each model a directory of its own",
                    place=chosen.config.origin("model", model.name, command, "out"),
                )


def _written_place(chosen: Chosen, model: ModelTable, command: str) -> str:
    """Where a command writes for a model; "" where its own table does not say it."""
    config = chosen.config
    out = model.tables.get(command, {}).get("out")
    # A general one has a folder for each model.
    is_own = config.key(command, "out", model=model.name)[0] == "model"
    if not is_own or not isinstance(out, str) or "\0" in out:
        return ""
    return os.path.realpath(place_within(out, config.folder))


def _refuse_inside(chosen: Chosen, step: Step) -> None:
    """Raise `UsageError` for files that would be their own input, and never be up to date."""
    directory = step.directory.absolute()
    for path in step.inputs.roots:
        if path == directory or path in directory.parents:
            raise UsageError(
                f"{step.name} would be embedded in {directory}, inside {path}, which it is made of",
                hint="choose another `out`",
                place=chosen.config.origin("model", step.name, EMBED, "out"),
            )


def _step(chosen: Chosen, model: ModelTable, options: dict[str, Any]) -> Step:
    with explained(chosen.config, model, CONVERT):
        converting = chosen.converting(model)
    with explained(chosen.config, model, EMBED):
        embedding = chosen.context(model, EMBED, ["--", model.source])
        directory = chosen.directory(model, EMBED) or Path()
        if embedding.params["remake"]:
            raise UsageError(
                "remake of [embed] is for `edgeconv embed`; a build converts in any case",
                hint='say it to the conversion: io = "int8" and batch = 1 in [convert]',
                place=chosen.config.origin("model", model.name, EMBED),
            )

    def convert() -> Conversion:
        from edgeconv.cli.convert import convert_of

        return convert_of(converting, lambda _: None)

    def request(artifact: Path) -> Request:
        from edgeconv.cli.embed import request_of

        words = ["-o", str(directory), "--", str(artifact)]
        try:
            return request_of(chosen.context(model, EMBED, words))
        except EdgeconvError as error:
            error.place = error.place or chosen.config.origin("model", model.name, EMBED)
            raise

    return Step(
        name=model.name,
        config=chosen.config.path,
        recipe=embedding.params["recipe"],
        directory=directory,
        options={
            CONVERT: {**settings(converting), **_read_places(converting)},
            EMBED: {**settings(embedding), **_read_places(embedding)},
            "published": str(converting.params["directory"]),
            "out": str(directory),
            "source": model.source,
        },
        inputs=_inputs(model.source, converting, embedding),
        convert=convert,
        request=request,
        allowance=allowance(options),
        require_check=embedding.params["require_check"],
        accepted=_accepted(chosen, model),
    )


def _accepted(chosen: Chosen, model: ModelTable) -> frozenset[str] | None:
    """What the lock accepted of a model; None where it is not locked."""
    from edgeconv.gate.lock import FILE_NAME, accepted_hashes

    named = model.tables.get("check", {}).get("lock")
    folder = chosen.config.folder
    place = Path(place_within(named, folder)) if isinstance(named, str) else folder / FILE_NAME
    return accepted_hashes(chosen.within_project(place, "the lock"), model.name)


def _read_places(context: click.Context) -> dict[str, Any]:
    """Where the data of a command is: another place is another file to look at."""
    return {name: context.params[name] for name in _reading(context)}


def _reading(context: click.Context) -> Iterator[str]:
    """The options of a command that name what is read."""
    for option in options_of(context.command).values():
        is_read = text_of(option.type) in _READ
        if is_read and option.name in context.params.keys() - _WRITTEN:
            yield option.name or ""


def _inputs(source: str, *contexts: click.Context) -> Inputs:
    """The model, and the files that the options of the commands name."""
    places = [Path(source)]
    sources: list[str] = []
    for context in contexts:
        types = {option.name: option.type for option in context.command.params}
        for name in _reading(context):
            value = context.params[name]
            if types[name] is KEYED_SOURCE:
                sources += by_signature(
                    value, {("signature",): context.params["signatures"]}
                ).values()
            elif types[name] is SOURCE:
                sources += [value] if value else []
            elif value and (types[name] is not STEPS or value.endswith(".toml")):
                places.append(Path(value))
        for text in context.params.get("custom_objects", ()):
            # One that is not there is refused when it is converted.
            with contextlib.suppress(InputRefused, UsageError):
                places += custom_files(text, str(Path.cwd()))
    return inputs(places, sources)
