"""Hashes of values, and checksums in documents.

A checksum is the sha256 of its document with 64 zeros in its place. It detects damage and mistakes,
not forgery: whoever changes a document can compute it again.
"""

import hashlib
import re
from typing import Any, Literal, TypeVar

import msgspec

_SHA256_CHARACTERS = 64


def is_sha256(text: object) -> bool:
    """Whether a text is a sha256 as edgeconv writes it: 64 digits, lower case."""
    return (
        isinstance(text, str)
        and len(text) == _SHA256_CHARACTERS
        and set(text) <= set("0123456789abcdef")
    )


def hash_of(*values: Any) -> str:
    """The sha256 of JSON-able values and nouns: equal values, equal hash."""
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()


ChecksumState = Literal["whole", "changed", "none"]
Document = TypeVar("Document", bound=msgspec.Struct)

_BLANK = "0" * 64
_JSON = re.compile(rb'"checksum":\s*"([0-9a-f]{64})"\s*\}\s*\Z')
_HTML = re.compile(rb"<!-- edgeconv checksum ([0-9a-f]{64}) -->\s*\Z")
# What is left of the checksum of a page where one byte of it changed.
_HTML_LIKE = re.compile(rb"edgeconv checksum|[0-9a-f]{31}")
# A checksum, and what may surround it, is in the last bytes of a document.
_END_BYTES = 200


def json_with_checksum(noun: msgspec.Struct, *, indent: int) -> bytes:
    """A noun whose last field is `checksum` as JSON, with its checksum."""
    blank = msgspec.structs.replace(noun, checksum=_BLANK)
    return _completed(msgspec.json.format(msgspec.json.encode(blank), indent=indent) + b"\n", _JSON)


def html_with_checksum(page: str) -> bytes:
    """A page that ends with its checksum in a comment."""
    return _completed(f"{page}<!-- edgeconv checksum {_BLANK} -->\n".encode(), _HTML)


def without_checksum(noun: Document) -> Document:
    """The noun without it, so that it equals the noun that was written."""
    return msgspec.structs.replace(noun, checksum=msgspec.UNSET) if _has_checksum(noun) else noun


def json_checksum(content: bytes, noun: msgspec.Struct) -> ChecksumState:
    """Whether the document that `noun` was read from is as it was written.

    "none" for one that an edgeconv without checksums wrote.
    """
    return _checksum_state(content, _JSON, is_marked=_has_checksum(noun))


def html_checksum(content: bytes) -> ChecksumState:
    """The same for a page."""
    end = content[-_END_BYTES:]
    is_cut = b"</html>" not in end
    return _checksum_state(content, _HTML, is_marked=is_cut or _HTML_LIKE.search(end) is not None)


def _has_checksum(noun: msgspec.Struct) -> bool:
    return getattr(noun, "checksum", msgspec.UNSET) is not msgspec.UNSET


def _checksum_state(
    content: bytes, pattern: re.Pattern[bytes], *, is_marked: bool
) -> ChecksumState:
    span = _span(content, pattern)
    if span is None:
        return "changed" if is_marked else "none"
    start, end = span
    return "whole" if content[start:end] == _checksum(content, start, end) else "changed"


def _completed(content: bytes, pattern: re.Pattern[bytes]) -> bytes:
    span = _span(content, pattern)
    if span is None:
        raise ValueError("the document does not end with space for its checksum")
    start, end = span
    return content[:start] + _checksum(content, start, end) + content[end:]


def _span(content: bytes, pattern: re.Pattern[bytes]) -> tuple[int, int] | None:
    match = pattern.search(content, max(0, len(content) - _END_BYTES))
    return match.span(1) if match else None


def _checksum(content: bytes, start: int, end: int) -> bytes:
    view = memoryview(content)
    digest = hashlib.sha256(view[:start])
    digest.update(_BLANK.encode())
    digest.update(view[end:])
    return digest.hexdigest().encode()
