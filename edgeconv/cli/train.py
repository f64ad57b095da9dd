"""edgeconv train."""

from __future__ import annotations

from typing import Any, get_args

import click

from edgeconv.cli.configured import Configured
from edgeconv.cli.distribution import distribution, distribution_options
from edgeconv.cli.options import (
    CUSTOM,
    NO_LIMIT,
    allowance,
    allowance_options,
    echo_json,
    printing_options,
    terminal,
)
from edgeconv.cli.printing import echo_page
from edgeconv.cli.progress import progress
from edgeconv.cli.values import TREE
from edgeconv.types import LoopName


@click.command("train", cls=Configured)
@click.argument("module")
@click.option(
    "-o",
    "--out",
    "directory",
    type=TREE,
    help="Where MODULE/1, MODULE/2, … go; may be remote, as gs://bucket/models. [default: "
    "AIP_MODEL_DIR, where Vertex AI sets it, else here]",
)
@click.option("--data", type=TREE, metavar="PLACE", help="The file or directory that MODULE reads.")
@distribution_options("mirrored")
@click.option(
    "--loop",
    type=click.Choice(get_args(LoopName)),
    default="fit",
    show_default=True,
    help="Keras's fit, or a custom training loop on strategy.run.",
)
@click.option("--epochs", type=click.IntRange(1), help="[default: the module's]")
@click.option(
    "--steps-per-epoch", type=click.IntRange(1), help="[default: one pass over the samples]"
)
@click.option(
    "--global-batch",
    type=click.IntRange(1),
    help="Samples a step, shared among the replicas. [default: the module's]",
)
@click.option("--learning-rate", type=float, help="[default: the module's]")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--validation-fraction",
    type=float,
    default=0.0,
    help="Keep this share of the training samples apart, and the best epoch by them.",
)
@click.option(
    "--patience", type=click.IntRange(1), help="End after so many epochs without a better one."
)
@click.option(
    "--checkpoint-dir",
    "checkpoints",
    type=TREE,
    help="Where checkpoints are kept, also when it is done. [default: AIP_CHECKPOINT_DIR, else "
    "beside the model until it is there]",
)
@click.option(
    "--checkpoint-steps",
    type=click.IntRange(1),
    help="Keep one every so many steps, besides the one after each epoch.",
)
@click.option(
    "--tensorboard-dir",
    "tensorboard",
    type=TREE,
    help="[default: AIP_TENSORBOARD_LOG_DIR, else none]",
)
@CUSTOM
@allowance_options(NO_LIMIT)
@printing_options
def command(module: str, directory: str | None, **options: Any) -> None:
    """Train the baseline MODULE, evaluate it and export it as the next version of a SavedModel.

    MODULE is a model of edgeconv (digits_cnn, mnist_cnn, spoken_digits, cifar_mobilenet,
    bert_mlm), a file ending in .py or a module that Python finds; see docs/training.md. Beside
    the SavedModel MODULE/N go the Keras file MODULE/N.keras and the record
    MODULE/N.training.json. A training that was killed goes on from its last checkpoint when
    the same command is run again.
    """
    from edgeconv.training.baseline import train
    from edgeconv.types import Training

    names = (
        *("data", "loop", "epochs", "steps_per_epoch", "checkpoint_steps", "global_batch"),
        *("learning_rate", "validation_fraction", "patience", "seed", "custom_objects"),
    )
    training = Training(
        module=module,
        distribution=distribution(options),
        **{name: options[name] for name in names},
    )
    with progress(quiet=options["quiet"], keep=True) as on_progress:
        record = train(
            training,
            directory,
            checkpoints=options["checkpoints"],
            tensorboard=options["tensorboard"],
            allowance=allowance(options),
            on_progress=on_progress,
        )
    if record is None:
        return
    if options["as_json"]:
        echo_json(record)
        return
    from edgeconv.reporting.text import training_table

    echo_page(training_table(record, **terminal()))
