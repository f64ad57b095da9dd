"""The JSON Schema of edgeconv.toml, made from the requests' fields and the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.requests.config.file import MODEL_KEYS, NAME
from edgeconv.requests.config.limits import RECIPES, SEVERITIES, VERSION
from edgeconv.requests.config.tables import options_of
from edgeconv.requests.table import TABLES
from edgeconv.types import LIMIT_FIELDS, LIMIT_KINDS, MAX_SNR_DB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.requests.option import Leaf
    from edgeconv.types import LimitKind

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
            "budget": _budget(),
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


def _budget() -> Schema:
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
