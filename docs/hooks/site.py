"""What MkDocs adds to the pages of this folder: README, CONTRIBUTING, changelog, the reference.

The reference is made when the site is built: commands and Python functions from the requests,
tables of edgeconv.toml from docs/schemas/edgeconv.json, values from their classes. So no copy of it
can be out of date.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from mkdocs.structure.files import File

import edgeconv
from edgeconv import types
from edgeconv.cli import cli
from edgeconv.requests.request import leaves_of
from edgeconv.requests.table import TABLES, VERBS, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
COPIED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
EXIT_CODES = (
    "Exit codes: 0 done, 1 a limit was broken, 2 usage or configuration, 3 input refused, "
    "4 a tool failed or a result was not verified, 130 interrupted."
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the reference into the navigation, before the pages about the code."""
    assert config.nav is not None
    commands = [{name: f"reference/{name}.md"} for name in _commands()]
    reference = [
        {"Commands": commands},
        {"edgeconv.toml": "reference/edgeconv-toml.md"},
        {"Python": "reference/python.md"},
        {"Values": "reference/values.md"},
    ]
    config.nav.insert(-1, {"Reference": reference})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    pages = {COPIED[name]: _copied(name) for name in COPIED}
    pages |= {f"reference/{name}.md": _command(name, one) for name, one in _commands().items()}
    pages |= {
        "reference/edgeconv-toml.md": _tables(),
        "reference/python.md": _functions(),
        "reference/values.md": _values(),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:  # noqa: ARG001
    """Take off the words by which tests find a block; a highlighter does not know them."""
    return re.sub(r"^```sh (?:test|install)$", "```sh", markdown, flags=re.M)


def _copied(name: str) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/", "](", text)
    for source, page in COPIED.items():
        text = text.replace(f"]({source})", f"]({page})")
    return text


# Commands


def _commands() -> dict[str, click.Command]:
    context = click.Context(cli)
    commands: dict[str, click.Command] = {}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            inner = click.Context(command)
            commands |= {
                f"{name}-{each}": command.get_command(inner, each)  # type: ignore[dict-item]
                for each in command.list_commands(inner)
            }
        else:
            commands[name] = command
    return commands


def _command(name: str, command: click.Command) -> str:
    shown = name.replace("-", " ", 1) if name.split("-")[0] in ("cache", "config") else name
    context = click.Context(command, info_name=f"edgeconv {shown}")
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"# edgeconv {shown}", f"```text\nedgeconv {shown} {usage}\n```"]
    parts.append(inspect.cleandoc(command.help or "").replace("\b", ""))
    for title, rows in _options(name, command, context).items():
        parts.append(f"## {title}\n\n" + "\n".join(_table(("option", ""), rows)))
    return "\n\n".join([*parts, EXIT_CODES]) + "\n"


def _options(
    name: str, command: click.Command, context: click.Context
) -> dict[str, list[tuple[str, str]]]:
    """The options of a command by group; those without one are last."""
    groups: dict[str, str] = {}
    if name in VERBS:
        leaves = (*leaves_of(VERBS[name].kind), *leaves_of(VERBS[name].printing))
        groups = {f"--{leaf.key}": leaf.option.group for leaf in leaves}
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(context):
        record = param.get_help_record(context) if isinstance(param, click.Option) else None
        if record:
            group = next((groups[each] for each in param.opts if groups.get(each)), "Other options")
            sections.setdefault(group, []).append((_code(record[0]), _cell(record[1])))
    last = sections.pop("Other options", None)
    return {**sections, **({"Other options": last} if last else {})}


# edgeconv.toml


def _tables() -> str:
    """The tables of edgeconv.toml, from its JSON Schema."""
    schema = json.loads((ROOT / "docs/schemas/edgeconv.json").read_text(encoding="utf-8"))
    definitions = schema["definitions"]
    names = [name for name in TABLES if definitions[name]["properties"]]
    parts = [
        "# edgeconv.toml",
        "Every key of every table. [The configuration](../config.md) explains them.",
        "## [model.NAME]",
        "Also the tables `budget` and those of the commands, for this model alone.",
        "\n".join(_table(("key", ""), _keys(definitions["model"]))),
        "## [budget]",
        'A limit is a value, or `{ limit = VALUE, severity = "error" }` or `"warn"`. '
        "`[budget.recipe.NAME]` has the same keys, for one recipe.",
        "\n".join(_table(("limit", ""), _keys(definitions["limits"]))),
    ]
    for name in names:
        rows = [
            (_code(key), *_value(each)) for key, each in definitions[name]["properties"].items()
        ]
        parts += [f"## [{name}]", "\n".join(_table(("key", "value", ""), rows))]
    return "\n\n".join(parts) + "\n"


def _keys(definition: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, each in definition["properties"].items():
        if "$ref" not in each:
            yield _code(key), _cell(each.get("description", ""))


def _value(option: dict[str, Any]) -> tuple[str, str]:
    first = option["anyOf"][0] if "anyOf" in option else option
    kind = " or ".join(map(_code, first["enum"])) if "enum" in first else first.get("type", "")
    several = ", or an array" if "anyOf" in option else ""
    default = f" Default: {_code(json.dumps(option['default']))}." if "default" in option else ""
    return f"{kind}{several}", _cell(option.get("description", "")) + default


# Python


def _functions() -> str:
    parts = [
        "# Python",
        "Each verb is a function with the words of its command, - as _; see "
        "[In Python](../python.md). A text means what it means there, and None is the default. "
        "Errors are `edgeconv.EdgeconvError`, with `message`, `hint` and `exit_code`. "
        "`on_progress` is called with a text for each step.",
    ]
    for name in edgeconv.__all__:
        function = getattr(edgeconv, name)
        parts.append(f"## {name}")
        if name in VERBS:
            parts += _verb(name, function)
        else:
            signature = inspect.signature(function)
            parts += [
                f"```python\nedgeconv.{name}{signature}\n```",
                _text(inspect.getdoc(function)),
            ]
    return "\n\n".join(parts) + "\n"


def _verb(name: str, function: Any) -> Iterator[str]:
    call = f"edgeconv.{name}({', '.join(inspect.signature(function).parameters)})"
    wrapped = textwrap.wrap(call, 80, subsequent_indent="    ", break_on_hyphens=False)
    yield "```python\n" + "\n".join(wrapped) + "\n```"
    yield _text(inspect.getdoc(named(VERBS[name].function)))
    yield _text(inspect.getdoc(VERBS[name].kind))
    rows = [
        (_code(leaf.word), _cell(leaf.option.help or "")) for leaf in leaves_of(VERBS[name].kind)
    ]
    yield "\n".join(_table(("argument", ""), rows))


def _values() -> str:
    """The values that verbs take and give."""
    parts = [
        "# Values",
        "What the functions take and give: frozen, and written as JSON as they are.",
    ]
    for name in sorted(each for each in vars(types) if each[:1].isupper()):
        value = getattr(types, name)
        if isinstance(value, type) and issubclass(value, msgspec.Struct):
            parts += [f"## {name}", _text(inspect.getdoc(value))]
            rows = [
                (_code(each.name), _code(_type(each.type)))
                for each in msgspec.structs.fields(value)
            ]
            if rows:
                parts.append("\n".join(_table(("field", "type"), rows)))
    return "\n\n".join(parts) + "\n"


def _type(kind: Any) -> str:
    text = kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
    return re.sub(r"(?:edgeconv|typing|collections|pathlib)\.(?:\w+\.)*", "", text)


# Markdown


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return _text(text).replace("\n", " ").replace("|", "\\|")


def _text(text: str | None) -> str:
    """Prose of a docstring. Outside of code, underscores, stars and brackets are plain text."""
    parts = re.split(r"(`[^`]*`)", inspect.cleandoc(text or ""))
    return "".join(p if p.startswith("`") else re.sub(r"([*_<>\[])", r"\\\1", p) for p in parts)
