"""edgeconv bench."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import click

from edgeconv.cli.options import echo_json, execution, execution_options, terminal
from edgeconv.cli.progress import progress
from edgeconv.runtimes.local import Package


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option(
    "--data",
    "data_source",
    metavar="SOURCE",
    help="Samples to measure on, with labels for accuracy. [default: made-up samples, no accuracy]",
)
@click.option(
    "--preprocess",
    metavar="STEPS",
    help="What is done to each stored sample. [default: what the manifests say]",
)
@click.option(
    "--samples",
    type=int,
    help="How many samples, by a fixed seed, in equal shares of the labels. [default: all]",
)
@click.option("--baseline", help="The trained model. [default: the one the manifests name]")
@click.option("--signature", help="The signature to run, if there are several.")
@click.option("--output", help="The output that the labels are for, if there are several.")
@click.option(
    "--training",
    metavar="FILE",
    help="The baseline's training record (N.training.json), to show in the report.",
)
@click.option("-o", "--out", "directory", help="Directory for report.json and report.html.")
@click.option("--title", default="", help="The report's title. [default: the directory's name]")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--warmup", type=click.IntRange(1), default=10, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=200, show_default=True)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Timed seconds at most, per model and round.",
)
@click.option(
    "--runtime",
    "package",
    type=click.Choice(get_args(Package)),
    default="ai_edge_litert",
    show_default=True,
    help="The package whose interpreter is measured.",
)
@click.option(
    "--python",
    metavar="FILE",
    help="The Python that has this package, in another environment. [default: this one]",
)
@click.option(
    "--interpreter-threads",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Threads of the interpreter that is measured.",
)
@execution_options
@click.pass_context
def command(ctx: click.Context, /, models: tuple[str, ...], **options: Any) -> None:
    """Measure MODELS beside the trained baseline.

    MODELS are .tflite files, or directories that `edgeconv convert` published in. Every
    model runs in fresh processes of its own, in rounds in which all take turns; size,
    latency with its raw samples, peak memory and accuracy go into the report. Exit code 4
    if a model did not run.
    """
    from edgeconv.measure.bench import bench
    from edgeconv.measure.measuring import Measuring
    from edgeconv.runtimes.local import Target, Timing

    training = options["training"]
    with progress(quiet=options["quiet"]) as on_progress:
        report = bench(
            models,
            data_source=options["data_source"],
            preprocess=options["preprocess"],
            samples=options["samples"],
            baseline=options["baseline"],
            signature=options["signature"],
            training=_record(Path(training)) if training else None,
            measuring=Measuring(
                rounds=options["rounds"],
                timing=Timing(
                    warmup=options["warmup"],
                    repeats=options["repeats"],
                    seconds=options["seconds"],
                ),
                target=Target(
                    package=options["package"], python=options["python"] or sys.executable
                ),
                threads=options["interpreter_threads"],
                output=options["output"],
                title=options["title"],
            ),
            execution=execution(options),
            on_progress=on_progress,
        )
    _show(report, options["directory"], as_json=options["as_json"])
    ctx.exit(4 if any(row.error for row in report.measurements) else 0)


def _record(path: Path) -> Any:
    """The training record in a file. Raises `InputRefused`, also for one of an older version."""
    from edgeconv.errors import InputRefused
    from edgeconv.nouns import TrainingRecord
    from edgeconv.store import read_noun

    try:
        return read_noun(path, TrainingRecord, what="training record")
    except InputRefused as error:
        hint = "give the N.training.json that this version's `edgeconv train` wrote, or none"
        raise InputRefused(error.message, hint=hint) from error


def _show(report: Any, directory: str | None, *, as_json: bool) -> None:
    from edgeconv.report.files import write_report
    from edgeconv.report.text import report_table
    from edgeconv.store import writable_directory

    written: tuple[Path, ...] = ()
    if directory is not None:
        target = Path(directory).absolute()
        writable_directory(target)
        written = write_report(report, target)
    if as_json:
        echo_json(report)
        return
    click.echo(report_table(report, **terminal()))
    for path in written:
        click.echo(f"report: {path}")
