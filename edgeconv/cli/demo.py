"""edgeconv demo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgeconv.cli.configured import Configured
from edgeconv.cli.options import echo_json, execution, execution_options, terminal
from edgeconv.cli.printing import echo, echo_failed, echo_page
from edgeconv.cli.progress import progress
from edgeconv.cli.values import PLACE


@click.command("demo", cls=Configured)
@click.option(
    "-o",
    "--out",
    "directory",
    type=PLACE,
    default="edgeconv-demo",
    show_default=True,
    help="Where to write.",
)
@execution_options
@click.pass_context
def command(ctx: click.Context, /, directory: str, **options: Any) -> None:
    """Run the whole job on a small model, without any download.

    Trains a CNN on scikit-learn's handwritten digits under MirroredStrategy with two
    logical CPU devices, converts it by every recipe, measures each artifact beside the
    trained baseline, and holds them to a small budget. Ends with exit code 1 where a limit
    is broken.
    """
    from edgeconv.demo import demonstrate

    with progress(quiet=options["quiet"]) as on_progress:
        done = demonstrate(
            Path(directory).absolute(), execution=execution(options), on_progress=on_progress
        )
    report = done.report
    if options["as_json"]:
        echo_json(report)
    else:
        from edgeconv.reporting.text import report_table, verdict_lines

        echo_page(report_table(report, **terminal()))
        if report.verdict is not None:
            echo_page(verdict_lines(report.verdict, **terminal()))
        echo(f"report: {done.report_html}")
        echo(f"        {done.report_json}")
    for failure in done.conversion.failures:
        echo_failed(failure)
    if done.conversion.failures:
        ctx.exit(4)
    ctx.exit(0 if report.verdict is not None and report.verdict.ok else 1)
