"""The statement of a signature, as OpenSSF model-signing writes it, held against the files.

A signature is a Sigstore bundle with a DSSE envelope, whose payload is an in-toto statement that
lists every file with its hash. edgeconv adds the verdicts of the files to it. Who signed is not
known here: `edgeconv.gate.evidence.signing` says that.

Sources: the specification of model-signing 1.0, https://github.com/ossf/model-signing-spec, and of
DSSE 1.0, https://github.com/secure-systems-lab/dsse.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.errors import InputRefused
from edgeconv.gate.evidence.reading import hash_within
from edgeconv.reporting import units
from edgeconv.types import Link, SignedEvidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.gate.evidence.published import PublishedFile
    from edgeconv.gate.evidence.reading import Root

FIELD = "edgeconv"
PREDICATE = "https://model_signing/signature/v1.0"
PAYLOAD = "application/vnd.in-toto+json"
# What model-signing leaves out of every signature of a directory.
_OF_GIT = (".git", ".gitattributes", ".github", ".gitignore")
_MOST_FILES = 200_000


class _Resource(msgspec.Struct, frozen=True):
    name: str
    algorithm: str
    digest: str


class _Serialization(msgspec.Struct, frozen=True):
    method: str
    hash_type: str
    ignore_paths: tuple[str, ...] = ()


class _Predicate(msgspec.Struct, frozen=True):
    serialization: _Serialization
    resources: tuple[_Resource, ...]
    edgeconv: msgspec.Raw = msgspec.Raw()


class _InTotoStatement(msgspec.Struct, frozen=True, rename={"predicate_type": "predicateType"}):
    predicate_type: str
    predicate: _Predicate


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What was signed: each file's sha256 by its relative path, "." for a file by itself.

    `ignored` are paths that do not count. `evidence` is what edgeconv added, None where another
    tool signed.
    """

    files: dict[str, str]
    ignored: tuple[str, ...]
    evidence: SignedEvidence | None


def payload_of(bundle: bytes, path: Path) -> bytes:
    """The payload of a signature, of which nothing is checked. Raises `InputRefused`."""
    try:
        envelope: Any = msgspec.json.decode(bundle)["dsseEnvelope"]
        if envelope["payloadType"] != PAYLOAD:
            raise _refused(path, f"its payload is {units.plain(str(envelope['payloadType']))}")
        return base64.b64decode(envelope["payload"], validate=True)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _refused(path, str(error)) from error
    except (KeyError, TypeError, binascii.Error) as error:
        raise _refused(path, "it has no DSSE envelope with a payload") from error


def statement_of(payload: bytes, path: Path) -> Statement:
    """The statement of a signature. Raises `InputRefused` for one of another kind."""
    try:
        found = msgspec.json.decode(payload, type=_InTotoStatement)
        how = found.predicate.serialization
        added = bytes(found.predicate.edgeconv)
        said = _whole(msgspec.json.decode(added)) if added else None
        evidence = msgspec.convert(said, SignedEvidence | None)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _refused(path, str(error)) from error
    if found.predicate_type != PREDICATE:
        raise _refused(path, f"its statement is of {units.plain(found.predicate_type)}")
    resources = found.predicate.resources
    if how.method != "files" or any(one.algorithm != "sha256" for one in resources):
        said = units.plain(f"{how.method}, {how.hash_type}")
        raise _refused(path, f"it hashes otherwise than edgeconv does ({said})")
    files = {one.name: one.digest for one in resources}
    if len(files) < len(resources) or not files:
        raise _refused(path, "it lists no files, or one of them twice")
    return Statement(files=files, ignored=how.ignore_paths, evidence=evidence)


def _whole(value: Any) -> Any:
    """The value as it was before it was signed: a statement has no whole numbers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, list) else value


def difference(statement: Statement, root: Root, signed: Path, signature: Path) -> str:
    """How the files differ from those that were signed, in words; "" where they do not.

    Raises `InputRefused` for a directory with too many files.
    """
    if not signed.is_dir():
        if set(statement.files) != {"."}:
            return "it signs a directory, and not this file"
        return _changed(root, signed, statement.files["."])
    there = set(_files(signed, signature, statement.ignored))
    if missing := sorted(set(statement.files) - there):
        return f"{_named(missing)} was signed and is not there"
    if added := sorted(there - set(statement.files)):
        return f"{_named(added)} was added after signing"
    for name in sorted(there):
        if text := _changed(root, signed / name, statement.files[name]):
            return text
    return ""


def verdict_links(
    statement: Statement, signed: Path, pieces: Sequence[PublishedFile]
) -> Iterator[Link]:
    """The verdicts that were signed, held against the files and the verdicts beside them."""
    for one in statement.evidence.artifacts if statement.evidence else ():
        path = signed / one.file if signed.is_dir() else signed
        piece = next((piece for piece in pieces if piece.model == path), None)
        link = Link(link="signature", file=str(path), state="failed", text="")
        if piece is None:
            text = "its verdict was signed, and it is not there"
        elif piece.sha256 != one.sha256:
            text = "its verdict was signed for other bytes than these"
        elif piece.verdict is not None and piece.verdict != one.verdict:
            text = "the verdict beside it is not the one that was signed: sign again"
        elif one.verdict is None:
            text = "it was signed without a verdict: it had not been checked"
            link = msgspec.structs.replace(link, state="unchecked")
        else:
            when = units.plain(one.verdict.date)
            text = f"signed with the verdict: {one.verdict.outcome}, {when}"
            link = msgspec.structs.replace(link, state="verified")
        yield msgspec.structs.replace(link, text=text)


def _changed(root: Root, path: Path, sha256: str) -> str:
    try:
        if hash_within(root, path) == sha256:
            return ""
    except InputRefused as error:
        return error.message
    return f"{path} changed after signing"


def _files(top: Path, signature: Path, ignored: Sequence[str]) -> Iterator[str]:
    """The files below a directory that count, as model-signing counts them."""
    not_counted = {PurePosixPath(one) for one in (*_OF_GIT, *ignored)}
    count = 0
    for folder, folders, names in os.walk(top):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            path = Path(folder, name)
            below = PurePosixPath(path.relative_to(top).as_posix())
            count += 1
            if count > _MOST_FILES:
                raise InputRefused(f"{top} has more than {_MOST_FILES} files")
            if path != signature and not not_counted & {below, *below.parents}:
                yield str(below)


def _named(names: Sequence[str]) -> str:
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{units.plain(names[0])}{more}"


def _refused(path: Path, why: str) -> InputRefused:
    return InputRefused(
        f"{path} is not a signature that edgeconv can read: {why}",
        hint="the model_signing command verifies what other tools sign",
    )
