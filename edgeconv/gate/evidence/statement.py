"""The statement of a signature of OpenSSF model-signing, checked against the files.

A signature is a Sigstore bundle with a DSSE envelope, whose payload is an in-toto statement that
lists every file with its hash. edgeconv adds the verdicts of the files. The signer is verified in
`edgeconv.gate.evidence.signing`.

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
from edgeconv.gate.evidence.published import link_of
from edgeconv.gate.evidence.reading import hash_within
from edgeconv.reporting import units
from edgeconv.types import SignedEvidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.gate.evidence.published import PublishedFile
    from edgeconv.gate.evidence.reading import Root
    from edgeconv.types import Link, LinkState

FIELD = "edgeconv"
PREDICATE = "https://model_signing/signature/v1.0"
PAYLOAD = "application/vnd.in-toto+json"
# model-signing leaves these out of the signature of a directory.
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
    """What was signed: the sha256 of each file by its relative path, "." for a single file.

    `ignored` are paths that are not signed. `evidence` is what edgeconv added, None where another
    tool signed.
    """

    files: dict[str, str]
    ignored: tuple[str, ...]
    evidence: SignedEvidence | None


def payload_of(bundle: bytes, path: Path) -> bytes:
    """The payload of a signature, unverified. Raises `InputRefused`."""
    try:
        envelope: Any = msgspec.json.decode(bundle)["dsseEnvelope"]
        if envelope["payloadType"] != PAYLOAD:
            raise _refusal(path, f"its payload is {units.plain(str(envelope['payloadType']))}")
        return base64.b64decode(envelope["payload"], validate=True)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _refusal(path, str(error)) from error
    except (KeyError, TypeError, binascii.Error) as error:
        raise _refusal(path, "it has no DSSE envelope with a payload") from error


def statement_of(payload: bytes, path: Path) -> Statement:
    """The statement of a signature. Raises `InputRefused` for one of another kind."""
    try:
        statement = msgspec.json.decode(payload, type=_InTotoStatement)
        serialization = statement.predicate.serialization
        added = bytes(statement.predicate.edgeconv)
        content = _with_integers(msgspec.json.decode(added)) if added else None
        evidence = msgspec.convert(content, SignedEvidence | None)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _refusal(path, str(error)) from error
    if statement.predicate_type != PREDICATE:
        raise _refusal(path, f"its statement is of {units.plain(statement.predicate_type)}")
    resources = statement.predicate.resources
    if serialization.method != "files" or any(each.algorithm != "sha256" for each in resources):
        method = units.plain(f"{serialization.method}, {serialization.hash_type}")
        raise _refusal(path, f"it hashes in another way than edgeconv ({method})")
    files = {each.name: each.digest for each in resources}
    if len(files) < len(resources) or not files:
        raise _refusal(path, "it lists no files, or a file twice")
    return Statement(files=files, ignored=serialization.ignore_paths, evidence=evidence)


def _with_integers(value: Any) -> Any:
    """The value before it was signed: a statement has only floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _with_integers(each) for key, each in value.items()}
    return [_with_integers(each) for each in value] if isinstance(value, list) else value


def difference(statement: Statement, root: Root, signed: Path, signature: Path) -> str:
    """How the files differ from the signed ones, in words; "" where they do not.

    Raises `InputRefused` for a directory with too many files.
    """
    if not signed.is_dir():
        if set(statement.files) != {"."}:
            return "it signs a directory, not this file"
        return _change(root, signed, statement.files["."])
    present = set(_files(signed, signature, statement.ignored))
    if missing := sorted(set(statement.files) - present):
        return f"{_first_of(missing)} was signed and is missing"
    if added := sorted(present - set(statement.files)):
        return f"{_first_of(added)} was added after signing"
    for name in sorted(present):
        if text := _change(root, signed / name, statement.files[name]):
            return text
    return ""


def verdict_links(
    statement: Statement, signed: Path, published: Sequence[PublishedFile]
) -> Iterator[Link]:
    """The signed verdicts, checked against the files and their present verdicts."""
    for artifact in statement.evidence.artifacts if statement.evidence else ():
        path = signed / artifact.file if signed.is_dir() else signed
        file = next((each for each in published if each.model == path), None)
        state: LinkState = "failed"
        if file is None:
            text = "its verdict was signed, but the file is missing"
        elif file.sha256 != artifact.sha256:
            text = "its verdict was signed for other bytes"
        elif file.verdict is not None and file.verdict != artifact.verdict:
            text = "its verdict is not the one that was signed: sign again"
        elif artifact.verdict is None:
            state, text = "unchecked", "it was signed without a verdict: it was not checked before"
        else:
            date = units.plain(artifact.verdict.date)
            state, text = "verified", f"signed with the verdict: {artifact.verdict.outcome}, {date}"
        yield link_of("signature", path, state, text)


def _change(root: Root, path: Path, sha256: str) -> str:
    try:
        if hash_within(root, path) == sha256:
            return ""
    except InputRefused as error:
        return error.message
    return f"{path} changed after signing"


def _files(top: Path, signature: Path, ignored: Sequence[str]) -> Iterator[str]:
    """The files below a directory that model-signing signs."""
    not_signed = {PurePosixPath(path) for path in (*_OF_GIT, *ignored)}
    count = 0
    for folder, folders, names in os.walk(top):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            path = Path(folder, name)
            below = PurePosixPath(path.relative_to(top).as_posix())
            count += 1
            if count > _MOST_FILES:
                raise InputRefused(f"{top} has more than {_MOST_FILES} files")
            if path != signature and not not_signed & {below, *below.parents}:
                yield str(below)


def _first_of(names: Sequence[str]) -> str:
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{units.plain(names[0])}{more}"


def _refusal(path: Path, why: str) -> InputRefused:
    return InputRefused(
        f"{path} is not a signature that edgeconv can read: {why}",
        hint="verify signatures of other tools with the command model_signing",
    )
