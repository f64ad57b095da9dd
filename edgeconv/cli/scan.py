"""`edgeconv scan`: what models would touch if they were loaded, without loading them."""

from __future__ import annotations

from pathlib import Path

import click

from edgeconv.cli.command import sandbox_option
from edgeconv.cli.printing import echo_error, echo_text
from edgeconv.errors import InputRefused


@click.command("scan")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif"]),
    default="text",
    show_default=True,
    help="The format of the output; sarif is for code scanning.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@sandbox_option
def command(paths: tuple[Path, ...], *, form: str, as_json: bool) -> int:
    """Show what the models at PATHS would touch outside themselves.

    A path is a SavedModel directory (or the directory of its versions), a .keras, .h5 or .hdf5
    file, or a .tflite file. Nothing in it is loaded or run. Exit code 0 if none is refused, 1 if
    one is, 3 if a path is not a model. No configuration changes the findings. Commands that load a
    model refuse what is refused here; see docs/security.md.
    """
    from edgeconv.reporting.scans import render_scan_json, render_scan_sarif, render_scan_text
    from edgeconv.source.scanning import scan

    renders = {"text": render_scan_text, "json": render_scan_json, "sarif": render_scan_sarif}
    scans, errors = [], list[InputRefused]()
    for path in paths:
        try:
            scans.append(scan(path))
        except InputRefused as error:
            errors.append(error)
    echo_text(renders["json" if as_json else form](scans))
    for refused in errors[:-1]:
        echo_error(refused)
    if errors:
        raise errors[-1]
    return 1 if any(scanned.is_refused for scanned in scans) else 0
