"""The request of `train`."""

from __future__ import annotations

import math
from typing import Annotated

from edgeconv.requests.option import Option, Within
from edgeconv.requests.request import Request
from edgeconv.requests.shared import CUSTOM, Placed, Sandboxed, Unlimited
from edgeconv.requests.texts import TEXT, TREE
from edgeconv.requests.training import DISTRIBUTION
from edgeconv.types import Allowance, Training

Trainable = Annotated[
    Training,
    Within(
        module=Option(text=TEXT, is_argument=True),
        data=Option(
            "Data",
            "The file or directory that MODULE reads.",
            text=TREE,
            metavar="PATH",
            is_common=True,
        ),
        distribution=DISTRIBUTION,
        loop=Option("Quality", "Keras's fit, or a custom training loop on strategy.run."),
        epochs=Option(
            "Quality", "Epochs to train. [default: the module's]", least=1, is_common=True
        ),
        steps_per_epoch=Option(
            "Quality", "Steps per epoch. [default: one pass over the samples]", least=1
        ),
        global_batch=Option(
            "Quality",
            "Samples per step, shared among the replicas. [default: the module's]",
            least=1,
            is_common=True,
        ),
        learning_rate=Option(
            "Quality", "The learning rate. [default: the module's]", is_common=True
        ),
        seed=Option("Quality", "Seed of weights and order of samples.", is_common=True),
        validation_fraction=Option(
            "Quality",
            "Hold this share of the training samples back. The best epoch on them is kept.",
            is_shown=False,
            is_common=True,
        ),
        patience=Option(
            "Quality", "Stop after N epochs without a better one.", least=1, metavar="N"
        ),
        checkpoint_steps=Option(
            "Output", "Keep a checkpoint every N steps too.", least=1, metavar="N"
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
        Option(
            "Output",
            "Directory for MODULE/1, MODULE/2, … It may be remote, such as gs://bucket/models. "
            "[default: AIP_MODEL_DIR, which Vertex AI sets, else here]",
            name="out",
            short="o",
            text=TREE,
            is_output=True,
            is_common=True,
        ),
    ] = None
    checkpoints: Annotated[
        str | None,
        Option(
            "Output",
            "Directory for the checkpoints. [default: AIP_CHECKPOINT_DIR, else next to the model "
            "until it is exported]",
            name="checkpoint-dir",
            text=TREE,
            is_output=True,
            is_common=True,
        ),
    ] = None
    tensorboard: Annotated[
        str | None,
        Option(
            "Output",
            "Directory for TensorBoard's logs. [default: AIP_TENSORBOARD_LOG_DIR, else none]",
            name="tensorboard-dir",
            text=TREE,
            is_output=True,
        ),
    ] = None
    on: Placed = None
    allowance: Unlimited = Allowance(timeout_s=math.inf)
    sandbox: Sandboxed = None
