"""`edgeconv debug`: which layers lose most when a model is quantised."""

from __future__ import annotations

from typing import Any, get_args

import click

from edgeconv.cli.configured import Configured
from edgeconv.cli.options import comma_list, echo_json, execution, execution_options, terminal
from edgeconv.cli.progress import progress
from edgeconv.cli.values import NAMES, SOURCE, STEPS
from edgeconv.nouns import CalibrationRange


@click.command("debug", cls=Configured)
@click.argument("model")
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
@click.option("--signature", metavar="KEY", help="The signature to debug, if there are several.")
@click.option(
    "--calibration-range",
    type=click.Choice(get_args(CalibrationRange)),
    default="minmax",
    show_default=True,
    help="How the ranges of activations are found; see docs/methods.md.",
)
@click.option(
    "--methods",
    type=NAMES,
    default=None,
    metavar="METHODS",
    help="Post-training methods, as in `convert`. [default: auto for weights of 4 bits, else none]",
)
@click.option(
    "--layer",
    "layers",
    multiple=True,
    metavar="PATTERN=PRECISION",
    help="Another precision for some layers, as in `convert`.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="How many layers to show, the costliest first. --json has all.",
)
@execution_options
def command(model: str, **options: Any) -> None:
    """Show which layers of MODEL lose most when it is quantised, and which rules help.

    MODEL is anything that `convert` takes: a SavedModel, a .keras, .h5 or .hdf5 file, or a float
    .tflite. Each layer is quantised alone and ranked by what it costs at the outputs, beside the
    error of its own output in the whole quantised file. --layer rules for the worst are tried.
    A file that `convert` would refuse for its outputs is debugged all the same.
    """
    from edgeconv.measure.insides.debug import debug
    from edgeconv.report.debugged import debugged_lines

    with progress(quiet=options["quiet"]) as on_progress:
        debugged = debug(
            model,
            options["calibration"],
            recipe(options),
            samples=options["samples"],
            preprocess=options["preprocess"],
            signature=options["signature"],
            execution=execution(options),
            on_progress=on_progress,
        )
    if options["as_json"]:
        echo_json(debugged)
    else:
        click.echo(debugged_lines(debugged, top=options["top"], **terminal()))


def recipe(options: dict[str, Any]) -> Any:
    """The one recipe that the options ask for. Raises `UsageError`."""
    from edgeconv.errors import UsageError
    from edgeconv.quantize.recipes import make_recipes
    from edgeconv.quantize.rules import parse_rule

    recipes = make_recipes(
        comma_list(options["to"]),
        calibration_range=options["calibration_range"],
        methods=None if options["methods"] is None else comma_list(options["methods"]),
        layers=[parse_rule(text) for text in options["layers"]],
    )
    if len(recipes) > 1:
        raise UsageError(
            f"--to {options['to']}: debug looks into one recipe at a time", hint="name one"
        )
    return recipes[0]
