"""The JSON Schemas of what edgeconv writes, made from the nouns."""

from __future__ import annotations

import msgspec

from edgeconv.types import Report

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> bytes:
    """What docs/schemas/report.json holds: made from the nouns, equal bytes for equal nouns."""
    return schema_of(Report, "edgeconv report")


def schema_of(noun: type[msgspec.Struct], title: str) -> bytes:
    """The schema of a noun, as a document."""
    schema = {"$schema": _DIALECT, "title": title, **msgspec.json.schema(noun)}
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2) + b"\n"
