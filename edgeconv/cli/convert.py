"""edgeconv convert."""

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
from edgeconv.cli.post_training import post_training, post_training_options
from edgeconv.cli.printing import echo_failed, echo_page
from edgeconv.cli.progress import progress
from edgeconv.cli.qat import qat, qat_options
from edgeconv.cli.values import KEYED_SOURCE, NAMES, PLACE, SOURCE, STEPS, TEXT, one_of
from edgeconv.types import EVERY_RECIPE, Engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.types import Conversion


@click.command("convert", cls=Configured)
@click.argument("model", type=PLACE)
@click.option(
    "-o",
    "--out",
    "directory",
    type=PLACE,
    help="Directory to publish in. [default: NAME.tflites]",
)
@click.option(
    "--to",
    type=NAMES,
    required=True,
    shell_complete=one_of(("all", *EVERY_RECIPE)),
    help="Recipes, comma-separated: float32, float16, dynamic, weight-only-int8, int8, int16x8; "
    "all for these; weight-only-int4, int8x4 (weights of 4 bits); and qat, quantisation-aware "
    "training to int8.",
)
@click.option(
    "--calibration",
    "calibrations",
    type=KEYED_SOURCE,
    multiple=True,
    metavar="[KEY=]SOURCE",
    help="Samples to calibrate and verify with: a file, a directory or KIND:PLACE, with "
    "?INPUT=ARRAY to rename; see docs/data.md. int8 and int16x8 need them. KEY= is for one "
    "signature of several.",
)
@click.option(
    "--preprocess",
    type=STEPS,
    default="none",
    metavar="STEPS",
    help="What is done to each stored sample, as in 'resize=224x224&scale=1/127.5&mean=1', or a "
    ".toml file; see docs/data.md. It goes into the manifest, and `bench` does it too.",
)
@click.option(
    "--training",
    type=SOURCE,
    default="",
    metavar="SOURCE",
    help="Samples with labels that qat trains on; they calibrate too, without --calibration.",
)
@click.option(
    "--samples",
    type=int,
    help="How many samples calibrate. [default: all but up to 8, which are held back to verify]",
)
@click.option(
    "--io",
    "io_types",
    type=TEXT,
    multiple=True,
    metavar="TYPE",
    help="Input and output type of the full-integer recipes: float32, int8, uint8 or (int16x8) "
    "int16; input=TYPE or output=TYPE sets one side. [default: float32]",
)
@click.option(
    "--signature",
    "signatures",
    type=TEXT,
    multiple=True,
    metavar="KEY",
    help="The signature to convert, if there are several. More than one, or `all`, go into one "
    "file.",
)
@click.option("--batch", type=int, help="Fix a dynamic batch dimension to this.")
@click.option(
    "--shape",
    "shapes",
    type=TEXT,
    multiple=True,
    metavar="INPUT=AxBxC",
    help="Fix the dynamic dimensions of an input, the batch included; ? leaves one as it is.",
)
@click.option(
    "--target-runtime",
    type=TEXT,
    default="litert",
    show_default=True,
    metavar="RUNTIME",
    help="Prove the files on this runtime too: litert, litert==2.1.0, tflite-runtime==2.14.0. "
    "It is installed in an environment of its own, once.",
)
@click.option(
    "--allow-select-ops",
    is_flag=True,
    help="Allow operators that only TensorFlow has. They run where the Select-TF (Flex) delegate "
    "is linked, and are verified in a TensorFlow that has it, installed once.",
)
@click.option("--engine", type=click.Choice(get_args(Engine)), default="auto", show_default=True)
@post_training_options
@click.option(
    "--allow-float",
    type=NAMES,
    default="",
    metavar="OPERATORS",
    help="Operators that a full-integer recipe may leave in float, comma-separated; * for any.",
)
@click.option(
    "--min-snr-db",
    type=float,
    help="Lowest signal-to-noise ratio of an output against the float model that is published. "
    "[default: by recipe]",
)
@qat_options
@opening_options
@execution_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Convert MODEL to .tflite files, each verified before it is published.

    MODEL is a SavedModel directory (or its versioned parent), a .keras or .h5 file, or a
    float .tflite; qat needs the layers, so a Keras file or a SavedModel that tf_keras saved.
    Beside each .tflite goes a JSON manifest of all that is known of it. What is up to date
    already is left alone.
    """
    with progress(quiet=options["quiet"]) as on_progress:
        conversion = convert_of(ctx, on_progress)
    _show(conversion, as_json=options["as_json"])
    ctx.exit(4 if conversion.failures else 0)


def convert_of(ctx: click.Context, on_progress: Callable[[str], None]) -> Conversion:
    """The conversion that a context of the command asks for. Raises an `EdgeconvError`."""
    from edgeconv.conversion.convert import convert
    from edgeconv.data import parse_preprocessing
    from edgeconv.requests.convert import ConvertRequest, by_signature, io_pair, named_shapes
    from edgeconv.runtimes.choice import parse_target_runtime
    from edgeconv.types import Steps

    options = ctx.params
    input_type, output_type = io_pair(options["io_types"])
    keys = options["signatures"]
    asked = ConvertRequest(
        model=options["model"],
        directory=options["directory"],
        to=tuple(comma_list(options["to"])),
        engine=options["engine"],
        input_type=input_type,
        output_type=output_type,
        allow_float=tuple(comma_list(options["allow_float"])),
        min_snr_db=options["min_snr_db"],
        **post_training(options),
        qat=qat(ctx),
        calibration=by_signature(options["calibrations"], {("signature",): keys}),
        samples=options["samples"],
        preprocess=Steps(by_input=parse_preprocessing(options["preprocess"])),
        training=options["training"],
        signature=keys,
        batch=options["batch"],
        shapes=named_shapes(options["shapes"]),
        select_ops=options["allow_select_ops"],
        target_runtime=parse_target_runtime(options["target_runtime"]),
        opening=opening(options),
        execution=execution(options),
    )
    return convert(asked, on_progress=on_progress)


def _show(conversion: Any, *, as_json: bool) -> None:
    if as_json:
        echo_json(conversion)
        return
    from edgeconv.reporting.text import conversion_table

    echo_page(conversion_table(conversion, **terminal()))
    for failure in conversion.failures:
        echo_failed(failure)
