"""`edgeconv config`: the configuration as it is understood, and its JSON Schema."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from edgeconv.cli import command_named
from edgeconv.cli.config_values import default_map, options_of, refused_values
from edgeconv.cli.configured import CONFIGURABLE, OptionNames, read_config
from edgeconv.cli.options import echo_json
from edgeconv.cli.printing import echo, echo_text
from edgeconv.config.reach import NOTHING_GRANTED, refusal
from edgeconv.requests.places import Reach

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.config import Config
    from edgeconv.config.reach import NotAllowed, Refusal
    from edgeconv.config.toml_text import Key
    from edgeconv.types import Budget

# Shown also where the file has no table for them: they are what is done to each model.
_OF_A_MODEL = ("convert", "bench")
_DEFAULT = "default"


class Entry(NamedTuple):
    """A value, where it is from, and why the project may not have it, "" where it may."""

    value: Any
    origin: str
    refused: str = ""


Shown = dict[str, Entry]


@click.group("config")
def command() -> None:
    """Show the resolved configuration, or the JSON Schema of the file."""


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of edgeconv.toml, which gives editors completion."""
    from edgeconv.cli.config_schema import config_schema

    echo_text(config_schema().decode())


@command.command("show")
@click.argument("commands", nargs=-1, type=click.Choice(CONFIGURABLE))
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file. [default: edgeconv.toml, or pyproject.toml with [tool.edgeconv]]",
)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON document.")
def show(commands: tuple[str, ...], config_file: Path | None, *, as_json: bool) -> None:
    """Print every value that holds, and where it is from: the file's line, or the default.

    What the project may not name, and only you can allow, is marked as refused; see
    docs/security.md. With COMMANDS only their tables. Paths are as they are from the current
    directory. What is printed is TOML, where a value of a model that is none of its own is left
    out.
    """
    config = _config(config_file)
    names = commands or _commands(config)
    tables = {name: _values(config, name, "") for name in names}
    of_models = {
        model: {name: _values(config, name, model) for name in names} for model in config.models
    }
    if as_json:
        echo_json(_document(config, tables, of_models, with_budget=not commands))
    else:
        for line in _lines(config, tables, of_models, with_budget=not commands):
            echo(line)


def _config(path: Path | None) -> Config:
    from edgeconv.config import find_config
    from edgeconv.errors import UsageError

    found = path or find_config(Path())
    if found is None:
        raise UsageError(
            "there is no configuration here",
            hint="write one with `edgeconv init MODEL`, or name it with --config",
        )
    return read_config(found)


def _commands(config: Config) -> tuple[str, ...]:
    """The commands that the file has tables of, and those that each of its models goes through."""
    named = {*config.tables, *(name for one in config.models.values() for name in one.tables)}
    if config.models:
        named |= {*_OF_A_MODEL}
    return tuple(name for name in OptionNames() if name in named)


def _values(config: Config, name: str, model: str) -> Shown:
    """What holds of a command's options; one that is not given and has no default is left out."""
    command = command_named(name)
    values = default_map(config, command, model=model, granted=None)
    context = command.make_context(name, [], default_map=values, resilient_parsing=True)
    refused = refused_values(config, command, model=model, granted=NOTHING_GRANTED)
    found = {}
    for key, option in options_of(command).items():
        parameter = option.name or ""
        value = context.params.get(parameter)
        if context.get_parameter_source(parameter) == ParameterSource.DEFAULT_MAP:
            origin = config.origin(*config.key(name, key, model=model))
            found[key] = Entry(_plain(value), origin, _why(refused.get(key)))
        elif value is not None and value not in ("", ()) and value != math.inf:
            found[key] = Entry(_plain(value), _DEFAULT)
    return found


def _why(refused: Refusal | NotAllowed | None) -> str:
    return f"{refused.message}; {refused.hint}" if refused else ""


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def _limits(config: Config, model: str) -> dict[str, Shown]:
    """The limits that hold by table, "" for those of every artifact, with their severities."""
    budget: Budget = config.models[model].budget if model else config.budget
    tables = {"": budget.every, **budget.recipe}
    return {
        recipe: {
            name: Entry(
                {"limit": one.limit, "severity": one.severity},
                config.origin(*_limit_key(config, model, recipe, name)),
            )
            for name, one in limits.given().items()
        }
        for recipe, limits in tables.items()
    }


def _limit_key(config: Config, model: str, recipe: str, name: str) -> Key:
    table = ("budget", "recipe", recipe) if recipe else ("budget",)
    own = ("model", model, *table, name)
    return own if model and config.written.has(*own) else (*table, name)


def _document(
    config: Config,
    tables: dict[str, Shown],
    of_models: dict[str, dict[str, Shown]],
    *,
    with_budget: bool,
) -> dict[str, Any]:
    def said(shown: Shown) -> dict[str, Any]:
        return {
            key: {
                "value": each.value,
                "from": each.origin,
                **({"refused": each.refused} if each.refused else {}),
            }
            for key, each in shown.items()
        }

    def limits(model: str) -> dict[str, Any]:
        if not with_budget:
            return {}
        found = {recipe: said(shown) for recipe, shown in _limits(config, model).items()}
        return {"budget": {**found.pop("", {}), **({"recipe": found} if found else {})}}

    models = {
        model: {
            **said(_places(config, model)),
            **{name: said(shown) for name, shown in commands.items()},
            **limits(model),
        }
        for model, commands in of_models.items()
    }
    general = {name: said(shown) for name, shown in tables.items()}
    return {"file": str(config.path), "model": models, **general, **limits("")}


def _places(config: Config, model: str) -> Shown:
    """The paths that a model's own table has."""
    from edgeconv.config.file import MODEL_KEYS

    table = config.models[model]
    found = {}
    for key in MODEL_KEYS:
        if path := getattr(table, key):
            why = _why(refusal(Reach("path", path), config.path, NOTHING_GRANTED))
            found[key] = Entry(path, config.origin("model", model, key), why)
    return found


def _lines(
    config: Config,
    tables: dict[str, Shown],
    of_models: dict[str, dict[str, Shown]],
    *,
    with_budget: bool,
) -> Iterator[str]:
    """The document as TOML, with the origin of each value as a comment."""
    for model, commands in of_models.items():
        yield from _table(("model", model), _places(config, model))
        for name, shown in commands.items():
            own = {key: each for key, each in shown.items() if each != tables[name].get(key)}
            if own:
                yield from _table(("model", model, name), own)
        if with_budget:
            yield from _budget_lines(config, ("model", model, "budget"), model)
    for name, shown in tables.items():
        yield from _table((name,), shown)
    if with_budget:
        yield from _budget_lines(config, ("budget",), "")


def _budget_lines(config: Config, key: Key, model: str) -> Iterator[str]:
    for recipe, shown in _limits(config, model).items():
        if shown:
            yield from _table((*key, "recipe", recipe) if recipe else key, shown)


def _table(key: Key, shown: Shown) -> Iterator[str]:
    from edgeconv.config.toml_text import toml_header, toml_value
    from edgeconv.reporting.units import plain

    pairs = [
        (
            f"{name} = {toml_value(each.value)}",
            plain(f"{each.origin}: REFUSED: {each.refused}" if each.refused else each.origin),
        )
        for name, each in shown.items()
    ]
    width = max((len(pair) for pair, _ in pairs if len(pair) <= 60), default=0)
    yield toml_header(key)
    for pair, origin in pairs:
        yield f"{pair:{width}}  # {origin}"
    yield ""
