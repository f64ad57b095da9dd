"""The request of `verify`."""

from __future__ import annotations

from typing import Annotated

from edgeconv.requests.option import Option, Within
from edgeconv.requests.request import Request
from edgeconv.requests.shared import JSON
from edgeconv.requests.texts import PATH, TEXT
from edgeconv.types import LinkName, Trust

Trusted = Annotated[
    Trust,
    Within(
        key=Option(help="Trust this public key (PEM).", text=PATH, metavar="FILE"),
        certificates=Option(
            help="Trust these certificates (PEM). With --sign: the key's first, then its chain.",
            name="certificate",
            text=PATH,
            several=True,
            metavar="FILE",
        ),
        identity=Option(help="Trust this identity at Sigstore, with --issuer.", text=TEXT),
        issuer=Option(help="Who vouches for that identity.", text=TEXT, metavar="URL"),
        trust_config=Option(
            help="For Sigstore: other servers and roots.", text=PATH, metavar="FILE"
        ),
        signature=Option(
            help="The signature of PATH. [default: model.sig in a folder, FILE.sig next to a file]",
            text=PATH,
            metavar="FILE",
        ),
    ),
]


class VerifyRequest(Request, frozen=True, kw_only=True):
    """What to verify together: folders that `convert`, `bench`, `check` or `embed` wrote, or files.

    `source`: the trained model, "" for the one that the manifests name. `require`: links that must
    be verified wherever they are possible. `sign`: once verified, each path is signed with this
    private key, or as the user at Sigstore. `trust`: whose signatures count.
    """

    paths: Annotated[
        tuple[str, ...],
        Option(is_argument=True, takes_rest=True, several=True, text=PATH),
    ] = ()
    source: Annotated[
        str,
        Option(
            help="The trained model. [default: the one that the manifests name, if available]",
            text=PATH,
        ),
    ] = ""
    require: Annotated[
        tuple[LinkName, ...],
        Option(help="Fail if this link could not be checked. Repeatable.", several=True),
    ] = ()
    sign: Annotated[
        str,
        Option(
            help="Sign each PATH once it is verified, with this private key (PEM, elliptic curve), "
            "or with your identity at Sigstore: --sign sigstore. The passphrase is typed, or taken "
            "from EDGECONV_KEY_PASSPHRASE.",
            text=PATH,
            metavar="KEY",
        ),
    ] = ""
    trust: Trusted = Trust()


class VerifyPrinting(Request, frozen=True, kw_only=True):
    """What `edgeconv verify` prints."""

    as_json: JSON = False
    schema: Annotated[
        bool,
        Option("Output", "Print the JSON Schema of the --json output, and nothing else."),
    ] = False
