"""A TOML file: its content, and the lines that errors point to; values and keys as TOML.

TOML readers do not keep lines, and writers do not escape invisible characters.
Grammar: TOML 1.0.0, https://toml.io/en/v1.0.0.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from edgeconv.system.store.files import refuse_pointer
from edgeconv.types.errors import UsageError
from edgeconv.types.words import listed, shortened

MOST_BYTES = 1 << 18
# A TOML reader takes the square of the number of parts of a key.
LONGEST_LINE_BYTES = 1 << 13

# As tomllib says it.
_LINE = re.compile(r"at line (\d+)")
_AT_THE_END = "at end of document"
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


class TomlFile(msgspec.Struct, frozen=True):
    """A file, its text and its tables; `within` is edgeconv's table in it."""

    path: Path
    text: str
    content: dict[str, Any]
    within: Key = ()

    def line(self, *key: str) -> int:
        """The line of a key, or of the nearest table around it that is in the file; else 1."""
        lines = key_lines(self.text)
        whole = (*self.within, *key)
        for length in range(len(whole), 0, -1):
            if line := lines.get(whole[:length]):
                return line
        return 1

    def has(self, *key: str) -> bool:
        """Whether there is such a key."""
        value: Any = self.content
        for name in key:
            if not isinstance(value, dict) or name not in value:
                return False
            value = value[name]
        return True

    def header(self, *key: str) -> str:
        """The table as it is written in this file, for example "[tool.edgeconv.budget]"."""
        return toml_header(tuple(shortened(name, LONGEST_SHOWN) for name in (*self.within, *key)))

    def table(self, *key: str) -> dict[str, Any]:
        """A copy of a table, empty if it is not there. Raises `UsageError` for a value."""
        table: Any = self.content
        for name in key:
            table = table.get(name, {})
        if not isinstance(table, dict):
            hint = f"write {self.header(*key)}, and its keys below"
            raise self.error(key, f"{shown(key[-1])} must be a table", hint)
        return dict(table)

    def error(self, key: Key, message: str, hint: str) -> UsageError:
        """The error that points to a key."""
        line = self.line(*key)
        return UsageError(
            f"{self.path}, line {line}: {message}", hint=hint, location=f"{self.path}:{line}"
        )

    def unknown(self, kind: str, key: Key, known: Iterable[str]) -> NoReturn:
        """Refuse a key, with the closest of `known` as a suggestion. Raises `UsageError`."""
        names = list(known)
        close = get_close_matches(key[-1][:LONGEST_SHOWN], names, n=1)
        suggestion = f"did you mean {close[0]!r}? " if close else ""
        hint = f"{suggestion}known: {listed(names)}"
        raise self.error(key, f"unknown {kind} {shown(key[-1])}", hint)


def read_toml(
    path: Path, within: Key = (), *, hint: str = "write one with `edgeconv init MODEL`"
) -> TomlFile:
    """Read a file; `hint` says how to come by one.

    Raises `UsageError`, with line and column where it is not valid TOML.
    """
    text = _text(path, hint)
    content = _parsed(path, text)
    for name in within:
        content = content.get(name, {})
        if not isinstance(content, dict):
            raise UsageError(f"{path}: [{'.'.join(within)}] must be a table")
    return TomlFile(path, text, content, within)


def _text(path: Path, hint: str) -> str:
    refuse_pointer(path)
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(
            f"the configuration {path} does not exist", hint=f"check the path, or {hint}"
        ) from None
    except OSError as error:
        raise UsageError(f"the configuration {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{shown(str(path))} is not a path: {error}") from error
    if len(content) > MOST_BYTES:
        raise UsageError(
            f"{path} has more than {MOST_BYTES // 1024} KiB, so it is not a configuration",
            hint="check the path",
        )
    lines = content.splitlines()
    if too_long := [n for n, line in enumerate(lines, 1) if len(line) > LONGEST_LINE_BYTES]:
        if b"\0" in content:
            raise UsageError(f"{path} is not a TOML file, but a binary one", hint="check the path")
        limit = f"{LONGEST_LINE_BYTES // 1024} KiB"
        raise UsageError(
            f"{path}, line {too_long[0]}: more than {limit}", hint="write it on several lines"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: not UTF-8 text") from error


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return msgspec.toml.decode(text, type=dict[str, Any])
    except RecursionError as error:
        raise UsageError(f"{path} nests tables or arrays too deeply") from error
    except ValueError as error:
        # A number with too many digits is a `ValueError` only.
        reason = _one_line(error).replace(_AT_THE_END, _end_of(text))
        line = _LINE.search(reason)
        raise UsageError(
            f"{path} is not valid TOML: {reason}",
            hint="see https://toml.io",
            location=f"{path}:{line[1] if line else 1}",
        ) from error


def _end_of(text: str) -> str:
    """Where a text ends, as tomllib writes all other positions."""
    lines = text.split("\n")
    return f"at line {len(lines)}, column {len(lines[-1]) + 1}, the end of the document"


def _one_line(error: ValueError) -> str:
    text = str(error)
    return text if text.isprintable() else repr(text)
