"""The configuration as `edgeconv config` shows it: the resolved values, and the JSON Schema."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from edgeconv.reporting.units import plain
from edgeconv.requests.config.file import MODEL_KEYS, NAME, RECIPES, SEVERITIES, VERSION, Config
from edgeconv.requests.config.reach import NOTHING_GRANTED, NotAllowed, Refusal, refusal
from edgeconv.requests.config.tables import Table, options_of
from edgeconv.requests.request import Leaf
from edgeconv.requests.table import TABLES
from edgeconv.requests.texts import Reach
from edgeconv.system.store.toml_file import Key, toml_header, toml_value
from edgeconv.types import LIMIT_FIELDS, LIMIT_KINDS, MAX_SNR_DB, LimitKind, Limits

# Shown also without a table in the file: every model goes through them.
_OF_A_MODEL = ("convert", "bench")
_DEFAULT = "default"
_MODEL, _BUDGET = "model", "budget"


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
        self._file = str(config.path)
        self._tables = dict(_tables(config, names))

    def document(self) -> dict[str, Any]:
        """All of it, for JSON."""
        document: dict[str, Any] = {"file": self._file, _MODEL: {}}
        for key, shown in self._tables.items():
            table = document
            for part in key:
                table = table.setdefault(part, {})
            for name, each in shown.items():
                refused = {"refused": each.refused} if each.refused else {}
                table[name] = {"value": each.value, "from": each.origin, **refused}
        return document

    def lines(self) -> Iterator[str]:
        """All of it as TOML, with the origin of each value as a comment."""
        for key, shown in self._tables.items():
            is_command = key[-1] in TABLES and len(key) == len((_MODEL, "NAME", "VERB"))
            general = self._tables[key[-1:]] if is_command else {}
            own = {name: each for name, each in shown.items() if each != general.get(name)}
            if own or not (is_command or _BUDGET in key):
                yield from _lines(key, own)


def _tables(config: Config, names: Sequence[str]) -> Iterator[tuple[Key, Shown]]:
    """The tables in their order: the models', then the general ones."""
    commands = names or _commands(config)
    for model in config.models:
        yield (_MODEL, model), _paths(config, model)
        for name in commands:
            yield (_MODEL, model, name), _values(config, name, model)
        if not names:
            yield from _budget(config, model)
    for name in commands:
        yield (name,), _values(config, name, "")
    if not names:
        yield from _budget(config, "")


def _commands(config: Config) -> tuple[str, ...]:
    """The commands with tables in the file, and those that each of its models goes through."""
    named = {*config.tables, *(name for model in config.models.values() for name in model.tables)}
    if config.models:
        named |= {*_OF_A_MODEL}
    return tuple(name for name in TABLES if name in named)


def _paths(config: Config, model: str) -> Shown:
    """The paths in a model's table."""
    table = config.models[model]
    paths = {}
    for key in MODEL_KEYS:
        if path := getattr(table, key):
            why = _why(refusal(Reach("path", path), config.path, NOTHING_GRANTED))
            paths[key] = ResolvedValue(path, config.origin(_MODEL, model, key), why)
    return paths


def _values(config: Config, name: str, model: str) -> Shown:
    """The values of a command's options, without those that have neither a value nor a default."""
    table = Table(config, name, None, model=model)
    written = table.values()
    refused = Table(config, name, NOTHING_GRANTED, model=model).refused()
    values = {}
    for key, leaf in options_of(name).items():
        default = leaf.raw_default
        if key in written:
            value = leaf.text_of(written[key])
            origin = config.origin(*table.origin(key))
            values[key] = ResolvedValue(value, origin, _why(refused.get(key)))
        elif default is not None and default not in ("", ()) and default != math.inf:
            values[key] = ResolvedValue(default, _DEFAULT)
    return values


def _why(refused: Refusal | NotAllowed | None) -> str:
    return f"{refused.message}; {refused.hint}" if refused else ""


def _budget(config: Config, model: str) -> Iterator[tuple[Key, Shown]]:
    """The limits of every artifact, of recipes and of runtimes, with their severities."""
    budget = config.models[model].budget if model else config.budget
    tables: dict[Key, Limits] = {
        (_BUDGET,): budget.every,
        **{(_BUDGET, "recipe", name): limits for name, limits in budget.recipe.items()},
        **{(_BUDGET, "runtime", name): limits for name, limits in budget.runtime.items()},
    }
    owner = (_MODEL, model) if model else ()
    for table, limits in tables.items():
        shown = {}
        for name, limit in limits.by_name().items():
            own = (*owner, *table, name)
            origin = config.origin(*(own if config.written.has(*own) else (*table, name)))
            value = {"limit": limit.limit, "severity": limit.severity}
            shown[name] = ResolvedValue(value, origin)
        yield (*owner, *table), shown


def _lines(key: Key, shown: Shown) -> Iterator[str]:
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


Schema = dict[str, Any]

# Editors understand this one.
_DIALECT = "http://json-schema.org/draft-07/schema#"


def config_schema(lines: Mapping[str, str]) -> bytes:
    """The content of docs/schemas/edgeconv.json: equal bytes for equal options and limits.

    `lines` describes the command of each table in a line.
    """
    commands = {name: {"$ref": f"#/definitions/{name}"} for name in TABLES}
    definitions = {name: _command(name, lines[name]) for name in TABLES}
    schema = {
        "$schema": _DIALECT,
        "title": "edgeconv configuration",
        "description": "edgeconv.toml, or [tool.edgeconv] of pyproject.toml.",
        **_table(
            {
                "model": {
                    "description": "The models, by name.",
                    "type": "object",
                    "propertyNames": {"pattern": f"^{NAME.pattern}$"},
                    "additionalProperties": {"$ref": "#/definitions/model"},
                },
                "budget": {"$ref": "#/definitions/budget"},
                **commands,
            }
        ),
        "definitions": {
            **definitions,
            "model": _model(commands),
            "budget": _budget_schema(),
            "limits": _table(_limits()),
        },
    }
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2) + b"\n"


def _table(properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _model(commands: Schema) -> Schema:
    keys: Schema = {
        name: {"type": "string", "minLength": 1, "description": text}
        for name, text in MODEL_KEYS.items()
    }
    properties = {**keys, "budget": {"$ref": "#/definitions/budget"}, **commands}
    return {**_table(properties), "required": ["source"]}


def _budget_schema() -> Schema:
    recipes = {name: {"$ref": "#/definitions/limits"} for name in RECIPES}
    recipe = {
        **_table(recipes),
        "description": "Limits for one recipe, instead of the general ones.",
    }
    runtime = {
        "type": "object",
        "additionalProperties": {"$ref": "#/definitions/limits"},
        "description": "Limits in one runtime, as [bench] names it, instead of the others.",
    }
    return {
        **_table({**_limits(), "recipe": recipe, "runtime": runtime}),
        "description": "Limits for every artifact; all are inclusive.",
    }


def _limits() -> Schema:
    return {name: _limit(LIMIT_KINDS[name]) for name in LIMIT_FIELDS}


def _limit(kind: LimitKind) -> Schema:
    bare = _bare(kind)
    with_severity = {
        **_table({"limit": bare, "severity": {"enum": list(SEVERITIES)}}),
        "required": ["limit"],
    }
    return {"description": kind.words, "anyOf": [bare, with_severity]}


def _bare(kind: LimitKind) -> Schema:
    if kind.unit == "release":
        return {"type": "string", "pattern": f"^{VERSION}$"}
    if kind.unit == "operators":
        return {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
    if kind.unit == "db":
        return {"type": "number", "maximum": MAX_SNR_DB}
    least = {"exclusiveMinimum": 0} if kind.is_above_zero else {"minimum": 0}
    return {"type": "number", **least, **({"maximum": 1} if kind.is_fraction else {})}


def _command(name: str, line: str) -> Schema:
    properties = {key: _option(leaf) for key, leaf in options_of(name).items()}
    return {**_table(properties), "description": f"edgeconv {name}: {line}"}


def _option(leaf: Leaf) -> Schema:
    schema = item = _item(leaf)
    if leaf.several or leaf.text.is_list:
        schema = {"anyOf": [item, {"type": "array", "items": item}]}
    description = " ".join(text for text in (leaf.option.help, leaf.text.form) if text)
    default = leaf.raw_default
    return {
        **schema,
        **({"description": description} if description else {}),
        **({"default": default} if isinstance(default, bool | int | float | str) else {}),
    }


def _item(leaf: Leaf) -> Schema:
    if leaf.takes == "choice":
        return {"enum": list(leaf.choices)}
    return msgspec.json.schema(leaf.typed)
