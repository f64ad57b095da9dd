"""`edgeconv tune`: the best artifact within a budget of accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from edgeconv.cli.configured import Configured
from edgeconv.cli.options import (
    comma_list,
    echo_json,
    execution,
    execution_options,
    opening,
    opening_options,
    terminal,
)
from edgeconv.cli.printing import echo_page
from edgeconv.cli.progress import progress
from edgeconv.cli.values import METRIC, NAMES, PLACE, RUNTIME, SOURCE, STEPS, TEXT
from edgeconv.plugins import METRICS
from edgeconv.types import Objective

if TYPE_CHECKING:
    from edgeconv.tuning.asked import Wanted


@click.command("tune", cls=Configured)
@click.argument("model", type=PLACE)
@click.option(
    "--data",
    "data_source",
    type=SOURCE,
    required=True,
    metavar="SOURCE",
    help="Samples, with labels for accuracy. One half searches; the other confirms the result, and "
    "nothing of the search sees it.",
)
@click.option(
    "--max-drop",
    type=float,
    required=True,
    metavar="DROP",
    help="What may be lost to the float32 model, in the unit of the metric: 0.005 is half a point "
    "of accuracy.",
)
@click.option(
    "--calibration",
    type=SOURCE,
    default="",
    metavar="SOURCE",
    help="Samples to calibrate with, others than those of --data. [default: up to 500 of the half "
    "that searches, their labels unused]",
)
@click.option(
    "--preprocess",
    type=STEPS,
    default="none",
    metavar="STEPS",
    help="What is done to each stored sample; see docs/data.md.",
)
@click.option(
    "-o", "--out", "directory", type=PLACE, help="Directory to publish in. [default: NAME.tuned]"
)
@click.option(
    "--objective",
    type=click.Choice(get_args(Objective)),
    default="size",
    show_default=True,
    help="What is to be as small as possible: the file, or the time of an invoke.",
)
@click.option(
    "--to",
    "recipes",
    type=NAMES,
    default="",
    metavar="RECIPES",
    help="The recipes to choose from, comma-separated. [default: all; float32 for latency only]",
)
@click.option(
    "--metric",
    type=METRIC,
    default="",
    metavar="NAME",
    help=f"What is to be kept: {', '.join(METRICS)}, or module:function. [default: top1, without "
    "labels the agreement with the float32 model]",
)
@click.option(
    "--output",
    type=TEXT,
    default="",
    help="The output that the labels are for, if there are several.",
)
@click.option(
    "--runtime",
    type=RUNTIME,
    default="litert",
    show_default=True,
    metavar="RUNTIME",
    help="Where the files run; as for `bench`.",
)
@click.option(
    "--signature", type=TEXT, default="", help="The signature to tune, if there are several."
)
@click.option("--batch", type=int, help="Fix a dynamic batch dimension to this.")
@click.option(
    "--samples",
    type=int,
    help="How many samples of --data, by a fixed seed, in equal shares of the labels. "
    "[default: all]",
)
@click.option(
    "--allow-float",
    type=NAMES,
    default="*",
    show_default=True,
    metavar="OPERATORS",
    help="Operators that a full-integer recipe may leave in float, comma-separated; * for any.",
)
@click.option(
    "--trials", type=int, default=40, show_default=True, help="How many recipes are tried at most."
)
@click.option(
    "--time-limit-s",
    type=float,
    default=480.0,
    show_default=True,
    help="How long the search may take, in seconds; to confirm and publish comes on top.",
)
@opening_options
@execution_options
@click.pass_context
def command(ctx: click.Context, /, model: str, data_source: str, **options: Any) -> None:
    """Find the smallest or fastest .tflite of MODEL that loses no more than --max-drop.

    MODEL is what `convert` takes. Precisions and methods are tried, for the whole model and layer
    by layer. The artifact is published with its manifest and with NAME.recipe.toml, from which
    `convert --config` makes the same file. What is killed goes on from there when it is run
    again. Exit code 1 if nothing is within the budget on samples that the search never saw.
    """
    from edgeconv.reporting.tuning import tuning_lines
    from edgeconv.tuning.asked import Limits
    from edgeconv.tuning.flow import tune

    with progress(quiet=options["quiet"]) as on_progress:
        tuning = tune(
            model,
            data_source,
            _wanted(options),
            options["directory"],
            limits=Limits(trials=options["trials"], seconds=options["time_limit_s"]),
            opening=opening(options),
            execution=execution(options),
            on_progress=on_progress,
        )
    if options["as_json"]:
        echo_json(tuning)
    else:
        echo_page(tuning_lines(tuning, **terminal()))
    ctx.exit(0 if tuning.ok else 1)


def _wanted(options: dict[str, Any]) -> Wanted:
    from edgeconv.tuning.asked import Wanted

    return Wanted(
        recipes=tuple(comma_list(options["recipes"])),
        allow_float=tuple(comma_list(options["allow_float"])),
        **{
            name: options[name]
            for name in (
                *("max_drop", "objective", "calibration", "preprocess", "metric", "output"),
                *("runtime", "signature", "batch", "samples"),
            )
        },
    )
