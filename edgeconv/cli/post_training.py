"""The options of post-training quantisation, and what they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from edgeconv.cli.options import comma_list
from edgeconv.cli.values import NAMES, TEXT
from edgeconv.types import CalibrationRange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OPTIONS = (
    click.option(
        "--calibration-range",
        type=click.Choice(get_args(CalibrationRange)),
        default="minmax",
        show_default=True,
        help="True minima and maxima; an exponential moving average of them, which clips; without "
        "the rarest values; of the least squared error; of the least lost information; or the one "
        "of these that does best on held-back calibration samples. See docs/methods.md.",
    ),
    click.option(
        "--methods",
        type=NAMES,
        default=None,
        metavar="METHODS",
        help="Post-training methods of the quantised recipes, comma-separated: equalisation, "
        "rounding, bias-correction; or auto, those that do good on held-back calibration samples; "
        "or none. [default: auto for weights of 4 bits, else none]",
    ),
    click.option(
        "--layer",
        "layers",
        type=TEXT,
        multiple=True,
        metavar="PATTERN=PRECISION",
        help="Another precision for some layers: float32, float16, int16x8, int8, int4, or "
        "int4-block32 (a scale for every 32 weights; FULLY_CONNECTED of dynamic). PATTERN is "
        "an operator such as CONV_2D, or a layer's name with * and ?; `edgeconv debug` lists them.",
    ),
)


def post_training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the commands that quantise by recipes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def post_training(options: Mapping[str, Any]) -> dict[str, Any]:
    """Their values as `make_recipes` takes them. Raises `UsageError`."""
    from edgeconv.quantize.rules import parse_rule

    return {
        "calibration_range": options["calibration_range"],
        "methods": None if options["methods"] is None else tuple(comma_list(options["methods"])),
        "layers": tuple(parse_rule(text) for text in options["layers"]),
    }
