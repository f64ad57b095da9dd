"""`edgeconv check`: a report and a budget to a verdict, and its exit code."""

from __future__ import annotations

from pathlib import Path

import click

from edgeconv.cli.options import echo_json, terminal


@click.command("check")
@click.argument("report", type=click.Path(path_type=Path))
@click.option(
    "--budget",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The limits, as TOML: [budget] for all artifacts, [budget.recipe.int8] for one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as one JSON document.")
@click.pass_context
def command(context: click.Context, report: Path, budget: Path, *, as_json: bool) -> None:
    """Hold REPORT (the report.json of `bench`) against a budget.

    Ends with 0 when every limit holds, with 1 when one is broken. What was not measured
    is a broken limit.
    """
    from edgeconv.measure.budget import load_budget
    from edgeconv.measure.gate import check
    from edgeconv.report.files import read_report
    from edgeconv.report.text import verdict_lines

    verdict = check(read_report(report), load_budget(budget))
    if as_json:
        echo_json(verdict)
    else:
        click.echo(verdict_lines(verdict, **terminal()))
    if not verdict.ok:
        context.exit(1)
