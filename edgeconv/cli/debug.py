"""`edgeconv debug`: which layers lose most when a model is quantised."""

from __future__ import annotations

from typing import Any

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
from edgeconv.cli.post_training import post_training, post_training_options
from edgeconv.cli.printing import echo_page
from edgeconv.cli.progress import progress
from edgeconv.cli.values import PLACE, SOURCE, STEPS, TEXT


@click.command("debug", cls=Configured)
@click.argument("model", type=PLACE)
@click.option(
    "--calibration",
    type=SOURCE,
    required=True,
    metavar="SOURCE",
    help="Samples to calibrate and measure with: a file, a directory or KIND:PLACE; see "
    "docs/data.md.",
)
@click.option(
    "--to",
    type=TEXT,
    default="int8",
    show_default=True,
    metavar="RECIPE",
    help="One recipe that quantises: float16, dynamic, weight-only-int8, int8, int16x8, "
    "weight-only-int4 or int8x4.",
)
@click.option(
    "--preprocess",
    type=STEPS,
    default="none",
    metavar="STEPS",
    help="What is done to each stored sample; see docs/data.md.",
)
@click.option(
    "--samples",
    type=int,
    help="How many samples calibrate. [default: all but up to 8]",
)
@click.option(
    "--signature", type=TEXT, metavar="KEY", help="The signature to debug, if there are several."
)
@post_training_options
@click.option(
    "--top",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="How many layers to show, the costliest first. --json has all.",
)
@opening_options
@execution_options
def command(model: str, **options: Any) -> None:
    """Show which layers of MODEL lose most when it is quantised, and which rules help.

    MODEL is anything that `convert` takes: a SavedModel, a .keras, .h5 or .hdf5 file, or a float
    .tflite. Each layer is quantised alone and ranked by what it costs at the outputs, beside the
    error of its own output in the whole quantised file. --layer rules for the worst are tried.
    A file that `convert` would refuse for its outputs is debugged all the same.
    """
    from edgeconv.measure.insides.debug import debug
    from edgeconv.reporting.debugged import debugged_lines

    with progress(quiet=options["quiet"]) as on_progress:
        debugged = debug(
            model,
            options["calibration"],
            recipe(options),
            samples=options["samples"],
            preprocess=options["preprocess"],
            signature=options["signature"],
            opening=opening(options),
            execution=execution(options),
            on_progress=on_progress,
        )
    if options["as_json"]:
        echo_json(debugged)
    else:
        echo_page(debugged_lines(debugged, top=options["top"], **terminal()))


def recipe(options: dict[str, Any]) -> Any:
    """The one recipe that the options ask for. Raises `UsageError`."""
    from edgeconv.errors import UsageError
    from edgeconv.quantize.recipes import make_recipes

    recipes = make_recipes(comma_list(options["to"]), **post_training(options))
    if len(recipes) > 1:
        raise UsageError(
            f"--to {options['to']}: debug looks into one recipe at a time", hint="name one"
        )
    return recipes[0]
