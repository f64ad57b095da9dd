"""`edgeconv report`: measurements as a page, a table, Markdown, JSON or CSV."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from edgeconv.cli.command import CommandCall, verb_command
from edgeconv.cli.printing import COLORS, echo, echo_text, terminal


@verb_command("report")
def command(call: CommandCall) -> None:
    """Render FILES: one or several report.json files of `edgeconv bench`.

    The models of several reports go into one table if they were measured on the same machine, in
    the same runtime, with the same number of threads and on the same samples. With --config they
    are checked against its [budget]; only `edgeconv check` has an exit code for that.
    """
    from edgeconv.reporting.files import NAMES, render
    from edgeconv.reporting.verdicts.machine import report_schema

    request = call.request
    if call.shown.schema:
        echo_text(report_schema().decode())
        return
    if not request.files:
        raise click.UsageError("give one or several report.json of `edgeconv bench`")
    default = "html" if request.directory else "text"
    formats = tuple(dict.fromkeys(request.formats)) or (default,)
    if request.directory is None and len(formats) > 1:
        raise click.UsageError("several formats need a directory: give one with -o")
    if call.is_named and call.config is not None:
        from edgeconv.config import limited

        request = replace(request, budget=limited(call.config))
    reports = call.verb(request)
    if request.directory is None:
        text = render(reports, formats[0], **terminal())
        echo_text(text, own=COLORS if formats[0] == "text" else None)
    else:
        for name in formats:
            echo(f"report: {Path(request.directory).absolute() / NAMES[name]}")
