"""`edgeconv inspect`: what is in a model file, without running it."""

from __future__ import annotations

from pathlib import Path

import click

from edgeconv.cli.configured import Configured
from edgeconv.cli.options import SANDBOX, TAG, echo_json, opening, terminal
from edgeconv.cli.printing import echo_page


@click.command("inspect", cls=Configured)
@click.argument("model", type=click.Path(path_type=Path))
@TAG
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON document.")
@SANDBOX
def command(model: Path, *, tags: str, as_json: bool) -> None:
    """Show what is in MODEL: its signatures, operators or layers, and weights.

    MODEL is a SavedModel directory (or the directory of its versions), a .keras, .h5 or
    .hdf5 file, or a .tflite file. Nothing in it is run.
    """
    from edgeconv.source import inspect_model

    inspection = inspect_model(model, opening({"tags": tags}))
    if as_json:
        echo_json(inspection)
    else:
        from edgeconv.reporting.inspected import inspection_page
        from edgeconv.reporting.layout import to_text

        echo_page(to_text(inspection_page(inspection), **terminal()))
