"""Text from models, tools and data, made fit to be shown: the one place that escapes it.

What is not shown as a character (controls, escapes, directions, halves of surrogate pairs) is
spelled as JSON spells it, so that the same escape is right in a line, in a table and in JSON.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_NOT_SHOWN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
# What CI systems take for a command: GitHub at the start of a line (blanks before it do not
# count); GitHub (`##[`), Azure (`##vso[`) and TeamCity (`##teamcity[`) anywhere. What GitLab,
# Travis and Buildkite obey has control characters in it.
_COMMAND = re.compile(r"^\s*:(?=:)|##\w{0,32}(?=\[)")
_QUOTED = frozenset("'\\")


def plain(text: str) -> str:
    """`text` in one line, with every character that is not shown spelled out."""
    if text.isprintable():
        return text
    return "".join(c if unicodedata.category(c) not in _NOT_SHOWN else _spelled(c) for c in text)


def harmless_line(text: str, before: str = "") -> str:
    """`plain(text)` without what a CI system takes for a command.

    `before`: what is in the same line already, where the line is written in parts.
    """
    shown = plain(text)
    line = before + shown
    if ":" not in line and "#" not in line:
        return shown
    ends = [match.end() for match in _COMMAND.finditer(line) if match.end() >= len(before)]
    for end in reversed(ends):
        line = f"{line[:end]}\\u{ord(line[end]):04x}{line[end + 1 :]}"
    return line[len(before) :]


def encodable(value: Any) -> Any:
    """A plain value with every half of a surrogate pair spelled out: JSON in UTF-8 has none.

    They come from names of files that are not UTF-8.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {encodable(key): encodable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [encodable(each) for each in value]
    return value


def shell_line(words: Iterable[str]) -> str:
    """A command that a shell takes as exactly these words, in characters that are shown."""
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    quoted = shlex.quote(word)
    if quoted.isprintable():
        return quoted
    return f"$'{''.join(map(_in_dollar_quotes, word))}'"


def _in_dollar_quotes(character: str) -> str:
    """The character, or its bytes in octal: names of files are bytes, and not always UTF-8."""
    if character.isprintable() and character not in _QUOTED:
        return character
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", errors))


def _spelled(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
