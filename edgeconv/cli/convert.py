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
from edgeconv.types import EVERY_RECIPE, Engine, IoType

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.types import Conversion

_SIDES = ("input", "output")


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
    from edgeconv.quantize.recipes import make_recipes

    options = ctx.params
    input_type, output_type = io_pair(options["io_types"])
    recipes = make_recipes(
        comma_list(options["to"]),
        engine=options["engine"],
        input_type=input_type,
        output_type=output_type,
        allow_float=comma_list(options["allow_float"]),
        min_snr_db=options["min_snr_db"],
        **post_training(options),
        qat=qat(ctx),
    )
    return convert(
        options["model"],
        options["directory"],
        recipes,
        calibration=by_signature(options["calibrations"], options["signatures"]),
        samples=options["samples"],
        preprocess=options["preprocess"],
        training=options["training"],
        signature=options["signatures"],
        batch=options["batch"],
        shapes=dict(map(named_shape, options["shapes"])),
        select_ops=options["allow_select_ops"],
        target_runtime=options["target_runtime"],
        opening=opening(options),
        execution=execution(options),
        on_progress=on_progress,
    )


def io_pair(texts: tuple[str, ...]) -> tuple[IoType, IoType]:
    """The input and output type that `--io` asks for. Raises `UsageError`."""
    from edgeconv.errors import UsageError, unknown_name

    chosen: dict[str, Any] = {}
    for text in texts:
        side, equals, io_type = text.rpartition("=")
        if io_type not in get_args(IoType):
            raise unknown_name("--io type", io_type, get_args(IoType))
        if equals and side not in _SIDES:
            raise unknown_name("--io side", side, _SIDES)
        for name in [side] if equals else _SIDES:
            if chosen.get(name, io_type) != io_type:
                raise UsageError(f"--io gives the {name} two types: {chosen[name]} and {io_type}")
            chosen[name] = io_type
    return chosen.get("input", "float32"), chosen.get("output", "float32")


def by_signature(texts: tuple[str, ...], keys: tuple[str, ...]) -> dict[str, str]:
    """The SOURCE of each signature, "" for all that are not named. Raises `UsageError`.

    What stands before a = is a signature only where several were asked for, and it is a
    plain name: a path may have a = in it.
    """
    from edgeconv.errors import UsageError

    sources: dict[str, str] = {}
    for text in texts:
        key, equals, source = text.partition("=")
        named = bool(equals) and key.isidentifier() and (key in keys or "all" in keys)
        name = key if named else ""
        if name in sources:
            what = f"signature {name!r}" if name else "every signature"
            raise UsageError(
                f"--calibration gives {what} two sources", hint="--calibration KEY=SOURCE for each"
            )
        sources[name] = source if named else text
    return sources


def named_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """An input and its shape from `image=1x224x224x3`, -1 for a ?. Raises `UsageError`."""
    from edgeconv.errors import UsageError

    name, _, sizes = text.rpartition("=")
    parts = sizes.split("x")
    if not name or not all(part == "?" or (part.isdecimal() and int(part)) for part in parts):
        raise UsageError(
            f"--shape {text}: not of the form INPUT=AxBxC", hint="as in --shape image=1x224x224x3"
        )
    return name, tuple(-1 if part == "?" else int(part) for part in parts)


def _show(conversion: Any, *, as_json: bool) -> None:
    if as_json:
        echo_json(conversion)
        return
    from edgeconv.reporting.text import conversion_table

    echo_page(conversion_table(conversion, **terminal()))
    for failure in conversion.failures:
        echo_failed(failure)
