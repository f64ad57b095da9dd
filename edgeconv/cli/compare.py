"""`edgeconv compare`: what changed between two reports or two .tflite files."""

from __future__ import annotations

from pathlib import Path

import click

from edgeconv.cli.configured import Configured
from edgeconv.cli.options import echo_json, terminal
from edgeconv.cli.printing import echo_page


@click.command("compare", cls=Configured)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Every tensor and flip, not the first.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON document.")
def command(before: Path, after: Path, *, everything: bool, as_json: bool) -> None:
    """Show what changed from BEFORE to AFTER.

    Both are the report.json of `edgeconv bench`, or both .tflite files. What must not be
    compared, such as times of two machines, is left out with the reason. A change is no
    failure: the exit code is 0.
    """
    from edgeconv.measure.compare import compare
    from edgeconv.reporting.changes import difference_text

    difference = compare(before, after)
    if as_json:
        echo_json(difference)
    else:
        echo_page(difference_text(difference, everything=everything, **terminal()))
