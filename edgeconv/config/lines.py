"""Which line of a TOML document each of its keys is on; TOML readers do not keep that.

Grammar: TOML 1.0.0, https://toml.io/en/v1.0.0.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Key = tuple[str, ...]

_TOKEN = re.compile(
    r"""
    (?P<text>"{3}(?:\\.|[^\\])*?"{3,5} | '{3}.*?'{3,5}
      | "(?:\\.|[^"\\\n])*" | '[^'\n]*')
    | (?P<newline>\n)
    | (?P<nothing>[ \t\r]+ | \#[^\n]*)
    | (?P<mark>[\[\]{}=,.])
    | (?P<bare>[^\s\[\]{}=,.\#"']+)
    """,
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


@lru_cache(maxsize=4)
def key_lines(text: str) -> dict[Key, int]:
    """The line, from 1, of the first mention of each key and table of a valid TOML document.

    A key is the path from the top, as ("budget", "recipe", "int8"). Keys inside an array are
    not looked at.
    """
    return _Scan(text).lines()


class _Scan:
    """A reader that goes through the tokens once. The document must have been found valid."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._found: dict[Key, int] = {}

    def lines(self) -> dict[Key, int]:
        """All keys with their lines."""
        table: Key = ()
        while (token := self._next()).kind != "end":
            if token.text == "[" and token.kind == "mark":
                table = self._header(token.line)
            elif token.kind != "newline":
                self._at -= 1
                self._pair(table)
        return self._found

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def _header(self, line: int) -> Key:
        """The table of a header, whose first bracket was read."""
        if self._tokens[self._at].text == "[":
            self._at += 1
        key = self._key((), line)
        while self._tokens[self._at].kind not in ("newline", "end"):
            self._at += 1
        return key

    def _pair(self, table: Key) -> None:
        self._value(self._key(table, self._tokens[self._at].line))

    def _key(self, before: Key, line: int) -> Key:
        """The key up to the = or ] behind it, and all tables that it names on the way."""
        key = before
        while (token := self._next()).kind != "end":
            if token.kind == "mark" and token.text != ".":
                break
            if token.kind in ("text", "bare"):
                key = (*key, _plain(token))
                self._found.setdefault(key, line)
        return key

    def _value(self, key: Key) -> None:
        """Go past one value; in an inline table there are further keys."""
        token = self._next()
        if token.kind == "mark" and token.text == "{":
            self._inline(key)
        elif token.kind == "mark" and token.text == "[":
            self._array()
        else:
            self._past_scalar()

    def _inline(self, key: Key) -> None:
        while (token := self._next()).kind != "end" and token.text != "}":
            if token.kind in ("text", "bare"):
                self._at -= 1
                self._pair(key)

    def _array(self) -> None:
        depth = 1
        while depth and (token := self._next()).kind != "end":
            if token.kind == "mark":
                depth += (token.text in "[{") - (token.text in "]}")

    def _past_scalar(self) -> None:
        """Up to what ends a value; a number with a point or a date with a space has several."""
        while (token := self._tokens[self._at]).kind not in ("newline", "end"):
            if token.kind == "mark" and token.text in ",]}":
                return
            self._at += 1


def _tokens(text: str) -> list[_Token]:
    found = []
    line = 1
    for match in _TOKEN.finditer(text.replace("\r\n", "\n")):
        kind = match.lastgroup or ""
        if kind != "nothing":
            found.append(_Token(kind, match[0], line))
        line += match[0].count("\n")
    return [*found, _Token("end", "", line)]


def _plain(token: _Token) -> str:
    if token.kind == "bare":
        return token.text
    (key,) = tomllib.loads(f"{token.text} = 0")
    return str(key)
