"""`edgeconv doctor`: which preprocessing a model was trained with."""

from __future__ import annotations

from typing import Any

import click

from edgeconv.cli.configured import Configured
from edgeconv.cli.options import (
    echo_json,
    execution,
    execution_options,
    opening,
    opening_options,
    terminal,
)
from edgeconv.cli.printing import echo_page
from edgeconv.cli.progress import progress
from edgeconv.cli.values import PLACE, STEPS, TEXT


@click.command("doctor", cls=Configured)
@click.argument("model", type=PLACE)
@click.argument("data_source", metavar="DATA")
@click.option(
    "--preprocess",
    type=STEPS,
    metavar="STEPS",
    help="What is done to each stored sample now; its shapes are kept. [default: what the "
    "manifest says, else nothing]",
)
@click.option(
    "--samples",
    type=int,
    help="How many samples, by a fixed seed, in equal shares of the labels. [default: 48]",
)
@click.option("--signature", type=TEXT, help="The signature to run, if there are several.")
@click.option(
    "--output", type=TEXT, help="The output that the labels are for, if there are several."
)
@opening_options
@execution_options
@click.pass_context
def command(ctx: click.Context, /, model: str, data_source: str, **options: Any) -> None:
    """Find out which preprocessing MODEL was trained with, by labelled samples.

    MODEL is a SavedModel, a .keras, .h5 or .hdf5 file, or a .tflite; DATA a SOURCE with labels.
    The plausible scales, means and orders of colours are tried on a few dozen samples, and the
    text for --preprocess is named with which the model is right. Exit code 1 if there is none.
    """
    from edgeconv.measure.doctoring.doctor import doctor
    from edgeconv.reporting.diagnosis import diagnosis_lines

    with progress(quiet=options["quiet"]) as on_progress:
        diagnosis = doctor(
            model,
            data_source,
            preprocess=options["preprocess"],
            samples=options["samples"],
            signature=options["signature"],
            output=options["output"],
            opening=opening(options),
            execution=execution(options),
            on_progress=on_progress,
        )
    if options["as_json"]:
        echo_json(diagnosis)
    else:
        echo_page(diagnosis_lines(diagnosis, **terminal()))
    ctx.exit(0 if diagnosis.ok else 1)
