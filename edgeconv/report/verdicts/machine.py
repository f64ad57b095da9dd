"""JSON: the noun `Checked`, and how the formats made of JSON are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from edgeconv.nouns import Checked


def render_json(checked: Checked) -> str:
    """All of it; what is NaN becomes null."""
    return as_json(msgspec.to_builtins(checked))


def as_json(value: Any) -> str:
    """A document of plain values, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(_encodable(value)), indent=1).decode() + "\n"


def _encodable(value: Any) -> Any:
    """The value with every lone surrogate, as in a file's name that is no UTF-8, spelled out."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(each) for each in value]
    return value
