"""edgeconv bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeconv.cli.configured import Configured, command_line
from edgeconv.cli.options import (
    echo_json,
    execution,
    execution_options,
    opening,
    opening_options,
    terminal,
)
from edgeconv.cli.printing import echo, echo_page
from edgeconv.cli.progress import progress
from edgeconv.cli.values import METRIC, PLACE, PROGRAM, RUNTIME, SOURCE, STEPS, TEXT, TREE, one_of
from edgeconv.plugins import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.types import Report

ACCELERATORS = ("interpreter", "compiled")
_MEASURING = (
    *("runtimes", "accelerator", "python", "binary", "metrics", "output", "profile", "layers"),
    *("title", "serving_warmup"),
)


@click.command("bench", cls=Configured)
@click.argument("models", nargs=-1, required=True, type=PLACE)
@click.option(
    "--data",
    "data_source",
    type=SOURCE,
    metavar="SOURCE",
    help="Samples to measure on, with labels for accuracy. [default: made-up samples, no accuracy]",
)
@click.option(
    "--preprocess",
    type=STEPS,
    metavar="STEPS",
    help="What is done to each stored sample. [default: what the manifests say]",
)
@click.option(
    "--samples",
    type=int,
    help="How many samples, by a fixed seed, in equal shares of the labels. [default: all]",
)
@click.option(
    "--baseline", type=TREE, help="The trained model. [default: the one the manifests name]"
)
@opening_options
@click.option("--signature", type=TEXT, help="The signature to run, if there are several.")
@click.option(
    "--output", type=TEXT, help="The output that the labels are for, if there are several."
)
@click.option(
    "--training",
    type=PLACE,
    metavar="FILE",
    help="The baseline's training record, to show in the report. [default: N.training.json beside "
    "it, if it is there]",
)
@click.option(
    "-o", "--out", "directory", type=PLACE, help="Directory for report.json and report.html."
)
@click.option(
    "--title", type=TEXT, default="", help="The report's title. [default: the directory's name]"
)
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
    "--warmup-seconds",
    type=click.FloatRange(0),
    default=2.0,
    show_default=True,
    help="Seconds of warm-up at most, until the times are stable.",
)
@click.option(
    "--runtime",
    "runtimes",
    type=RUNTIME,
    metavar="NAME",
    multiple=True,
    help="Where to measure: litert, tflite-runtime==VERSION, tensorflow==VERSION, ssh:USER@HOST, "
    "adb:SERIAL, web; tfserving:URL serves the baseline. Repeatable. [default: litert]",
)
@click.option(
    "--accelerator",
    type=click.Choice(ACCELERATORS),
    default="interpreter",
    show_default=True,
    help="LiteRT's interpreter, or its CompiledModel.",
)
@click.option(
    "--python",
    type=PROGRAM,
    metavar="FILE",
    default="",
    help="The Python that has the runtime, here or there. [default: the usual one]",
)
@click.option(
    "--binary",
    type=PROGRAM,
    metavar="FILE",
    default="",
    help="The benchmark_model that is put on an Android device.",
)
@click.option(
    "--metric",
    "metrics",
    type=METRIC,
    metavar="NAME",
    multiple=True,
    shell_complete=one_of(METRICS),
    help="What accuracy is: " + ", ".join(METRICS) + ", or module:function. Repeatable. "
    "[default: top1]",
)
@click.option(
    "--serving-warmup",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Write N of the samples into the SavedModel as TensorFlow Serving's warm-up requests.",
)
@click.option("--profile", is_flag=True, help="The time of each operator, too.")
@click.option("--layers", is_flag=True, help="The error of each layer beside float32, too.")
@click.option(
    "--interpreter-threads",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Threads of the interpreter that is measured.",
)
@execution_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Measure MODELS beside the trained baseline.

    MODELS are .tflite files, or directories that `edgeconv convert` published in. Every
    model runs in fresh processes of its own, in rounds in which all take turns; size,
    latency with its raw samples, peak memory and accuracy go into the report. Exit code 4
    if a model did not run.
    """
    with progress(quiet=options["quiet"]) as on_progress:
        report = bench_of(ctx, on_progress)
    _show(report, options["directory"], as_json=options["as_json"])
    ctx.exit(4 if any(row.error for row in report.measurements) else 0)


def bench_of(
    ctx: click.Context, on_progress: Callable[[str], None], *, is_timed: bool = True
) -> Report:
    """The report that a context of the command asks for. Raises an `EdgeconvError`.

    Without `is_timed` there are no times and no memory in it.
    """
    from edgeconv.measure.bench import bench
    from edgeconv.types import Measuring, Timing

    options = ctx.params
    training = options["training"]
    return bench(
        options["models"],
        data_source=options["data_source"],
        preprocess=options["preprocess"],
        samples=options["samples"],
        baseline=options["baseline"],
        opening=opening(options),
        signature=options["signature"],
        training=_record(Path(training)) if training else None,
        measuring=Measuring(
            rounds=options["rounds"],
            timing=Timing(
                warmup=options["warmup"],
                warmup_seconds=options["warmup_seconds"],
                repeats=options["repeats"],
                seconds=options["seconds"],
            ),
            is_timed=is_timed,
            **{name: options[name] for name in _MEASURING},
            threads=options["interpreter_threads"],
        ),
        execution=execution(options),
        command=command_line(ctx),
        on_progress=on_progress,
    )


def _record(path: Path) -> Any:
    """The training record in a file. Raises `InputRefused`, also for one of an older version."""
    from edgeconv.errors import InputRefused
    from edgeconv.store import read_noun
    from edgeconv.types import TrainingRecord

    try:
        return read_noun(path, TrainingRecord, what="training record")
    except InputRefused as error:
        hint = "give the N.training.json that this version's `edgeconv train` wrote, or none"
        raise InputRefused(error.message, hint=hint) from error


def _show(report: Any, directory: str | None, *, as_json: bool) -> None:
    from edgeconv.reporting.files import write_report
    from edgeconv.reporting.text import report_table
    from edgeconv.store import writable_directory

    written: tuple[Path, ...] = ()
    if directory is not None:
        target = Path(directory).absolute()
        writable_directory(target)
        written = write_report(report, target)
    if as_json:
        echo_json(report)
        return
    echo_page(report_table(report, **terminal()))
    for path in written:
        echo(f"report: {path}")
