"""The request of `train`, and the options of everything that trains: what it runs on, and QAT."""

import math
from typing import Annotated

from msgspec import Meta

from edgeconv.requests.request import (
    ABOVE_ZERO,
    BELOW_ONE,
    NOT_BELOW_ZERO,
    POSITIVE,
    Argument,
    Data,
    Distributing,
    ForQat,
    Output,
    Quality,
    Request,
    Within,
    out,
)
from edgeconv.requests.shared import CUSTOM, Placed, Sandboxed, Unlimited
from edgeconv.requests.texts import ADDRESS, NAMES, TEXT, TREE
from edgeconv.types import Allowance, Qat, Training
from edgeconv.types.errors import UsageError


def _devices(names: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """The names, or the number of devices. Raises `UsageError`."""
    if len(names) != 1 or not names[0].isdecimal():
        return names, 0
    if not int(names[0]):
        raise UsageError("--devices 0", hint="at least 1 is needed")
    return (), int(names[0])


def _device_text(pair: tuple[tuple[str, ...], int]) -> str | None:
    names, count = pair
    return str(count) if count else ",".join(names) or None


def _or_none(count: int) -> int | None:
    return count or None


DISTRIBUTION = Within(
    strategy=Distributing(
        "none, mirrored, central-storage, multiworker, parameter-server or tpu. The distribution "
        "strategy; see docs/training.md.",
        metavar="NAME",
    ),
    workers=Distributing(
        "Start N local processes, with TF_CONFIG set. For multiworker and parameter-server; "
        "without it, TF_CONFIG describes the cluster.",
        bounds=POSITIVE,
        to_raw=_or_none,
        metavar="N",
    ),
    servers=Distributing(
        "With --workers and parameter-server: how many parameter servers. [default: 1]",
        bounds=POSITIVE,
        to_raw=_or_none,
        metavar="N",
    ),
    devices=Distributing(
        "How many GPUs or logical CPU devices, or which: GPU:0,GPU:2. Without it, all GPUs, or 2 "
        "CPU devices.",
        text=NAMES,
        make=_devices,
        to_raw=_device_text,
        also="device_count",
        metavar="N|NAMES",
    ),
    cross_device_ops=Distributing("How mirrored adds up gradients."),
    communication=Distributing("How multiworker adds up gradients."),
    tpu=Distributing("The TPU's name or address.", text=ADDRESS),
    gpu_memory_growth=Distributing("Take a GPU's memory as it is needed."),
    gpu_memory_limit_mib=Distributing(
        "Take no more than this of a GPU's memory.", bounds=POSITIVE, to_raw=_or_none
    ),
    connect_timeout_s=Distributing(
        "How long to wait for the other members of a cluster, in seconds.", bounds=ABOVE_ZERO
    ),
)


def _freeze(text: str) -> int | None:
    if text == "never":
        return None
    if not text.isdecimal():
        raise UsageError(f"--qat-freeze-batch-norm {text}: must be a number of epochs, or never")
    return int(text)


# None where none of its options is given.
Trained = Annotated[
    Qat | None,
    Within(
        target=ForQat(
            "Train to the samples' labels, or to the float model's outputs.", name="qat-target"
        ),
        epochs=ForQat("Epochs of training.", name="qat-epochs", bounds=POSITIVE),
        learning_rate=ForQat("The learning rate.", name="qat-learning-rate", bounds=ABOVE_ZERO),
        global_batch=ForQat(
            "Samples per step, shared among the replicas.", name="qat-batch", bounds=POSITIVE
        ),
        seed=ForQat("Seed of the order of samples.", name="qat-seed"),
        layers=ForQat(
            "Layers to quantize, comma-separated names or patterns, such as conv*. [default: all]",
            name="qat-layers",
            text=NAMES,
            metavar="NAMES",
        ),
        warmup_steps=ForQat(
            "Steps that find the ranges before the weights change.",
            name="qat-warmup-steps",
            bounds=NOT_BELOW_ZERO,
        ),
        freeze_batch_norm_after=ForQat(
            "The epochs after which batch normalization stops following the batches.",
            name="qat-freeze-batch-norm",
            text=TEXT,
            takes="text",
            make=_freeze,
            to_raw=lambda epochs: "never" if epochs is None else str(epochs),
            metavar="EPOCHS|never",
        ),
        validation_fraction=ForQat(
            "Hold this share of the training samples back; the best epoch on them is kept.",
            name="qat-validation-fraction",
            bounds=BELOW_ONE,
        ),
        patience=ForQat(
            "Stop after N epochs without a better one.",
            name="qat-patience",
            bounds=POSITIVE,
            metavar="N",
        ),
        distribution=DISTRIBUTION,
    ),
]


Trainable = Annotated[
    Training,
    Within(
        module=Argument(text=TEXT),
        data=Data("The file or directory that MODULE reads.", text=TREE, metavar="PATH"),
        distribution=DISTRIBUTION,
        loop=Quality("Keras's fit, or a custom training loop on strategy.run."),
        epochs=Quality("Epochs to train. [default: the module's]", bounds=POSITIVE),
        steps_per_epoch=Quality(
            "Steps per epoch. [default: one pass over the samples]", bounds=POSITIVE
        ),
        global_batch=Quality(
            "Samples per step, shared among the replicas. [default: the module's]", bounds=POSITIVE
        ),
        learning_rate=Quality("The learning rate. [default: the module's]", bounds=ABOVE_ZERO),
        seed=Quality("Seed of weights and order of samples.", bounds=Meta(ge=0, lt=2**32)),
        validation_fraction=Quality(
            "Hold this share of the training samples back. The best epoch on them is kept.",
            bounds=BELOW_ONE,
            is_shown=False,
        ),
        patience=Quality("Stop after N epochs without a better one.", bounds=POSITIVE, metavar="N"),
        checkpoint_steps=Output(
            "Keep a checkpoint every N steps too.", bounds=POSITIVE, metavar="N"
        ),
        custom_objects=CUSTOM,
    ),
]


class TrainRequest(Request, frozen=True, kw_only=True):
    """A baseline to train, and where to.

    `training`: what to train and how, or the module alone. The SavedModel goes to
    `directory`/NAME/N; None takes the current directory, or AIP_MODEL_DIR where that is set, which
    then holds the model itself. `checkpoints`: where they are kept, else in AIP_CHECKPOINT_DIR,
    else next to the model until it is there. `tensorboard`: where its logs go, else to
    AIP_TENSORBOARD_LOG_DIR. `on`: the cluster of Ray that the members run on.
    """

    training: Trainable
    directory: Annotated[
        str | None,
        out(
            "Directory for MODULE/1, MODULE/2, … It may be remote, such as gs://bucket/models. "
            "[default: AIP_MODEL_DIR, which Vertex AI sets, else here]",
            TREE,
        ),
    ] = None
    checkpoints: Annotated[
        str | None,
        Output(
            "Directory for the checkpoints. [default: AIP_CHECKPOINT_DIR, else next to the model "
            "until it is exported]",
            name="checkpoint-dir",
            text=TREE,
            is_output=True,
        ),
    ] = None
    tensorboard: Annotated[
        str | None,
        Output(
            "Directory for TensorBoard's logs. [default: AIP_TENSORBOARD_LOG_DIR, else none]",
            name="tensorboard-dir",
            text=TREE,
            is_output=True,
        ),
    ] = None
    on: Placed = None
    allowance: Unlimited = Allowance(timeout_s=math.inf)
    sandbox: Sandboxed = None
