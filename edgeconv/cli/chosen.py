"""The models of a configuration that a command is for, and the contexts of what is run for each."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from edgeconv.cli import command_named
from edgeconv.cli.config_values import key_of
from edgeconv.cli.configured import context_of, origin_of
from edgeconv.config.file import MODEL_KEYS
from edgeconv.config.reach import NotAllowed, refusal
from edgeconv.errors import UsageError, unknown_name
from edgeconv.requests.places import Reach

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.config import Config
    from edgeconv.config.file import ModelTable
    from edgeconv.config.toml_text import Key

# What is said once, for every command that is run.
_EXECUTION = {
    "threads": "threads",
    "timeout-s": "timeout_s",
    "memory-limit-mib": "memory_limit_mib",
    "no-cache": "no_cache",
}


_EXAMPLES = {"to": '"int8"', "target": '"android"', "out": '"app"'}


class Chosen:
    """The configuration of a command, the models named on its line, and how all is to be run.

    `config`: the same, as it was read again later.
    """

    def __init__(self, ctx: click.Context, config: Config | None = None) -> None:
        origin = origin_of(ctx)
        config = config or origin.config
        if config is None:
            raise UsageError(
                "there is no edgeconv.toml here, and no pyproject.toml with [tool.edgeconv]",
                hint="write one with `edgeconv init MODEL`, or name it with --config",
            )
        self.config = config
        self.granted = origin.granted
        self._words = _execution_words(ctx)

    def models(self, names: Sequence[str]) -> tuple[ModelTable, ...]:
        """The models of these names, all where none is named. Raises `UsageError`."""
        models = self.config.models
        if not models:
            raise UsageError(
                f"{self.config.path} has no model", hint='add [model.NAME] with source = "PATH"'
            )
        for name in names:
            if name not in models:
                raise unknown_name("model", name, models)
        chosen = tuple(model for name, model in models.items() if name in names or not names)
        for model in chosen:
            self._refuse_paths(model)
        return chosen

    def within_project(self, path: Path, what: str, *key: str) -> Path:
        """The path itself. Raises `NotAllowed`, with the line of `key`, where it leads out."""
        self._refuse_elsewhere(Reach("path", str(path)), what, key)
        return path

    def _refuse_elsewhere(self, reach: Reach, what: str, key: Key) -> None:
        if found := refusal(reach, self.config.path, self.granted):
            error = self.config.written.error(key, f"{what} {found.message}", found.hint)
            raise NotAllowed(error.message, hint=error.hint, place=error.place)

    def _refuse_paths(self, model: ModelTable) -> None:
        for key in MODEL_KEYS:
            if path := getattr(model, key):
                what = f"{key} of model {model.name!r}"
                self._refuse_elsewhere(Reach("tree", path), what, ("model", model.name, key))

    def context(self, model: ModelTable, command: str, words: Sequence[str]) -> click.Context:
        """The context of a command for a model, with these words typed."""
        known = {key_of(option) for option in command_named(command).params}
        said = [word for key, own in self._words.items() if key in known for word in own]
        return context_of(
            self.config,
            command,
            [*said, *words],
            model=model.name,
            granted=self.granted,
        )

    def converting(self, model: ModelTable) -> click.Context:
        """The context of the model's conversion.

        It publishes in NAME.tflites in the folder of the configuration, if nowhere else.
        """
        directory = self._published(model)
        return self.context(model, "convert", ["-o", str(directory), "--", model.source])

    def published(self) -> list[Path]:
        """Where the conversions publish, of all models whose tables say what is to be made."""
        found = []
        for model in self.config.models.values():
            with contextlib.suppress(click.UsageError):
                found.append(self._published(model))
        return found

    def _published(self, model: ModelTable) -> Path:
        directory = self.directory(model, "convert")
        beside = self.config.folder / f"{model.name}.tflites"
        what = f"the directory of model {model.name!r}"
        return directory or self.within_project(beside, what, "model", model.name)

    def directory(self, model: ModelTable, command: str) -> Path | None:
        """`out` of a command's table; of a general one, a folder for each of several models."""
        out = self.context(model, command, ["--", model.source]).params["directory"]
        if out is None:
            return None
        is_own = self.config.key(command, "out", model=model.name)[0] == "model"
        return Path(out) if is_own or len(self.config.models) == 1 else Path(out, model.name)


@contextlib.contextmanager
def explained(config: Config, model: ModelTable, command: str) -> Iterator[None]:
    """What click says of a table that has not all that is needed, with its line."""
    try:
        yield
    except click.UsageError as error:
        message, hint = error.format_message(), ""
        if isinstance(error, click.MissingParameter) and error.param:
            key = key_of(error.param)
            message = f"[{command}] has no `{key}`"
            hint = f"add {key} = {_EXAMPLES[key]}" if key in _EXAMPLES else ""
        place = config.origin("model", model.name, command)
        raise UsageError(f"{model.name}: {message}", hint=hint, place=place) from error


def _execution_words(ctx: click.Context) -> dict[str, list[str]]:
    """What is typed, or in the command's table, of how to run; by the option's key."""
    said = {"trust-model": [f"--trust-model={each}" for each in ctx.params.get("trusted", ())]}
    for key, name in _EXECUTION.items():
        source = ctx.get_parameter_source(name)
        if source in (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP):
            value = ctx.params[name]
            said[key] = [f"--{key}"] if value is True else [f"--{key}", str(value)]
            if value is False:
                del said[key]
    return said
