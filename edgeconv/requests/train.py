"""What `train` is asked."""

from __future__ import annotations

import math
from typing import Annotated

from edgeconv.requests.option import Option, Within
from edgeconv.requests.request import Request
from edgeconv.requests.shared import CUSTOM, Sandboxed, Unlimited
from edgeconv.requests.texts import TEXT, TREE
from edgeconv.requests.training import DISTRIBUTION
from edgeconv.types import Allowance, Training

Taught = Annotated[
    Training,
    Within(
        module=Option(text=TEXT, is_argument=True),
        data=Option(
            group="Data",
            text=TREE,
            metavar="PLACE",
            help="The file or directory that MODULE reads.",
        ),
        distribution=DISTRIBUTION,
        loop=Option(
            group="Quality",
            help="Keras's fit, or a custom training loop on strategy.run.",
        ),
        epochs=Option(group="Quality", least=1, help="[default: the module's]"),
        steps_per_epoch=Option(
            group="Quality", least=1, help="[default: one pass over the samples]"
        ),
        global_batch=Option(
            group="Quality",
            least=1,
            help="Samples a step, shared among the replicas. [default: the module's]",
        ),
        learning_rate=Option(group="Quality", help="[default: the module's]"),
        seed=Option(group="Quality"),
        validation_fraction=Option(
            group="Quality",
            is_shown=False,
            help="Keep this share of the training samples apart, and the best epoch by them.",
        ),
        patience=Option(
            group="Quality", least=1, help="End after so many epochs without a better one."
        ),
        checkpoint_steps=Option(
            group="Output",
            least=1,
            help="Keep one every so many steps, besides the one after each epoch.",
        ),
        custom_objects=CUSTOM,
    ),
]


class TrainRequest(Request, frozen=True, kw_only=True):
    """A baseline to train, and where to.

    `training`: what to train and how, or the module alone. The SavedModel goes to
    `directory`/NAME/N; None takes the current directory, or AIP_MODEL_DIR where that is set, in
    which the model goes into the directory itself. `checkpoints`: where they are kept, else in
    AIP_CHECKPOINT_DIR, else beside the model and only until it is there. `tensorboard`: where its
    logs go, else to AIP_TENSORBOARD_LOG_DIR.
    """

    training: Taught
    directory: Annotated[
        str | None,
        Option(
            name="out",
            short="o",
            group="Output",
            text=TREE,
            is_written=True,
            help="Where MODULE/1, MODULE/2, … go; may be remote, as gs://bucket/models. [default: "
            "AIP_MODEL_DIR, where Vertex AI sets it, else here]",
        ),
    ] = None
    checkpoints: Annotated[
        str | None,
        Option(
            name="checkpoint-dir",
            group="Output",
            text=TREE,
            is_written=True,
            help="Where checkpoints are kept, also when it is done. [default: AIP_CHECKPOINT_DIR, "
            "else beside the model until it is there]",
        ),
    ] = None
    tensorboard: Annotated[
        str | None,
        Option(
            name="tensorboard-dir",
            group="Output",
            text=TREE,
            is_written=True,
            help="[default: AIP_TENSORBOARD_LOG_DIR, else none]",
        ),
    ] = None
    allowance: Unlimited = Allowance(timeout_s=math.inf)
    sandbox: Sandboxed = None
