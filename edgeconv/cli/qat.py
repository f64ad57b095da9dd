"""The options of quantisation-aware training, and the value they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from edgeconv.cli.distribution import distribution, distribution_options
from edgeconv.cli.values import NAMES, TEXT
from edgeconv.types import Qat, QatTarget

if TYPE_CHECKING:
    from collections.abc import Callable

_DEFAULT = Qat()
# Of each option: the setting that it is.
_SETTINGS = {
    "qat_target": "target",
    "qat_epochs": "epochs",
    "qat_fine_tune_epochs": "fine_tune_epochs",
    "qat_learning_rate": "learning_rate",
    "qat_batch": "global_batch",
    "qat_seed": "seed",
    "qat_warmup_steps": "warmup_steps",
    "qat_validation_fraction": "validation_fraction",
    "qat_patience": "patience",
    "prune": "prune",
    "cluster": "cluster",
}
_OPTIONS = (
    click.option(
        "--qat-target",
        type=click.Choice(get_args(QatTarget)),
        default=_DEFAULT.target,
        show_default=True,
        help="Train to the samples' labels, or to what the float model answers.",
    ),
    click.option(
        "--qat-epochs", type=click.IntRange(1), default=_DEFAULT.epochs, show_default=True
    ),
    click.option(
        "--qat-learning-rate", type=float, default=_DEFAULT.learning_rate, show_default=True
    ),
    click.option(
        "--qat-batch",
        type=click.IntRange(1),
        default=_DEFAULT.global_batch,
        show_default=True,
        help="Samples a step, shared among the replicas.",
    ),
    click.option("--qat-seed", type=int, default=_DEFAULT.seed, show_default=True),
    click.option(
        "--qat-layers",
        type=NAMES,
        default="",
        metavar="NAMES",
        help="Layers to quantise, comma-separated names or patterns, as conv*. [default: all]",
    ),
    click.option(
        "--qat-warmup-steps",
        type=click.IntRange(0),
        default=_DEFAULT.warmup_steps,
        show_default=True,
        help="Steps that find the ranges before the weights change.",
    ),
    click.option(
        "--qat-freeze-batch-norm",
        type=TEXT,
        default=str(_DEFAULT.freeze_batch_norm_after),
        show_default=True,
        metavar="EPOCHS|never",
        help="After so many epochs batch normalisation follows its batches no more.",
    ),
    click.option(
        "--qat-validation-fraction",
        type=float,
        default=_DEFAULT.validation_fraction,
        show_default=True,
        help="Keep this share of the training samples apart, and the best epoch by them.",
    ),
    click.option(
        "--qat-patience",
        type=click.IntRange(1),
        help="End after so many epochs without a better one.",
    ),
    click.option(
        "--prune", type=float, metavar="SHARE", help="Train to this share of zeros first."
    ),
    click.option(
        "--cluster",
        type=click.IntRange(2),
        metavar="N",
        help="Train to so many different weights a layer first.",
    ),
    click.option(
        "--qat-fine-tune-epochs",
        type=click.IntRange(1),
        default=_DEFAULT.fine_tune_epochs,
        show_default=True,
        help="Epochs of the training for --prune, and for --cluster.",
    ),
)


def qat_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of quantisation-aware training, and of what it runs on."""
    command = distribution_options(_DEFAULT.distribution.strategy)(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def qat(ctx: click.Context) -> Qat | None:
    """The values of `qat_options` as one; None where none was given. Raises `UsageError`."""
    options = ctx.params
    names = {name for option in _own() for name in (option.name,) if name}
    given = [name for name in names if ctx.get_parameter_source(name) != ParameterSource.DEFAULT]
    if not given:
        return None
    from edgeconv.cli.options import comma_list

    return Qat(
        layers=tuple(comma_list(options["qat_layers"])),
        freeze_batch_norm_after=_freeze(options["qat_freeze_batch_norm"]),
        distribution=distribution(options),
        **{setting: options[name] for name, setting in _SETTINGS.items()},
    )


def _own() -> list[click.Parameter]:
    """The parameters that `qat_options` adds."""
    command = click.command()(qat_options(lambda: None))
    return command.params


def _freeze(text: str) -> int | None:
    from edgeconv.errors import UsageError

    if text == "never":
        return None
    if not text.isdecimal():
        raise UsageError(f"--qat-freeze-batch-norm {text}: a number of epochs, or never")
    return int(text)
