"""The [budget] of a configuration to a `Budget`.

`[budget]` has the limits for every artifact, `[budget.recipe.NAME]` further ones for one recipe,
and `[budget.runtime.NAME]` for one runtime, which replace the general limit of the same name. A
limit is its value, or a table `{ limit = VALUE, severity = "error" | "warn" }`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from edgeconv.system.store.toml_file import TomlFile
from edgeconv.system.store.toml_text import shown
from edgeconv.types import (
    LIMIT_FIELDS,
    LIMIT_KINDS,
    MAX_SNR_DB,
    Budget,
    Limits,
    RecipeName,
    Severity,
)

if TYPE_CHECKING:
    from edgeconv.system.store.toml_text import Key
    from edgeconv.types import AnyLimit, LimitKind, Value

RECIPES: tuple[str, ...] = get_args(RecipeName)
SEVERITIES: tuple[str, ...] = get_args(Severity)
VERSION = r"\d+\.\d+(\.\d+)?"
# Within a budget.
_TABLES = ("recipe", "runtime")
_EXAMPLE = "for example max-accuracy-drop = 0.01"
_WITH_SEVERITY = '{ limit = 1.2, severity = "warn" }'


def read_budget(file: TomlFile, *key: str) -> Budget:
    """The budget of a table, empty if the table is not there.

    Raises `UsageError`, with the line, for anything unknown in it, and for a table without a limit:
    to ignore a limit would open the gate.
    """
    table = file.table(*key)
    recipes, runtimes = file.table(*key, "recipe"), file.table(*key, "runtime")
    for name in _TABLES:
        table.pop(name, None)
    for name in recipes:
        if name not in RECIPES:
            file.unknown("recipe", (*key, "recipe", name), RECIPES)
    budget = Budget(
        every=_limits(file, key, table, _TABLES),
        recipe={name: _limits_of_one(file, (*key, "recipe", name)) for name in recipes},
        runtime={name: _limits_of_one(file, (*key, "runtime", name)) for name in runtimes},
    )
    if budget == Budget() and file.has(*key):
        raise no_limit(file, key)
    return budget


def budget_of(limits: Mapping[str, Any]) -> Budget:
    """The budget that Python gives as a table: `max_accuracy_drop`, or the name in [budget].

    Raises `UsageError` as `read_budget`.
    """
    table = _named(limits)
    for name in _TABLES:
        if isinstance(own := table.get(name), Mapping):
            table[name] = {each: _named(of) for each, of in own.items()}
    return read_budget(TomlFile(Path("budget"), "", {"budget": table}), "budget")


def _named(limits: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name).replace("_", "-"): limit for name, limit in limits.items()}


def no_limit(file: TomlFile, key: Key) -> Exception:
    """The error for a budget that sets no limit."""
    return file.error(key, f"{file.header(*key)} sets no limit", f"add one: {_EXAMPLE}")


def merged(general: Budget, own: Budget) -> Budget:
    """`general`, overridden by the limits of `own`, table by table."""
    return Budget(
        every=_over(general.every, own.every),
        recipe=_each_over(general.recipe, own.recipe),
        runtime=_each_over(general.runtime, own.runtime),
    )


def _each_over(general: Mapping[str, Limits], own: Mapping[str, Limits]) -> dict[str, Limits]:
    return {
        name: _over(general.get(name, Limits()), own.get(name, Limits()))
        for name in {**general, **own}
    }


def _over(general: Limits, own: Limits) -> Limits:
    values = {
        name: value for name, value in msgspec.structs.asdict(own).items() if value is not None
    }
    return msgspec.structs.replace(general, **values)


def _limits_of_one(file: TomlFile, key: Key) -> Limits:
    limits = _limits(file, key, file.table(*key), ())
    if limits == Limits():
        raise no_limit(file, key)
    return limits


def _limits(file: TomlFile, key: Key, table: dict[str, Any], others: Key) -> Limits:
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in LIMIT_FIELDS:
            file.unknown("limit", (*key, name), [*LIMIT_FIELDS, *others])
        values[LIMIT_FIELDS[name]] = _limit(file, (*key, name), value)
    return Limits(**values)


def _limit(file: TomlFile, key: Key, value: object) -> Value | AnyLimit:
    if not isinstance(value, dict):
        return _bare(file, key, value)
    for name in value:
        if name not in ("limit", "severity"):
            file.unknown("key", (*key, name), ("limit", "severity"))
    if "limit" not in value:
        raise file.error(key, f"{key[-1]} sets no limit", f"as in {key[-1]} = {_WITH_SEVERITY}")
    severity = value.get("severity", "error")
    if severity not in SEVERITIES:
        where = (*key, "severity")
        raise file.error(where, f"severity must be error or warn, not {shown(severity)}", "")
    return LIMIT_KINDS[key[-1]].limit(_bare(file, key, value["limit"]), severity)


def _bare(file: TomlFile, key: Key, value: object) -> Value:
    kind = LIMIT_KINDS[key[-1]]
    if kind.unit == "release":
        return _version(file, key, value)
    if kind.unit == "operators":
        return _operators(file, key, value)
    return _number(file, key, value, kind)


def _number(file: TomlFile, key: Key, value: object, kind: LimitKind) -> float:
    name = key[-1]
    is_signed = kind.unit == "db"
    # bool is an int to Python, and never a limit.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise file.error(key, f"{name} must be a number, not {shown(value)}", _EXAMPLE)
    number = _finite(value)
    if number is None or (number < 0 and not is_signed):
        what = "finite" if is_signed else "finite and not negative"
        raise file.error(key, f"{name} must be {what}, not {shown(value)}", _EXAMPLE)
    if kind.is_fraction and number > 1:
        raise file.error(key, f"{name} is a fraction of 1, not {shown(value)}", "1% is 0.01")
    if is_signed and number > MAX_SNR_DB:
        message = f"{name} is {shown(value)}, but equal outputs have only {MAX_SNR_DB:g}"
        raise file.error(key, message, f"as in {name} = 20")
    if kind.is_above_zero and number == 0:
        raise file.error(key, f"{name} is 0, which no model can keep", "give a number above 0")
    return number


def _finite(value: float) -> float | None:
    """A finite float; None for others, and for an integer that is too large."""
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _version(file: TomlFile, key: Key, value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(VERSION, value, re.ASCII):
        raise file.error(
            key, f"{key[-1]} must be a TFLite release, not {shown(value)}", 'as in "2.14.0"'
        )
    return value


def _operators(file: TomlFile, key: Key, value: object) -> tuple[str, ...]:
    is_list = isinstance(value, list) and all(isinstance(name, str) and name for name in value)
    if not is_list or not value:
        hint = 'as in ["CONV_2D", "FULLY_CONNECTED"]'
        raise file.error(
            key, f"{key[-1]} must be a list of operators' names, not {shown(value)}", hint
        )
    assert isinstance(value, list)
    return tuple(dict.fromkeys(value))
