"""The JSON Schema of edgeconv.toml, made from the commands' options and the limits."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from edgeconv.cli import COMMANDS, command_named
from edgeconv.cli.config_values import form_of, options_of
from edgeconv.cli.configured import CONFIGURABLE
from edgeconv.cli.values import text_of
from edgeconv.config.file import MODEL_KEYS, NAME
from edgeconv.config.limits import (
    ABOVE_ZERO,
    FRACTIONS,
    LIMITS,
    OPERATORS_LIMIT,
    RECIPES,
    RUNTIME_LIMIT,
    SEVERITIES,
    SIGNED,
    VERSION,
)
from edgeconv.reporting.limits import LIMIT_WORDS
from edgeconv.types import MAX_SNR_DB

Schema = dict[str, Any]

# Editors understand this one.
_DIALECT = "http://json-schema.org/draft-07/schema#"


def config_schema() -> bytes:
    """What docs/schemas/edgeconv.json holds: equal bytes for equal options and limits."""
    commands = {name: {"$ref": f"#/definitions/{name}"} for name in CONFIGURABLE}
    definitions = {name: _command(name) for name in CONFIGURABLE}
    schema = {
        "$schema": _DIALECT,
        "title": "edgeconv configuration",
        "description": "edgeconv.toml, or [tool.edgeconv] of pyproject.toml.",
        **_table(
            {
                "model": {
                    "description": "The models, by the names that they are called.",
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
    recipe = {**_table(recipes), "description": "Limits for one recipe, in place of the general."}
    return {
        **_table({**_limits(), "recipe": recipe}),
        "description": "Limits for every artifact; all are inclusive.",
    }


def _limits() -> Schema:
    return {name: _limit(name) for name in LIMITS}


def _limit(name: str) -> Schema:
    bare = _bare(name)
    with_severity = {
        **_table({"limit": bare, "severity": {"enum": list(SEVERITIES)}}),
        "required": ["limit"],
    }
    return {"description": LIMIT_WORDS[name], "anyOf": [bare, with_severity]}


def _bare(name: str) -> Schema:
    if name == RUNTIME_LIMIT:
        return {"type": "string", "pattern": f"^{VERSION}$"}
    if name == OPERATORS_LIMIT:
        return {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
    if name in SIGNED:
        return {"type": "number", "maximum": MAX_SNR_DB}
    least = {"exclusiveMinimum": 0} if name in ABOVE_ZERO else {"minimum": 0}
    return {"type": "number", **least, **({"maximum": 1} if name in FRACTIONS else {})}


def _command(name: str) -> Schema:
    command = command_named(name)
    defaults = command.make_context(name, [], resilient_parsing=True).params
    properties = {
        key: _option(option, defaults.get(option.name or ""))
        for key, option in options_of(command).items()
    }
    return {**_table(properties), "description": f"edgeconv {name}: {COMMANDS[name]}"}


def _option(option: click.Option, default: object) -> Schema:
    kind = text_of(option.type)
    one = _one(option)
    schema = one
    if option.multiple or kind.is_list:
        schema = {"anyOf": [one, {"type": "array", "items": one}]}
    texts = (option.help or "", kind.form)
    description = " ".join(text for text in texts if text)
    return {
        **schema,
        **({"description": description} if description else {}),
        **({"default": default} if isinstance(default, bool | int | float | str) else {}),
    }


def _one(option: click.Option) -> Schema:
    if isinstance(option.type, click.Choice):
        return {"enum": list(option.type.choices)}
    wanted, _ = form_of(option)
    words = {"true or false": "boolean", "a whole number": "integer", "a number": "number"}
    schema: Schema = {"type": words.get(wanted, "string")}
    if isinstance(option.type, click.IntRange | click.FloatRange):
        schema |= _range(option.type)
    return schema


def _range(kind: click.IntRange | click.FloatRange) -> Schema:
    low = "exclusiveMinimum" if kind.min_open else "minimum"
    high = "exclusiveMaximum" if kind.max_open else "maximum"
    return {name: end for name, end in ((low, kind.min), (high, kind.max)) if end is not None}
