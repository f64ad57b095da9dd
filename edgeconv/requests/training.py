"""The options of everything that trains: what it runs on, and quantization-aware training."""

from __future__ import annotations

from typing import Annotated, Any

from edgeconv.errors import UsageError
from edgeconv.requests.option import Group, Option, Within
from edgeconv.requests.texts import ADDRESS, NAMES, TEXT
from edgeconv.types import Qat

_RUNS_ON: Group = "Distribution"
_TRAINS: Group = "Quantization-aware training"


def _devices(names: tuple[str, ...], _: Any) -> tuple[tuple[str, ...], int]:
    """The names, or how many devices a number asks for. Raises `UsageError`."""
    if len(names) != 1 or not names[0].isdecimal():
        return names, 0
    if not int(names[0]):
        raise UsageError("--devices 0", hint="at least 1 is needed")
    return (), int(names[0])


def _said_devices(pair: tuple[tuple[str, ...], int]) -> str | None:
    names, count = pair
    return str(count) if count else ",".join(names) or None


def _or_none(count: int) -> int | None:
    return count or None


DISTRIBUTION = Within(
    strategy=Option(group=_RUNS_ON),
    workers=Option(
        group=_RUNS_ON,
        least=1,
        say=_or_none,
        help="Start so many local processes, with TF_CONFIG set: for multiworker and "
        "parameter-server. Without it, TF_CONFIG says what the cluster is.",
    ),
    servers=Option(
        group=_RUNS_ON,
        least=1,
        say=_or_none,
        help="With --workers and parameter-server: how many parameter servers. [default: 1]",
    ),
    devices=Option(
        group=_RUNS_ON,
        text=NAMES,
        make=_devices,
        say=_said_devices,
        also="device_count",
        metavar="N|NAMES",
        help="How many GPUs or, without a GPU, logical CPU devices; or which, as GPU:0,GPU:2. "
        "[default: all GPUs, or 2 CPU devices]",
    ),
    cross_device_ops=Option(group=_RUNS_ON, help="How mirrored sums gradients."),
    communication=Option(group=_RUNS_ON, help="How multiworker does."),
    tpu=Option(group=_RUNS_ON, text=ADDRESS, metavar="NAME", help="The TPU's name or address."),
    gpu_memory_growth=Option(group=_RUNS_ON, help="Take a GPU's memory as it is needed."),
    gpu_memory_limit_mib=Option(
        group=_RUNS_ON, least=1, say=_or_none, help="Take no more than this of a GPU's."
    ),
    connect_timeout_s=Option(
        group=_RUNS_ON,
        least=0,
        is_above=True,
        help="How long to wait for the other members of a cluster.",
    ),
)


def _freeze(text: str, _: Any) -> int | None:
    if text == "never":
        return None
    if not text.isdecimal():
        raise UsageError(f"--qat-freeze-batch-norm {text}: a number of epochs, or never")
    return int(text)


def _said_freeze(epochs: int | None) -> str:
    return "never" if epochs is None else str(epochs)


# None where nothing of it was given.
Trained = Annotated[
    Qat | None,
    Within(
        target=Option(
            name="qat-target",
            group=_TRAINS,
            help="Train to the samples' labels, or to what the float model answers.",
        ),
        epochs=Option(name="qat-epochs", group=_TRAINS, least=1),
        learning_rate=Option(name="qat-learning-rate", group=_TRAINS),
        global_batch=Option(
            name="qat-batch",
            group=_TRAINS,
            least=1,
            help="Samples a step, shared among the replicas.",
        ),
        seed=Option(name="qat-seed", group=_TRAINS),
        layers=Option(
            name="qat-layers",
            group=_TRAINS,
            text=NAMES,
            metavar="NAMES",
            help="Layers to quantise, comma-separated names or patterns, as conv*. [default: all]",
        ),
        warmup_steps=Option(
            name="qat-warmup-steps",
            group=_TRAINS,
            least=0,
            help="Steps that find the ranges before the weights change.",
        ),
        freeze_batch_norm_after=Option(
            text=TEXT,
            name="qat-freeze-batch-norm",
            group=_TRAINS,
            takes="text",
            make=_freeze,
            say=_said_freeze,
            metavar="EPOCHS|never",
            help="After so many epochs batch normalisation follows its batches no more.",
        ),
        validation_fraction=Option(
            name="qat-validation-fraction",
            group=_TRAINS,
            help="Keep this share of the training samples apart, and the best epoch by them.",
        ),
        patience=Option(
            name="qat-patience",
            group=_TRAINS,
            least=1,
            help="End after so many epochs without a better one.",
        ),
        prune=Option(group=_TRAINS, metavar="SHARE", help="Train to this share of zeros first."),
        cluster=Option(
            group=_TRAINS,
            least=2,
            metavar="N",
            help="Train to so many different weights a layer first.",
        ),
        fine_tune_epochs=Option(
            name="qat-fine-tune-epochs",
            group=_TRAINS,
            least=1,
            help="Epochs of the training for --prune, and for --cluster.",
        ),
        distribution=DISTRIBUTION,
    ),
]
