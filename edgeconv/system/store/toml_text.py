"""TOML as text: values and keys on one line, and which line of a document each key is on.

TOML readers do not keep lines, and writers do not escape invisible characters.
Grammar: TOML 1.0.0, https://toml.io/en/v1.0.0.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from edgeconv.types.words import shortened

Key = tuple[str, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TEXT_OR_COMMENT = re.compile(
    r"""(?P<comment>\#[^\n]*) | "{3}(?:\\.|[^\\])*?"{3,5} | '{3}.*?'{3,5}
      | "(?:\\.|[^"\\\n])*" | '[^'\n]*'""",
    re.VERBOSE | re.DOTALL,
)
# No key of a configuration is deeper or longer; a TOML reader takes the square of its parts.
_DEEPEST = 16
_LONGEST_KEY = 1 << 10
LONGEST_SHOWN = 60


def toml_key(name: str) -> str:
    """A key, in quotes where it needs them."""
    return name if _BARE.fullmatch(name) else _quoted(name)


def toml_header(key: Key) -> str:
    """The line that a table begins with, such as [model.mnist]."""
    return f"[{'.'.join(map(toml_key, key))}]"


def toml_value(value: object) -> str:
    """A text, number, truth value, or a list or table of these."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        pairs = ", ".join(f"{toml_key(key)} = {toml_value(each)}" for key, each in value.items())
        return f"{{ {pairs} }}"
    return str(value)


@lru_cache(maxsize=4)
def key_lines(text: str) -> dict[Key, int]:
    """The line, from 1, of the first mention of each key and table of a valid TOML document.

    A key is the path from the top, as ("budget", "recipe", "int8"). Those inside a value are on
    the line of the key that has it, and so are those that are deeper than any configuration's.
    """
    text = text.replace("\r\n", "\n")
    lines: dict[Key, int] = {}
    table: Key = ()
    line, at, depth = 1, 0, 0
    # Without texts and comments, each bracket and = is part of the syntax.
    for statement in _TEXT_OR_COMMENT.sub(_blank, text).split("\n"):
        if not depth and statement.strip():
            is_header = statement.lstrip().startswith("[")
            end = statement.rindex("]") if is_header else statement.index("=")
            written = text[at : at + end].strip("[] \t")
            key = (*(() if is_header else table), *_parts(written))[:_DEEPEST]
            for length in range(1, len(key) + 1):
                lines.setdefault(key[:length], line)
            table = key if is_header else table
        depth += sum(map(statement.count, "[{")) - sum(map(statement.count, "]}"))
        line += 1 + text.count("\n", at, at + len(statement))
        at += len(statement) + 1
    return lines


def _blank(match: re.Match[str]) -> str:
    """Filler of the same length: spaces for a comment, underscores for a string."""
    return (" " if match["comment"] else "_") * len(match[0])


def _parts(key: str) -> Key:
    """The names in a dotted key as it is written."""
    if len(key) > _LONGEST_KEY:
        return (key,)
    names, content = [], msgspec.toml.decode(f"{key} = 0")
    while isinstance(content, dict):
        (name,) = content
        names.append(name)
        content = content[name]
    return tuple(names)


def shown(value: object) -> str:
    """A key or value of a file for a message: on one line, escaped, and not too long."""
    return shortened(repr(value), LONGEST_SHOWN)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{"".join(c if c.isprintable() else f"{chr(92)}U{ord(c):08X}" for c in escaped)}"'
