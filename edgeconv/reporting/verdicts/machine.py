"""JSON: of `Checked` and of other values, and the JSON Schemas of what edgeconv writes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.processes.escaping import encodable
from edgeconv.types import Report

if TYPE_CHECKING:
    from edgeconv.types import Check, Checked, Finding


_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render_json(checked: Checked) -> str:
    """The checks as one JSON document; NaN becomes null."""
    return as_json(msgspec.to_builtins(checked))


def as_json(value: Any) -> str:
    """A JSON document of plain values, ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(encodable(value)), indent=1).decode() + "\n"


def fingerprint(check: Check, finding: Finding) -> str:
    """A hash of what is checked, not of the result: the same in the next check."""
    parts = (check.name, finding.model, finding.limit, finding.reference, finding.subject)
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()


def report_schema() -> bytes:
    """The content of docs/schemas/report.json."""
    return schema_of(Report, "edgeconv report")


def schema_of(noun: type[msgspec.Struct], title: str) -> bytes:
    """The JSON Schema of a type; equal bytes for equal types."""
    schema = {"$schema": _DIALECT, "title": title, **msgspec.json.schema(noun)}
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2) + b"\n"
