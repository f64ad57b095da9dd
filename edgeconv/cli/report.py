"""`edgeconv report`: measurements as a page, a table, Markdown, JSON or CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeconv.cli.configured import Configured, origin_of
from edgeconv.cli.options import terminal
from edgeconv.cli.printing import COLORS, echo, echo_text
from edgeconv.cli.values import TEXT

if TYPE_CHECKING:
    from edgeconv.reporting.files import Format
    from edgeconv.types import Budget, Report

_FORMATS = ("html", "text", "markdown", "json", "csv")


@click.command("report", cls=Configured)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    "directory",
    type=click.Path(path_type=Path),
    help="Directory for report.html and the like. [default: one format goes to the terminal]",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(_FORMATS),
    help="What to make; may be given several times. [default: html with -o, else text]",
)
@click.option(
    "--side-by-side",
    is_flag=True,
    help="Show reports that do not compare, such as of two machines, each for itself.",
)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of report.json, and no more.")
@click.option("--title", type=TEXT, default="", help="The title. [default: those of the reports]")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    files: tuple[Path, ...],
    directory: Path | None,
    formats: tuple[Format, ...],
    title: str,
    *,
    side_by_side: bool,
    schema: bool,
) -> None:
    """Render FILES: one or several report.json of `edgeconv bench`.

    The models of several reports go into one table, where they were measured on the same
    machine, in the same runtime, with as many threads and on the same samples. With --config
    they are held against its [budget]; `edgeconv check` has the exit code for it.
    """
    from edgeconv.reporting.files import render, write_formats
    from edgeconv.reporting.schema import report_schema
    from edgeconv.store import writable_directory

    if schema:
        echo_text(report_schema().decode())
        return
    if not files:
        raise click.UsageError("give one or several report.json of `edgeconv bench`")
    chosen: tuple[Format, ...] = tuple(dict.fromkeys(formats)) or (
        ("html",) if directory else ("text",)
    )
    if directory is None and len(chosen) > 1:
        raise click.UsageError("several formats need a directory to go to: give one with -o")
    reports = _judged(_gathered(files, side_by_side=side_by_side), _budget(ctx), title)
    if directory is None:
        echo_text(
            render(reports, chosen[0], **terminal()), own=COLORS if chosen[0] == "text" else None
        )
        return
    target = directory.absolute()
    writable_directory(target)
    for path in write_formats(reports, target, chosen):
        echo(f"report: {path}")


def _gathered(files: tuple[Path, ...], *, side_by_side: bool) -> tuple[Report, ...]:
    """One report of all, or with `side_by_side` as few as compare within themselves."""
    from edgeconv.measure.together import differences_of, measured, together
    from edgeconv.reporting.files import read_report

    reports = [read_report(file) for file in files]
    measured(reports)
    if not side_by_side:
        return (together(reports),)
    groups: list[list[Report]] = []
    for report in reports:
        fitting = (g for g in groups if not any(differences_of(each, report) for each in g))
        found = next(fitting, None)
        if found is None:
            groups.append([report])
        else:
            found.append(report)
    return tuple(together(group) for group in groups)


def _budget(ctx: click.Context) -> Budget | None:
    """The budget of a configuration that was named. Raises `UsageError` where it has none."""
    from edgeconv.config import limited

    origin = origin_of(ctx)
    return limited(origin.config) if origin.config and origin.is_named else None


def _judged(reports: tuple[Report, ...], budget: Budget | None, title: str) -> tuple[Report, ...]:
    """The reports with the title and the verdict that were asked for."""
    import msgspec

    from edgeconv.gate.budget import check

    if title:
        reports = tuple(msgspec.structs.replace(report, title=title) for report in reports)
    if budget is None:
        return reports
    return tuple(
        msgspec.structs.replace(report, verdict=check(report, budget)) for report in reports
    )
