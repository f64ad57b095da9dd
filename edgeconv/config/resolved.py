"""The configuration as it is understood: every value that holds, and where it is from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.config.file import MODEL_KEYS
from edgeconv.config.reach import NOTHING_GRANTED, refusal
from edgeconv.config.tables import Table, options_of
from edgeconv.config.toml_text import toml_header, toml_value
from edgeconv.reporting.units import plain
from edgeconv.requests.paths import Reach
from edgeconv.requests.table import VERBS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


class Resolved:
    """What holds of these tables, of all that concern the models where none is named.

    Raises `UsageError` for a value that is not understood.
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
    """The commands that the file has tables of, and those that each of its models goes through."""
    named = {*config.tables, *(name for one in config.models.values() for name in one.tables)}
    if config.models:
        named |= {*_OF_A_MODEL}
    return tuple(name for name in VERBS if name in named)


def _values(config: Config, name: str, model: str) -> Shown:
    """What holds of a command's options; one that is not given and has no default is left out."""
    written = Table(config, name, None, model=model).values()
    refused = Table(config, name, NOTHING_GRANTED, model=model).refused()
    found = {}
    for key, leaf in options_of(name).items():
        default = leaf.raw_default
        if key in written:
            value = leaf.joined(written[key])
            origin = config.origin(*config.key(name, key, model=model))
            found[key] = Entry(value, origin, _why(refused.get(key)))
        elif default is not None and default not in ("", ()) and default != math.inf:
            found[key] = Entry(default, _DEFAULT)
    return found


def _why(refused: Refusal | NotAllowed | None) -> str:
    return f"{refused.message}; {refused.hint}" if refused else ""


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
