"""`edgeconv check`: a report and a budget to a verdict, and its exit code."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec


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
    from edgeconv.nouns import Report
    from edgeconv.report.text import verdict_lines
    from edgeconv.store.files import read_noun

    verdict = check(read_noun(report, Report, what="report"), load_budget(budget))
    click.echo(msgspec.json.encode(verdict).decode() if as_json else verdict_lines(verdict))
    if not verdict.ok:
        context.exit(1)
