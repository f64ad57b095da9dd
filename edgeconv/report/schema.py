"""The JSON Schema of report.json."""

from __future__ import annotations

import msgspec

from edgeconv.nouns import Report

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> bytes:
    """What docs/schemas/report.json holds: made from the nouns, equal bytes for equal nouns."""
    schema = {"$schema": _DIALECT, "title": "edgeconv report", **msgspec.json.schema(Report)}
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2) + b"\n"
