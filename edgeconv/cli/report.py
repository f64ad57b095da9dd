"""`edgeconv report`: measurements as a page, a table, Markdown, JSON or CSV."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from edgeconv.cli.command import CommandCall, verb_command
from edgeconv.cli.printing import COLORS, echo, echo_text, terminal


@verb_command("report")
def command(call: CommandCall) -> None:
    """Render FILES: one or several report.json of `edgeconv bench`.

    The models of several reports go into one table, where they were measured on the same
    machine, in the same runtime, with as many threads and on the same samples. With --config
    they are held against its [budget]; `edgeconv check` has the exit code for it.
    """
    from edgeconv.reporting.files import NAMES, render
    from edgeconv.reporting.verdicts.machine import report_schema

    asked = call.request
    if call.shown.schema:
        echo_text(report_schema().decode())
        return
    if not asked.files:
        raise click.UsageError("give one or several report.json of `edgeconv bench`")
    default = "html" if asked.directory else "text"
    formats = tuple(dict.fromkeys(asked.formats)) or (default,)
    if asked.directory is None and len(formats) > 1:
        raise click.UsageError("several formats need a directory to go to: give one with -o")
    if call.is_named and call.config is not None:
        from edgeconv.config import limited

        asked = replace(asked, budget=limited(call.config))
    reports = call.verb(asked)
    if asked.directory is None:
        text = render(reports, formats[0], **terminal())
        echo_text(text, own=COLORS if formats[0] == "text" else None)
    else:
        for name in formats:
            echo(f"report: {Path(asked.directory).absolute() / NAMES[name]}")
