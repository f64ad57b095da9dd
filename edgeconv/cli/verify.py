"""`edgeconv verify`: whether published files belong together."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeconv.cli.printing import echo, echo_text
from edgeconv.types import LINK_NAMES

if TYPE_CHECKING:
    from edgeconv.gate.evidence.published import PublishedFile
    from edgeconv.types import Evidence, LinkName

PASSPHRASE = "EDGECONV_KEY_PASSPHRASE"


@click.command("verify")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    help="The trained model. [default: the one that the manifests name, where it is at hand]",
)
@click.option(
    "--require",
    type=click.Choice(LINK_NAMES),
    multiple=True,
    help="Fail where this link could not be checked. Repeatable.",
)
@click.option(
    "--sign",
    "key",
    metavar="KEY",
    help="Sign each PATH once it is verified, with this private key (PEM, elliptic curve), or as "
    "you at Sigstore: --sign sigstore. The passphrase is typed, or taken from "
    f"{PASSPHRASE}.",
)
@click.option("--key", "public", default="", metavar="FILE", help="Trust this public key (PEM).")
@click.option(
    "--certificate",
    "certificates",
    multiple=True,
    metavar="FILE",
    help="Trust these certificates (PEM). With --sign: that of the key first, then its chain.",
)
@click.option("--identity", default="", help="Trust this identity at Sigstore, with --issuer.")
@click.option("--issuer", default="", metavar="URL", help="Who vouches for it.")
@click.option(
    "--trust-config", default="", metavar="FILE", help="For Sigstore: other servers and roots."
)
@click.option(
    "--signature",
    default="",
    metavar="FILE",
    help="The signature of PATH. [default: model.sig in a folder, FILE.sig next to a file]",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was checked as JSON.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of that, and no more.")
def command(
    paths: tuple[Path, ...],
    source: Path | None,
    require: tuple[LinkName, ...],
    key: str | None,
    public: str,
    certificates: tuple[str, ...],
    identity: str,
    issuer: str,
    trust_config: str,
    signature: str,
    *,
    as_json: bool,
    schema: bool,
) -> int:
    """Verify the published files at PATHS against everything that belongs to them.

    A path is a folder that convert, bench, check or embed wrote in, or a file of one. Each .tflite
    is compared with its manifest, its trained model, the verdict of its last check, reports and the
    lock; the files of an embedding with their record, and the model in them with the published one.
    What could not be checked is printed, and does not pass. Nothing is loaded, run or fetched
    (except by Sigstore).

    Exit code 0 if all that was checked holds, 1 if anything does not or was rejected by its check,
    3 if there is nothing to verify. See docs/evidence.md.
    """
    from edgeconv.gate.evidence import Trust, verify_files
    from edgeconv.reporting.verified import (
        evidence_schema,
        render_evidence_json,
        render_evidence_text,
    )

    if schema:
        echo_text(evidence_schema().decode())
        return 0
    if not paths:
        raise click.UsageError("give the files that convert published, or that embed wrote")
    _refuse_mixtures(paths, key, public, certificates, identity, issuer, signature)
    trust = Trust(
        key=public,
        certificates=() if key else certificates,
        identity=identity,
        issuer=issuer,
        trust_config=trust_config,
        signature=signature,
    )
    evidence, published = verify_files(
        paths, source=source or "", require=require, trust=trust, to_sign=key is not None
    )
    if key and evidence.ok:
        evidence = _signed(evidence, published, paths, key, certificates, trust_config)
    render = render_evidence_json if as_json else render_evidence_text
    echo_text(render(evidence))
    if key and not evidence.ok:
        echo("nothing was signed: files that do not verify are not signed", err=True)
    return 0 if evidence.ok else 1


def _refuse_mixtures(
    paths: tuple[Path, ...],
    key: str | None,
    public: str,
    certificates: tuple[str, ...],
    identity: str,
    issuer: str,
    signature: str,
) -> None:
    trusted = [bool(public), bool(certificates) and not key, bool(identity)]
    if sum(trusted) > 1:
        raise click.UsageError("give one of --key, --certificate and --identity")
    if key and (public or identity or signature):
        raise click.UsageError("--sign writes a signature; verify it in another run")
    if bool(identity) != bool(issuer):
        raise click.UsageError("--identity and --issuer go together")
    if signature and (len(paths) > 1 or not any(trusted)):
        raise click.UsageError(
            "--signature is of one PATH, and goes with --key, --certificate or --identity"
        )


def _signed(
    evidence: Evidence,
    published: tuple[PublishedFile, ...],
    paths: tuple[Path, ...],
    key: str,
    certificates: tuple[str, ...],
    trust_config: str,
) -> Evidence:
    """The evidence, with where the signatures are. Raises an `EdgeconvError`."""
    import msgspec

    from edgeconv.gate.evidence.signing import Signer, sign

    signer = Signer(key=key, certificates=certificates, trust_config=trust_config)
    passphrase = cache(lambda: _passphrase(key))
    written = tuple(str(sign(path, published, signer, passphrase)) for path in paths)
    return msgspec.structs.replace(evidence, signed=written)


def _passphrase(key: str) -> str:
    from edgeconv.errors import UsageError

    if PASSPHRASE in os.environ:
        return os.environ[PASSPHRASE]
    if not sys.stdin.isatty():
        raise UsageError(
            f"the key {key} has a passphrase, and there is no terminal to ask for it",
            hint=f"set {PASSPHRASE}",
        )
    answer: str = click.prompt(f"Passphrase of {key}", hide_input=True, err=True)
    return answer
