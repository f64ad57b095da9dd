"""What quantisation-aware training did to an artifact, and what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.training import (
    Fact,
    interruption_facts,
    samples_line,
    strategy_line,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import QatRecord


def is_smaller_packed(record: QatRecord) -> bool:
    """Whether the weights were made such that a package of them is smaller."""
    return record.settings.prune is not None or record.settings.cluster is not None


def qat_remarks(record: QatRecord) -> list[str]:
    """The training in a few lines: its length, cost and place, and what was left out."""
    remarks = [
        f"trained on for {_length(record)} in {units.duration(record.seconds * 1e6)}, "
        f"{strategy_line(record.training)}"
    ]
    if is_smaller_packed(record):
        remarks.append(", ".join(_packing(record)))
    if record.equalized:
        remarks.append(f"channels equalised: {_equalized(record)}")
    return remarks + [f"left float: {text}" for text in _left_float(record)]


def qat_facts(record: QatRecord) -> list[Fact]:
    """All there is to say of the training but its epochs."""
    settings, steps = record.settings, units.duration(record.training.seconds * 1e6)
    facts = [
        Fact(
            "trained on for",
            f"{_length(record)}, global batch {settings.global_batch}, seed {settings.seed}",
        ),
        Fact("cost", f"{units.duration(record.seconds * 1e6)} in all, {steps} of steps"),
        Fact("strategy", strategy_line(record.training)),
        Fact("samples", f"{samples_line(record.training)}, of {units.plain(record.source)}"),
        Fact("started from", _start(record)),
        Fact(
            "ranges",
            f"found in {units.counted(settings.warmup_steps, 'step')} before the weights move",
        ),
        Fact("batch normalisation", _batch_norm(settings.freeze_batch_norm_after)),
        Fact("layers", _treatments(record)),
    ]
    facts += [Fact("left float", text) for text in _left_float(record)]
    if record.equalized:
        facts.append(Fact("channels equalised", _equalized(record)))
    if is_smaller_packed(record):
        facts.append(Fact("weights", ", ".join(_packing(record))))
    facts += [
        Fact(
            "before it",
            f"{units.plain(why)}: {units.counted(len(each.epochs), 'epoch')}, "
            f"{units.duration(each.seconds * 1e6)} of steps",
        )
        for why, each in record.fine_tuned.items()
    ]
    return facts + interruption_facts(record.training)


def _length(record: QatRecord) -> str:
    done, asked = len(record.training.epochs), record.settings.epochs
    of = f"{done} of " if done != asked else ""
    return f"{of}{units.counted(asked, 'epoch')} at learning rate {record.settings.learning_rate:g}"


def _start(record: QatRecord) -> str:
    if not record.rebuilt:
        return "the tf_keras model as it is"
    apart = units.significant(record.rebuilt_max_abs_error)
    return f"the Keras 3 model rebuilt in tf_keras, outputs at most {apart} apart"


def _equalized(record: QatRecord) -> str:
    return units.plain(", ".join(f"{first} to {second}" for first, second in record.equalized))


def _batch_norm(freeze_after: int | None) -> str:
    if freeze_after is None:
        return "follows its batches"
    return f"frozen after {units.counted(freeze_after, 'epoch')}" if freeze_after else "frozen"


def _treatments(record: QatRecord) -> str:
    treatments = [layer.treatment for layer in record.layers]
    left = treatments.count("float")
    own = treatments.count("quantized with a config of edgeconv's")
    said = f"{len(treatments) - left} quantised"
    if own:
        said += f" ({own} by a config of edgeconv's)"
    return f"{said}, {left} left float"


def _left_float(record: QatRecord) -> list[str]:
    """The layers left float, together where the reason is the same."""
    layers = [layer for layer in record.layers if layer.treatment == "float"]
    reasons = dict.fromkeys(layer.reason for layer in layers)
    return [
        units.plain(
            ", ".join(f"{x.name} ({x.kind})" for x in layers if x.reason == reason)
            + (f": {reason}" if reason else "")
        )
        for reason in reasons
    ]


def _packing(record: QatRecord) -> Iterator[str]:
    if record.settings.prune is not None:
        yield f"pruned to {units.percent(record.sparsity, 1)} zeros"
    if record.settings.cluster is not None:
        clusters = units.ABSENT if record.clusters is None else record.clusters
        yield f"clustered to {clusters} different weights a layer"
