"""Signing, and verifying signers, with OpenSSF model-signing: keys, certificates, Sigstore.

The package is the extra `edgeconv[sign]`, imported only here, inside functions. The signatures have
one more field in the statement, `edgeconv` with the verdicts, as the specification allows: the
command model_signing verifies them.
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.errors import InputRefused, ToolFailed, UsageError
from edgeconv.gate.evidence.signatures import signature_of
from edgeconv.gate.evidence.statement import FIELD, payload_of
from edgeconv.store import publish_bytes, scratch_directory
from edgeconv.types import SignedArtifact, SignedEvidence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    from edgeconv.gate.evidence.published import PublishedFile
    from edgeconv.types import Trust

SIGSTORE = "sigstore"
_NO_NETWORK = (
    "Sigstore needs its servers: use a network, or sign with a key; to verify offline, give "
    "--trust-config"
)


class Signer(msgspec.Struct, frozen=True, kw_only=True):
    """The signer: a file with a private `key` in PEM, or "sigstore" for an identity there.

    `certificates` are that of the key, and its chain. `trust_config` is a file with other servers
    than Sigstore's.
    """

    key: str
    certificates: tuple[str, ...] = ()
    trust_config: str = ""


def sign(
    path: Path, published: Sequence[PublishedFile], signer: Signer, passphrase: Callable[[], str]
) -> Path:
    """Sign a verified directory or file with the verdicts of its files; returns the signature.

    `passphrase` is called for an encrypted key. Raises `UsageError` for an unusable key or
    certificate, `ToolFailed` where Sigstore cannot be reached or the package is missing,
    `InputRefused` for files that cannot be signed, `OutputRefused` where it cannot be written.
    """
    signing = _package().signing
    target = signature_of(path)
    signs = _signer_of(signing, signer, passphrase)
    try:
        hashing = _package().hashing.Config()
        hashing.set_ignored_paths(paths=[target.name], ignore_git_paths=True)
        manifest = hashing.hash(path)
    except (ValueError, OSError) as error:
        raise InputRefused(f"{path} cannot be signed: {error}") from error
    payload = signing.signing.Payload(manifest)
    added = SignedEvidence(artifacts=tuple(_artifacts(path, published)))
    _refuse_changed(path, manifest, added)
    payload.statement.pb.predicate.update({FIELD: json.loads(msgspec.json.encode(added))})
    with scratch_directory() as scratch:
        with _translate_errors(signer.key):
            signs.sign(payload).write(scratch / "signature")
        publish_bytes((scratch / "signature").read_bytes(), target)
    return target


def verified_payload(bundle: bytes, path: Path, trust: Trust) -> tuple[bytes, str]:
    """The verified payload of a signature, and its signer.

    Raises `InputRefused` for another signer and for a damaged signature, `UsageError` for an
    unusable key or certificate, `ToolFailed` as `sign`.
    """
    payload = payload_of(bundle, path)
    _refuse_other_kind(bundle, path, trust)
    verifier, by = _verifier_of(_package().verifying, trust)
    with scratch_directory() as scratch, contextlib.redirect_stdout(io.StringIO()):
        copy = scratch / "signature"
        copy.write_bytes(bundle)
        try:
            module = _package().verifying
            kind = module.sigstore if trust.identity else module.sigstore_pb
            verifier.verify(kind.Signature.read(copy))
        except _errors_of_signatures() as error:
            raise InputRefused(
                f"it was not signed by {by}, or changed since: {_reason(error)}"
            ) from error
    return payload, by


def is_encrypted(key: str) -> bool:
    """Whether a private key needs a passphrase. Raises `UsageError` where it cannot be read."""
    return b"ENCRYPTED" in _content(key)


def _artifacts(path: Path, published: Sequence[PublishedFile]) -> Iterator[SignedArtifact]:
    for each in published:
        if path == each.model or path in each.model.parents:
            file = each.model.relative_to(path).as_posix()
            yield SignedArtifact(file=file, sha256=each.sha256, verdict=each.verdict)


def _refuse_changed(path: Path, manifest: Any, added: SignedEvidence) -> None:
    hashes = {each.identifier: each.digest.digest_hex for each in manifest.resource_descriptors()}
    for artifact in added.artifacts:
        if hashes.get(artifact.file) != artifact.sha256:
            changed = path / artifact.file
            raise InputRefused(f"{changed} changed while it was signed", hint="run it again")


def _signer_of(signing: ModuleType, signer: Signer, passphrase: Callable[[], str]) -> Any:
    if signer.key == SIGSTORE:
        config = Path(signer.trust_config) if signer.trust_config else None
        with _translate_errors(SIGSTORE):
            return signing.sigstore.Signer(use_ambient_credentials=True, trust_config=config)
    encrypted = is_encrypted(signer.key)
    certificates = [Path(name) for name in signer.certificates]
    if certificates and encrypted:
        raise UsageError(
            f"the key {signer.key} has a passphrase, which model-signing does not support together "
            "with a certificate",
            hint="sign without a certificate, or with a key without a passphrase",
        )
    for name in signer.certificates:
        _content(name)
    secret = passphrase().encode() if encrypted else None
    with _translate_errors(signer.key):
        if certificates:
            return signing.certificate.Signer(Path(signer.key), certificates[0], certificates[1:])
        return signing.ec_key.Signer(Path(signer.key), secret)


def _verifier_of(verifying: ModuleType, trust: Trust) -> tuple[Any, str]:
    if trust.identity:
        config = Path(trust.trust_config) if trust.trust_config else None
        with _translate_errors(SIGSTORE):
            verifier = verifying.sigstore.Verifier(
                identity=trust.identity, oidc_issuer=trust.issuer, trust_config=config
            )
        return verifier, f"{trust.identity} ({trust.issuer})"
    names = trust.certificates or (trust.key,)
    for name in names:
        _content(name)
    with _translate_errors(names[0]):
        if trust.certificates:
            verifier = verifying.certificate.Verifier([Path(name) for name in names])
            return verifier, f"a certificate of {names[0]}"
        return verifying.ec_key.Verifier(Path(trust.key)), f"the key {trust.key}"


def _refuse_other_kind(bundle: bytes, path: Path, trust: Trust) -> None:
    """Raise `InputRefused` where the signature is of another kind than what is trusted."""
    kinds = {
        "publicKey": ("a key", bool(trust.key)),
        "x509CertificateChain": ("a certificate", bool(trust.certificates)),
        "certificate": ("an identity at Sigstore", bool(trust.identity)),
    }
    try:
        material = msgspec.json.decode(bundle)["verificationMaterial"]
        kind = next(name for name in kinds if name in material)
    except (msgspec.DecodeError, KeyError, TypeError, StopIteration) as error:
        raise InputRefused(f"{path} does not say how it was signed") from error
    what, is_trusted = kinds[kind]
    if not is_trusted:
        raise InputRefused(f"it was signed with {what}, not with what you trust")


def _package() -> ModuleType:
    """The package model_signing. Raises `ToolFailed` where it is not installed."""
    try:
        import model_signing
    except ImportError as error:
        raise ToolFailed(
            f"signatures need the package model-signing: {error}",
            hint="pip install 'edgeconv[sign]'",
        ) from error
    module: ModuleType = model_signing
    return module


@contextlib.contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    """Errors of the package about a key, a certificate or Sigstore, as errors of edgeconv."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from OpenSSL.crypto import Error as OpenSslError
    from sigstore.errors import Error as SigstoreError

    try:
        yield
    except SigstoreError as error:
        raise ToolFailed(f"Sigstore could not be used: {error}", hint=_NO_NETWORK) from error
    except (ValueError, TypeError, AttributeError, UnsupportedAlgorithm, OpenSslError) as error:
        if what == SIGSTORE:
            raise ToolFailed(f"Sigstore could not be used: {error}", hint=_NO_NETWORK) from error
        # The package reads an attribute that other kinds of keys do not have.
        is_other = isinstance(error, AttributeError)
        why = "it is not an elliptic curve key" if is_other else _reason(error)
        raise UsageError(
            f"{what} cannot be used to sign or verify: {why}",
            hint="create a key with openssl ecparam -name prime256v1 -genkey -noout, its public "
            "part with openssl ec -pubout; see docs/evidence.md",
        ) from error
    except OSError as error:
        raise ToolFailed(f"Sigstore could not be reached: {error}", hint=_NO_NETWORK) from error


def _errors_of_signatures() -> tuple[type[Exception], ...]:
    from cryptography.exceptions import InvalidSignature
    from OpenSSL.crypto import Error as OpenSslError
    from OpenSSL.crypto import X509StoreContextError
    from sigstore.errors import Error as SigstoreError

    own = (InvalidSignature, OpenSslError, X509StoreContextError, SigstoreError)
    return (*own, ValueError, TypeError, AttributeError, LookupError)


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
