"""Escapes text from models, tools and data for display.

Invisible characters (controls, escapes, directions, halves of surrogate pairs) become JSON's
escapes, which are right in a line, in a table and in JSON.
"""

import re
import shlex
import unicodedata
from collections.abc import Iterable
from typing import Any

_NOT_SHOWN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
# Commands of CI systems: GitHub's at the start of a line, after blanks; GitHub's `##[`, Azure's
# `##vso[` and TeamCity's `##teamcity[` anywhere. Those of GitLab, Travis and Buildkite have control
# characters.
_COMMAND = re.compile(r"^\s*:(?=:)|##\w{0,32}(?=\[)")
_QUOTED = frozenset("'\\")


def plain(text: str) -> str:
    """`text` in one line, with every invisible character escaped."""
    if text.isprintable():
        return text
    return "".join(c if unicodedata.category(c) not in _NOT_SHOWN else _spelled(c) for c in text)


def harmless_line(text: str, before: str = "") -> str:
    """`plain(text)` with the commands of CI systems escaped; `before` precedes it in the line."""
    shown = plain(text)
    line = before + shown
    if ":" not in line and "#" not in line:
        return shown
    ends = [match.end() for match in _COMMAND.finditer(line) if match.end() >= len(before)]
    for end in reversed(ends):
        line = f"{line[:end]}\\u{ord(line[end]):04x}{line[end + 1 :]}"
    return line[len(before) :]


def encodable(value: Any) -> Any:
    """A plain value for JSON, with the lone surrogates of non-UTF-8 file names escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {encodable(key): encodable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [encodable(each) for each in value]
    return value


def shell_line(words: Iterable[str]) -> str:
    """A command that a shell reads as exactly these words, in visible characters."""
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    quoted = shlex.quote(word)
    if quoted.isprintable():
        return quoted
    return f"$'{''.join(map(_in_dollar_quotes, word))}'"


def _in_dollar_quotes(character: str) -> str:
    """The character, or its bytes in octal, as names of files are not always UTF-8."""
    if character.isprintable() and character not in _QUOTED:
        return character
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", errors))


def _spelled(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
