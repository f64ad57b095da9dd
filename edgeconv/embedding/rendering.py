"""Renders templates: jinja2 with the filters of every language, without autoescape."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from edgeconv.embedding.escaping import FILTERS

if TYPE_CHECKING:
    from jinja2 import Environment

_PER_LINE = 16


def render(template: str, **values: Any) -> bytes:
    """The template of edgeconv/embedding/templates with these values, in ASCII."""
    return _environment().get_template(template).render(**values).encode("ascii")


@cache
def _environment() -> Environment:
    """It keeps the templates that it has compiled, which takes longer than to render them."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("edgeconv", "embedding/templates"),
        autoescape=False,  # Nothing here is HTML; each value goes through a language's filter.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(FILTERS)
    environment.filters.update(byte_rows=byte_rows, float_literal=float_literal)
    return environment


def byte_rows(data: bytes) -> str:
    """The bytes as rows of C literals, without a comma at the end."""
    rows = (data[at : at + _PER_LINE] for at in range(0, len(data), _PER_LINE))
    return ",\n".join("    " + ",".join(f"0x{byte:02x}" for byte in row) for row in rows)


def float_literal(value: float) -> str:
    """The float32 nearest to `value` in its shortest exact form, with a point or exponent."""
    import numpy as np

    text = str(np.float32(value))
    return text if any(sign in text for sign in ".en") else text + ".0"
