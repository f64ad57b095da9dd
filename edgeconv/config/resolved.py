"""The resolved configuration: every value that applies, and its origin."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.config.file import MODEL_KEYS
from edgeconv.config.reach import NOTHING_GRANTED, refusal
from edgeconv.config.tables import Table, options_of
from edgeconv.reporting.units import plain
from edgeconv.requests.paths import Reach
from edgeconv.requests.table import TABLES
from edgeconv.store.toml_text import toml_header, toml_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.config import Config
    from edgeconv.config.reach import NotAllowed, Refusal
    from edgeconv.store.toml_text import Key
    from edgeconv.types import Budget

# Shown also without a table in the file: every model goes through them.
_OF_A_MODEL = ("convert", "bench")
_DEFAULT = "default"
# The limits of a runtime, among those of recipes.
_RUNTIME = "runtime."


class ResolvedValue(NamedTuple):
    """A value, its origin, and why the project may not have it, "" where it may."""

    value: Any
    origin: str
    refused: str = ""


Shown = dict[str, ResolvedValue]


class Resolved:
    """The values of these tables; without names, of all that concern the models.

    Raises `UsageError` for a value that is wrong.
    """

    def __init__(self, config: Config, names: Sequence[str] = ()) -> None:
        self._config = config
        self._with_budget = not names
        tables = names or _commands(config)
        self._tables = {name: _values(config, name, "") for name in tables}
        self._of_models = {
            model: {name: _values(config, name, model) for name in tables}
            for model in config.models
        }

    def document(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return _document(self._config, self._tables, self._of_models, with_budget=self._with_budget)

    def lines(self) -> Iterator[str]:
        """All of it as TOML, with the origin of each value as a comment."""
        return _lines(self._config, self._tables, self._of_models, with_budget=self._with_budget)


def _commands(config: Config) -> tuple[str, ...]:
    """The commands with tables in the file, and those that each of its models goes through."""
    named = {*config.tables, *(name for model in config.models.values() for name in model.tables)}
    if config.models:
        named |= {*_OF_A_MODEL}
    return tuple(name for name in TABLES if name in named)


def _values(config: Config, name: str, model: str) -> Shown:
    """The values of a command's options, without those that have neither a value nor a default."""
    written = Table(config, name, None, model=model).values()
    refused = Table(config, name, NOTHING_GRANTED, model=model).refused()
    values = {}
    for key, leaf in options_of(name).items():
        default = leaf.raw_default
        if key in written:
            value = leaf.text_of(written[key])
            origin = config.origin(*config.key(name, key, model=model))
            values[key] = ResolvedValue(value, origin, _why(refused.get(key)))
        elif default is not None and default not in ("", ()) and default != math.inf:
            values[key] = ResolvedValue(default, _DEFAULT)
    return values


def _why(refused: Refusal | NotAllowed | None) -> str:
    return f"{refused.message}; {refused.hint}" if refused else ""


def _limits(config: Config, model: str) -> dict[str, Shown]:
    """The limits by table, "" for those of every artifact, with their severities."""
    budget: Budget = config.models[model].budget if model else config.budget
    of_runtimes = {f"{_RUNTIME}{name}": limits for name, limits in budget.runtime.items()}
    tables = {"": budget.every, **budget.recipe, **of_runtimes}
    return {
        recipe: {
            name: ResolvedValue(
                {"limit": limit.limit, "severity": limit.severity},
                config.origin(*_limit_key(config, model, recipe, name)),
            )
            for name, limit in limits.by_name().items()
        }
        for recipe, limits in tables.items()
    }


def _limit_key(config: Config, model: str, recipe: str, name: str) -> Key:
    if recipe.startswith(_RUNTIME):
        table: Key = ("budget", "runtime", recipe.removeprefix(_RUNTIME))
    else:
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
    def document(shown: Shown) -> dict[str, Any]:
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
        tables = {recipe: document(shown) for recipe, shown in _limits(config, model).items()}
        return {"budget": {**tables.pop("", {}), **({"recipe": tables} if tables else {})}}

    models = {
        model: {
            **document(_paths(config, model)),
            **{name: document(shown) for name, shown in commands.items()},
            **limits(model),
        }
        for model, commands in of_models.items()
    }
    general = {name: document(shown) for name, shown in tables.items()}
    return {"file": str(config.path), "model": models, **general, **limits("")}


def _paths(config: Config, model: str) -> Shown:
    """The paths in a model's table."""
    table = config.models[model]
    paths = {}
    for key in MODEL_KEYS:
        if path := getattr(table, key):
            why = _why(refusal(Reach("path", path), config.path, NOTHING_GRANTED))
            paths[key] = ResolvedValue(path, config.origin("model", model, key), why)
    return paths


def _lines(
    config: Config,
    tables: dict[str, Shown],
    of_models: dict[str, dict[str, Shown]],
    *,
    with_budget: bool,
) -> Iterator[str]:
    """The document as TOML, with the origin of each value as a comment."""
    for model, commands in of_models.items():
        yield from _table(("model", model), _paths(config, model))
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
