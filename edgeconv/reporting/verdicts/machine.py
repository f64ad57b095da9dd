"""JSON: the noun `Checked`, and how the formats made of JSON are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.escaping import encodable

if TYPE_CHECKING:
    from edgeconv.types import Checked


def render_json(checked: Checked) -> str:
    """All of it; what is NaN becomes null."""
    return as_json(msgspec.to_builtins(checked))


def as_json(value: Any) -> str:
    """A document of plain values, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(encodable(value)), indent=1).decode() + "\n"
