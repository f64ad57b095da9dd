"""`edgeconv verify`: whether published files belong together."""

from __future__ import annotations

import os
import sys

import click

from edgeconv.cli.command import CommandCall, verb_command
from edgeconv.cli.printing import echo, echo_text


@verb_command("verify")
def command(call: CommandCall) -> int:
    """Verify the published files at PATHS against everything that belongs to them.

    A path is a folder that convert, bench, check or embed wrote to, or a file in one. Each .tflite
    is compared with its manifest, its trained model, the verdict of its last check, reports and the
    lock; the files of an embedding with their record, and the model in them with the published one.
    What could not be checked is printed, and does not pass. Nothing is loaded, run or fetched
    (except by Sigstore).

    Exit code 0 if all that was checked holds, 1 if anything does not or was rejected by its check,
    3 if there is nothing to verify. See docs/evidence.md.
    """
    from edgeconv.gate.evidence import verify
    from edgeconv.reporting.verified import (
        evidence_schema,
        render_evidence_json,
        render_evidence_text,
    )

    if call.shown.schema:
        echo_text(evidence_schema().decode())
        return 0
    evidence = verify(call.request, passphrase=_passphrase)
    echo_text((render_evidence_json if call.shown.as_json else render_evidence_text)(evidence))
    if call.request.sign and not evidence.ok:
        echo("nothing was signed: files that do not verify are not signed", err=True)
    return 0 if evidence.ok else 1


def _passphrase(key: str) -> str:
    from edgeconv.gate.evidence import PASSPHRASE, passphrase_of

    if PASSPHRASE in os.environ or not sys.stdin.isatty():
        return passphrase_of(key)
    answer: str = click.prompt(f"Passphrase of {key}", hide_input=True, err=True)
    return answer
