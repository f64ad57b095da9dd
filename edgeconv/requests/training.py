"""The options of everything that trains: what it runs on, and quantization-aware training."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import structs

from edgeconv.errors import UsageError
from edgeconv.requests.option import Group, Option, Within
from edgeconv.requests.texts import ADDRESS, NAMES, TEXT
from edgeconv.types import Qat


def _devices(names: tuple[str, ...], _: Any) -> tuple[tuple[str, ...], int]:
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
    strategy=Option(
        "Distribution",
        "none, mirrored, central-storage, multiworker, parameter-server or tpu. The distribution "
        "strategy; see docs/training.md.",
        metavar="NAME",
        is_common=True,
    ),
    workers=Option(
        "Distribution",
        "Start N local processes, with TF_CONFIG set. For multiworker and parameter-server; "
        "without it, TF_CONFIG describes the cluster.",
        least=1,
        to_raw=_or_none,
        metavar="N",
    ),
    servers=Option(
        "Distribution",
        "With --workers and parameter-server: how many parameter servers. [default: 1]",
        least=1,
        to_raw=_or_none,
        metavar="N",
    ),
    devices=Option(
        "Distribution",
        "How many GPUs or logical CPU devices, or which: GPU:0,GPU:2. Without it, all GPUs, or 2 "
        "CPU devices.",
        text=NAMES,
        make=_devices,
        to_raw=_device_text,
        also="device_count",
        metavar="N|NAMES",
        is_common=True,
    ),
    cross_device_ops=Option("Distribution", "How mirrored adds up gradients."),
    communication=Option("Distribution", "How multiworker adds up gradients."),
    tpu=Option("Distribution", "The TPU's name or address.", text=ADDRESS, metavar="NAME"),
    gpu_memory_growth=Option("Distribution", "Take a GPU's memory as it is needed."),
    gpu_memory_limit_mib=Option(
        "Distribution", "Take no more than this of a GPU's memory.", least=1, to_raw=_or_none
    ),
    connect_timeout_s=Option(
        "Distribution",
        "How long to wait for the other members of a cluster, in seconds.",
        least=0,
        is_above=True,
    ),
)


def _freeze(text: str, _: Any) -> int | None:
    if text == "never":
        return None
    if not text.isdecimal():
        raise UsageError(f"--qat-freeze-batch-norm {text}: must be a number of epochs, or never")
    return int(text)


def _freeze_text(epochs: int | None) -> str:
    return "never" if epochs is None else str(epochs)


def _uncommon(option: Option | Within) -> Option:
    assert isinstance(option, Option)
    return structs.replace(option, is_common=False)


_QAT: Group = "Quantization-aware training"
# None where none of its options is given.
Trained = Annotated[
    Qat | None,
    Within(
        target=Option(
            _QAT,
            "Train to the samples' labels, or to the float model's outputs.",
            name="qat-target",
        ),
        epochs=Option(_QAT, "Epochs of training.", name="qat-epochs", least=1, is_common=True),
        learning_rate=Option(_QAT, "The learning rate.", name="qat-learning-rate", is_common=True),
        global_batch=Option(
            _QAT, "Samples per step, shared among the replicas.", name="qat-batch", least=1
        ),
        seed=Option(_QAT, "Seed of the order of samples.", name="qat-seed"),
        layers=Option(
            _QAT,
            "Layers to quantize, comma-separated names or patterns, such as conv*. [default: all]",
            name="qat-layers",
            text=NAMES,
            metavar="NAMES",
        ),
        warmup_steps=Option(
            _QAT,
            "Steps that find the ranges before the weights change.",
            name="qat-warmup-steps",
            least=0,
        ),
        freeze_batch_norm_after=Option(
            _QAT,
            "The epochs after which batch normalization stops following the batches.",
            name="qat-freeze-batch-norm",
            text=TEXT,
            takes="text",
            make=_freeze,
            to_raw=_freeze_text,
            metavar="EPOCHS|never",
        ),
        validation_fraction=Option(
            _QAT,
            "Hold this share of the training samples back; the best epoch on them is kept.",
            name="qat-validation-fraction",
        ),
        patience=Option(
            _QAT,
            "Stop after N epochs without a better one.",
            name="qat-patience",
            least=1,
            metavar="N",
        ),
        prune=Option(_QAT, "First train to this share of zero weights.", metavar="SHARE"),
        cluster=Option(_QAT, "First train to N different weights per layer.", least=2, metavar="N"),
        fine_tune_epochs=Option(
            _QAT,
            "Epochs of the training for --prune, and for --cluster.",
            name="qat-fine-tune-epochs",
            least=1,
        ),
        distribution=Within(
            **{name: _uncommon(each) for name, each in DISTRIBUTION.options.items()}
        ),
    ),
]
