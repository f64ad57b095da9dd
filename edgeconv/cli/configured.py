"""Commands that take what is not typed from a configuration file.

Everything on the command line can stand in edgeconv.toml, in the table of its command: the keys
are the long options. What is typed wins. The file is the one of the current directory, or that
of `--config`. Where a command is about the model of a [model.NAME], its own tables hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from edgeconv.cli import COMMANDS, command_named
from edgeconv.cli.config_models import model_of, subjects
from edgeconv.cli.config_values import default_map, options_of
from edgeconv.cli.values import TEXT, UserOption, text_of
from edgeconv.config.reach import NOTHING_GRANTED, Granted
from edgeconv.config.user import allowed_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.config import Config

# They are about the file itself, have no options, or are not for a project to change.
# Whom `verify` is to trust is nothing that a project says.
_WITHOUT_TABLE = ("init", "config", "cmake-dir", "cache", "scan", "verify")
CONFIGURABLE = tuple(name for name in COMMANDS if name not in _WITHOUT_TABLE)
# They run commands that may be told to run code.
_RUN_OTHERS = ("check", "build")
_META = "edgeconv.configured"


@dataclass(frozen=True)
class Origin:
    """What a command was called with: the typed words, and the configuration that applies.

    `is_named`: the file was typed, and not found. `model` names the [model.NAME] whose tables
    hold, "" for the general ones.
    """

    typed: tuple[str, ...] = ()
    config: Config | None = None
    is_named: bool = False
    model: str = ""
    granted: Granted = NOTHING_GRANTED


class Configured(click.Command):
    """A command whose options a configuration may give."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        # Also in a context that has no parent to say so.
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])
        # Also that every option says what its texts may name.
        kinds = [text_of(option.type) for option in options_of(self).values()]
        if any(kind.may_run_code for kind in kinds) or self.name in _RUN_OTHERS:
            self.params.append(_allow_code_option())
        if any(kind is not TEXT for kind in kinds):
            self.params.append(_allow_option())
        self.params.append(_config_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse with the values of the configuration as defaults. Raises `UsageError`."""
        if ctx.default_map is None and not ctx.resilient_parsing:
            typed = self.make_parser(ctx).parse_args(args=list(args))[0]
            help_option = self.get_help_option(ctx)
            if not (help_option and typed.get(help_option.name or "")):
                self._configure(ctx, tuple(args), typed)
        return super().parse_args(ctx, args)

    def _configure(self, ctx: click.Context, args: tuple[str, ...], typed: dict[str, Any]) -> None:
        config = _config(typed.get("config_file"))
        model = model_of(config, subjects(self, typed)) if config else ""
        origin = Origin(
            typed=args,
            config=config,
            is_named=isinstance(typed.get("config_file"), str),
            model=model,
            granted=_granted(typed),
        )
        ctx.meta[_META] = origin
        if config:
            ctx.default_map = default_map(config, self, model=model, granted=origin.granted)


class OptionNames(Mapping[str, tuple[str, ...]]):
    """The option names of each command, whose module is imported when it is asked for."""

    def __getitem__(self, command: str) -> tuple[str, ...]:
        if command not in CONFIGURABLE:
            raise KeyError(command)
        return tuple(options_of(command_named(command)))

    def __iter__(self) -> Iterator[str]:
        return iter(CONFIGURABLE)

    def __len__(self) -> int:
        return len(CONFIGURABLE)


def read_config(path: Path) -> Config:
    """The configuration in a file. Raises `UsageError`, with the line."""
    from edgeconv.config import load_config

    return load_config(path, OptionNames())


def origin_of(ctx: click.Context) -> Origin:
    """What the command of a context was called with."""
    origin: Origin = ctx.meta.get(_META, Origin())
    return origin


def context_of(
    config: Config,
    name: str,
    arguments: Sequence[str],
    *,
    model: str = "",
    granted: Granted = NOTHING_GRANTED,
) -> click.Context:
    """The context of a command with these words typed, and the rest from the configuration.

    With `model`, that model's own tables hold. Raises `UsageError`, with file and line for a
    value that the option does not take, and `click.UsageError` where an argument is missing.
    """
    command = command_named(name)
    values = default_map(config, command, model=model, granted=granted)
    context = command.make_context(name, list(arguments), default_map=values)
    context.meta[_META] = Origin(
        typed=tuple(arguments), config=config, model=model, granted=granted
    )
    return context


def command_line(ctx: click.Context) -> tuple[str, ...]:
    """The words that do the same without a configuration: those typed, and its values."""
    words = ["edgeconv", ctx.command.name or "", *origin_of(ctx).typed]
    for key, option in options_of(ctx.command).items():
        name = option.name or ""
        if ctx.get_parameter_source(name) == ParameterSource.DEFAULT_MAP:
            words += _words(f"--{key}", option, ctx.params[name])
    return tuple(words)


def _words(name: str, option: click.Option, value: Any) -> list[str]:
    if option.is_flag:
        return [name] if value else list(option.secondary_opts[:1])
    values = value if option.multiple else (value,)
    return [word for each in values for word in (name, str(each))]


def _config(typed: object) -> Config | None:
    """The configuration that is typed, or that of the current directory."""
    from edgeconv.config import find_config

    path = Path(typed) if isinstance(typed, str) else find_config(Path())
    return read_config(path) if path else None


def _granted(typed: Mapping[str, Any]) -> Granted:
    """What the typed words allow the configuration. Raises `UsageError`."""
    texts = typed.get("allow")
    return Granted(
        allowed=allowed_by(texts if isinstance(texts, list) else ()),
        any_code=typed.get("allow_code") is True,
    )


def _config_option() -> click.Option:
    return UserOption(
        ["--config", "config_file"],
        metavar="FILE",
        expose_value=False,
        help="Take what is not given here from this file. [default: edgeconv.toml, or "
        "pyproject.toml with [tool.edgeconv]; see docs/config.md]",
    )


def _allow_option() -> click.Option:
    return UserOption(
        ["--allow"],
        multiple=True,
        expose_value=False,
        metavar="KIND=VALUE",
        help="Let the configuration name this, which is not inside its project: directory=PATH, "
        "code=SHA256, program=PATH, runtime=NAME, tracker=KIND:PLACE or address=URL; see "
        "docs/security.md. Repeatable.",
    )


def _allow_code_option() -> click.Option:
    return UserOption(
        ["--allow-code"],
        is_flag=True,
        expose_value=False,
        help="Run code that the configuration names; what is typed here runs anyway.",
    )
