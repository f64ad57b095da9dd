"""edgeconv.toml, or [tool.edgeconv] of pyproject.toml, read and checked for unknown names."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from edgeconv.requests.config.reach import EDGECONV_TABLE, PYPROJECT
from edgeconv.requests.texts import finite
from edgeconv.system.store.toml_file import Key, TomlFile, read_toml, shown
from edgeconv.types import (
    LIMIT_FIELDS,
    LIMIT_KINDS,
    MAX_SNR_DB,
    QAT,
    AnyLimit,
    Budget,
    LimitKind,
    Limits,
    RecipeName,
    Severity,
    Value,
)
from edgeconv.types.words import listed

_MODEL = "model"
_BUDGET = "budget"
_SLICE_LIMIT = "max-slice-drop"
# The keys of a [model.NAME] that are not tables, with what they are.
MODEL_KEYS = {
    "source": "The trained model: a SavedModel, a .keras or .h5 file, or a float .tflite. A "
    "quantized .tflite is not converted, but measured and checked as it is.",
    "checkpoint": "The stage before `source`, such as the Keras file it was exported from; it is "
    "measured too.",
    "slices": "A text file with the slice of each test sample, one per line.",
}
LONGEST_NAME = 64
NAME = re.compile(rf"\w[\w.+-]{{0,{LONGEST_NAME - 1}}}")
_ALL = "all"


class ModelTable(msgspec.Struct, frozen=True, kw_only=True):
    """One [model.NAME]: the trained model, and the options and limits that apply to it.

    `source`, `checkpoint` and `slices` are paths from the current directory. `tables` has the
    written values of each command: the general ones, overridden by the model's. So has `budget`,
    without the limits of recipes that the model is not converted to.
    """

    name: str
    source: str
    checkpoint: str = ""
    slices: str = ""
    tables: dict[str, dict[str, Any]] = {}
    budget: Budget = Budget()


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration: its models, and for all models the tables of commands and the budget.

    The values in `tables` are as written, with paths relative to the file's folder.
    """

    written: TomlFile
    models: dict[str, ModelTable] = {}
    tables: dict[str, dict[str, Any]] = {}
    budget: Budget = Budget()

    @property
    def path(self) -> Path:
        """The file, as it was named."""
        return self.written.path

    @property
    def folder(self) -> Path:
        """The folder that paths in the file start from."""
        return self.path.parent

    def key(self, command: str, name: str, *, model: str = "") -> Key:
        """The key of the value that applies: in the model's table or in the general one."""
        own = (_MODEL, model, command, name)
        return own if model and self.written.has(*own) else (command, name)

    def limit_line(
        self, limit: str, *, model: str = "", recipe: str = "", runtime: str = ""
    ) -> int:
        """The line of the limit that applies to a recipe of a model, or to all where it is "".

        A runtime's limit comes before a recipe's, this before the limit for all, and in each
        the model's before the general one. Without one, it is the line of the budget.
        """
        names = {"runtime": runtime, "recipe": recipe}
        tables: list[Key] = [(_BUDGET, kind, name) for kind, name in names.items() if name]
        tables.append((_BUDGET,))
        owners: tuple[Key, ...] = ((_MODEL, model), ()) if model else ((),)
        keys = [(*owner, *table) for table in tables for owner in owners]
        written = (key for key in keys if self.written.has(*key, limit))
        around = (key for key in reversed(keys) if self.written.has(*key))
        return self.line(*next(written, next(around, (_MODEL, model))), limit)

    def line(self, *key: str) -> int:
        """The line of a key, or of the nearest table around it."""
        return self.written.line(*key)

    def origin(self, *key: str) -> str:
        """Where a key is written, as "edgeconv.toml:12"."""
        return f"{self.path}:{self.line(*key)}"


def load_config(path: Path, commands: Mapping[str, Collection[str]]) -> Config:
    """Read a configuration; `commands` has the names of the long options of each command.

    Raises `UsageError`, with the line, for anything unknown in it. The values of commands are not
    checked.
    """
    file = read_toml(path, EDGECONV_TABLE if path.name == PYPROJECT else ())
    for name in file.content:
        if name not in (_MODEL, _BUDGET) and name not in commands:
            file.unknown("table", (name,), (_MODEL, _BUDGET, *commands))
    tables = _tables(file, (), commands)
    budget = read_budget(file, _BUDGET)
    models = {name: _model(file, name, commands, tables, budget) for name in file.table(_MODEL)}
    _refuse_idle_limits(file, budget, tables, models)
    return Config(written=file, models=models, tables=tables, budget=budget)


def limited(config: Config, model: str = "") -> Budget:
    """The budget of a model, or the general one. Raises `UsageError` if it sets no limit."""
    budget = config.models[model].budget if model else config.budget
    if budget == Budget():
        raise no_limit(config.written, (_BUDGET,))
    return budget


def _tables(
    file: TomlFile, key: Key, commands: Mapping[str, Collection[str]]
) -> dict[str, dict[str, Any]]:
    """The tables of commands that are in the table `key`."""
    tables = {}
    for name in file.table(*key):
        if name in commands:
            tables[name] = file.table(*key, name)
            for option in tables[name]:
                if option not in commands[name]:
                    what = f"option of `edgeconv {name}`:"
                    file.unknown(what, (*key, name, option), commands[name])
    return tables


def _model(
    file: TomlFile,
    name: str,
    commands: Mapping[str, Collection[str]],
    general: dict[str, dict[str, Any]],
    budget: Budget,
) -> ModelTable:
    key = (_MODEL, name)
    if not NAME.fullmatch(name):
        raise file.error(
            key,
            f"{shown(name)} is not the name of a model",
            f"use letters, digits, _ . + and -, up to {LONGEST_NAME}, a letter or digit first",
        )
    for each in file.table(*key):
        if each not in MODEL_KEYS and each != _BUDGET and each not in commands:
            file.unknown("key", (*key, each), (*MODEL_KEYS, _BUDGET, *commands))
    own = _tables(file, key, commands)
    tables = {
        command: {**general.get(command, {}), **own.get(command, {})}
        for command in {**general, **own}
    }
    model = ModelTable(
        name=name,
        **{each: _path(file, (*key, each)) for each in MODEL_KEYS},
        tables=tables,
        budget=_own_budget(file, key, budget, tables),
    )
    _refuse_limit_without_slices(file, model)
    return model


def _refuse_limit_without_slices(file: TomlFile, model: ModelTable) -> None:
    """Raise `UsageError` for a limit of the worst slice if there are no slices."""
    if model.slices:
        return
    budget = model.budget
    for within, limits in (
        ((), budget.every),
        *((("recipe", name), limits) for name, limits in budget.recipe.items()),
        *((("runtime", name), limits) for name, limits in budget.runtime.items()),
    ):
        if limits.max_slice_drop is None:
            continue
        own = (_MODEL, model.name, _BUDGET, *within, _SLICE_LIMIT)
        raise file.error(
            own if file.has(*own) else (_BUDGET, *within, _SLICE_LIMIT),
            f"{_SLICE_LIMIT}, and model {model.name!r} has no slices",
            f'add slices = "slices.txt" to {file.header(_MODEL, model.name)}',
        )


def _path(file: TomlFile, key: Key) -> str:
    """A path of a model, from the current directory; "" if it is not given."""
    if not file.has(*key):
        if key[-1] == "source":
            header = file.header(*key[:-1])
            raise file.error(key, f"{header} has no source", 'as in source = "models/mnist/1"')
        return ""
    value = file.table(*key[:-1])[key[-1]]
    if not isinstance(value, str) or not value or "\0" in value:
        hint = f'as in {key[-1]} = "PATH"'
        raise file.error(key, f"{key[-1]} must be a path, not {shown(value)}", hint)
    return str(file.path.parent / value)


def _own_budget(
    file: TomlFile, key: Key, general: Budget, tables: dict[str, dict[str, Any]]
) -> Budget:
    own = read_budget(file, *key, _BUDGET)
    recipes = _recipes_of(file, (*key, "convert"), tables)
    if recipes is None:
        return merged(general, own)
    for name in own.recipe:
        if name not in recipes:
            raise _idle(file, (*key, _BUDGET, "recipe", name), f"model {key[-1]} is not", recipes)
    fitting = {name: limits for name, limits in general.recipe.items() if name in recipes}
    return merged(msgspec.structs.replace(general, recipe=fitting), own)


def _refuse_idle_limits(
    file: TomlFile, budget: Budget, tables: dict[str, dict[str, Any]], models: dict[str, ModelTable]
) -> None:
    """Raise `UsageError` for a general limit of a recipe that no model is converted to."""
    every = [
        _recipes_of(file, (_MODEL, name, "convert"), model.tables) for name, model in models.items()
    ] or [_recipes_of(file, ("convert",), tables)]
    known = [recipes for recipes in every if recipes is not None]
    if len(known) < len(every):
        return
    converted = {recipe for recipes in known for recipe in recipes}
    for name in budget.recipe:
        if name not in converted:
            raise _idle(file, (_BUDGET, "recipe", name), "no model is", converted)


def _idle(file: TomlFile, key: Key, what: str, recipes: Collection[str]) -> Exception:
    names = listed(name for name in RECIPES if name in recipes)
    message = f"a limit for {key[-1]}, which {what} converted to"
    hint = f"`to` of [convert] has {names or 'none'}: name it there too, or remove this table"
    return file.error(key, message, hint)


def _recipes_of(
    file: TomlFile, own: Key, tables: dict[str, dict[str, Any]]
) -> frozenset[str] | None:
    """The recipes of `to` in [convert], None without it. Raises `UsageError` for unknown ones."""
    to = tables.get("convert", {}).get("to")
    texts = [to] if isinstance(to, str) else to
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return None
    key = (*own, "to") if file.has(*own, "to") else ("convert", "to")
    names = {part.strip() for text in texts for part in text.split(",") if part.strip()}
    for name in sorted(names):
        if name not in (*RECIPES, _ALL):
            file.unknown("recipe", (*key, name), (*RECIPES, _ALL))
    every = {name for name in RECIPES if name != QAT} if _ALL in names else set()
    return frozenset((names | every) - {_ALL})


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
    number = finite(value)
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
