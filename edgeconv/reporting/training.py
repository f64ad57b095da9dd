"""How a model was trained, and trained on for quantization: facts, and a table of epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.tables import Column, Table, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edgeconv.types import Epoch, QatRecord, TrainingRecord

    _Numbered = tuple[int, Epoch]

_LOOPS = {"fit": "Keras fit", "custom": "custom training loop"}


@dataclass(frozen=True)
class Fact:
    """A labeled line of harmless text; `is_code` for a path or a command."""

    label: str
    text: str
    is_code: bool = False


def training_facts(record: TrainingRecord) -> list[Fact]:
    """All about a training except its epochs, which `epoch_table` has."""
    tools = ", ".join(f"{name} {version}" for name, version in sorted(record.tools.items()))
    return [
        Fact("model", units.plain(record.model)),
        *circumstance_facts(record),
        *outcome_facts(record),
        *place_facts(record),
        *([Fact("versions", units.plain(tools))] if tools else []),
    ]


def epoch_table(record: TrainingRecord) -> Table:
    """What was logged: every metric with its validation, and the throughput.

    One row an epoch; the number of the one that was kept has a *.
    """
    names = dict.fromkeys(name for e in record.epochs for name in (*e.metrics, *e.validation))
    pairs = [(name, val) for name in names for val in (False, True) if _has(record, name, val)]
    columns: list[Column[_Numbered]] = [
        Column("epoch", lambda e: f"{e[0]}{'*' * (e[0] == record.best_epoch)}", True, wraps=True),
        *(_logged(record, name, validation) for name, validation in pairs),
        Column("samples/s", lambda e: units.significant(e[1].samples_per_second)),
        Column("time", lambda e: units.duration(e[1].seconds * 1e6), beneath=True),
    ]
    return table(columns, enumerate(record.epochs, start=1), is_sortable=False)


def _logged(record: TrainingRecord, name: str, validation: bool) -> Column[_Numbered]:
    return Column(
        f"{'val ' if validation else ''}{units.plain(name)}",
        lambda numbered: metric(_of(numbered[1], validation).get(name)),
        beneath=validation and _has(record, name, False),
    )


def metric(value: float | None) -> str:
    """A loss or a metric with four decimals, fewer where it is large."""
    if value is None:
        return units.ABSENT
    return f"{value:.4f}".replace("-", "−") if abs(value) < 1000 else units.significant(value, 5)


def strategy_line(record: TrainingRecord) -> str:
    """The strategy with the processes and devices it ran on."""
    parts = [record.strategy]
    if record.workers > 1:
        parts.append(units.counted(record.workers, "worker"))
    parts.append(units.counted(record.replicas, "replica"))
    where = f" on {', '.join(record.devices)}" if record.devices else ""
    ops = record.cross_device_ops
    summed = f", summed by {ops}" if ops not in ("", "auto") else ""
    return units.plain(", ".join(parts) + where + summed)


def samples_line(record: TrainingRecord) -> str:
    """The numbers of samples to train and to validate."""
    kept_apart = f", {record.validation_samples} to validate" if record.validation_samples else ""
    return f"{record.train_samples} to train{kept_apart}"


def circumstance_facts(record: TrainingRecord) -> Iterator[Fact]:
    """The strategy, schedule and samples."""
    yield Fact("strategy", strategy_line(record))
    yield Fact("loop", _LOOPS[record.loop])
    yield Fact(
        "schedule",
        f"{units.counted(len(record.epochs), 'epoch')} of "
        f"{units.counted(record.steps_per_epoch, 'step')}, "
        f"global batch {record.global_batch}, learning rate {record.learning_rate:g}, "
        f"seed {record.seed}",
    )
    yield Fact("samples", samples_line(record))


def outcome_facts(record: TrainingRecord) -> Iterator[Fact]:
    """The test metrics, the epoch that was kept, and the time."""
    if record.test_metrics:
        yield Fact(
            "test",
            f"{_named(record.test_metrics)} on {units.counted(record.test_samples, 'sample')}",
        )
    if record.best_epoch:
        yield Fact("kept", f"epoch {record.best_epoch}, the best by its validation")
    yield from interruption_facts(record)
    whole = "in the last run" if record.resumed_at else "in all"
    yield Fact(
        "time",
        f"{units.duration(record.seconds * 1e6)} of steps, "
        f"{units.duration(record.wall_seconds * 1e6)} {whole}; "
        f"{units.significant(record.samples_per_second)} samples/s",
    )


def place_facts(record: TrainingRecord) -> Iterator[Fact]:
    """Where the saved model is."""
    if record.saved_model:
        yield Fact("SavedModel", units.plain(record.saved_model), is_code=True)
    if record.keras_file:
        yield Fact("Keras file", units.plain(record.keras_file), is_code=True)


def interruption_facts(record: TrainingRecord) -> list[Fact]:
    """Why it ended early, and where it was resumed."""
    facts = [Fact("stopped", units.plain(record.stopped))] if record.stopped else []
    if record.resumed_at:
        steps = ", ".join(map(str, record.resumed_at))
        facts.append(Fact("resumed", f"at step{'s' * (len(record.resumed_at) > 1)} {steps}"))
    return facts


def _named(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{units.plain(name)} {metric(value)}" for name, value in metrics.items())


def _of(epoch: Epoch, validation: bool) -> Mapping[str, float]:
    return epoch.validation if validation else epoch.metrics


def _has(record: TrainingRecord, name: str, validation: bool) -> bool:
    return any(name in _of(epoch, validation) for epoch in record.epochs)


def qat_remarks(record: QatRecord) -> list[str]:
    """The quantization-aware training in a few lines: length, cost, and layers left float."""
    remarks = [
        f"trained on for {_length(record)} in {units.duration(record.seconds * 1e6)}, "
        f"{strategy_line(record.training)}"
    ]
    if record.equalized:
        remarks.append(f"channels equalized: {_equalized(record)}")
    return remarks + [f"left float: {text}" for text in _left_float(record)]


def qat_facts(record: QatRecord) -> list[Fact]:
    """All about the quantization-aware training except its epochs."""
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
        *([Fact("loss", _losses(record))] if record.losses else []),
        Fact(
            "ranges",
            f"observed for {units.counted(settings.warmup_steps, 'step')} before weights change",
        ),
        Fact("batch normalization", _batch_norm(settings.freeze_batch_norm_after)),
        Fact("layers", _treatments(record)),
    ]
    facts += [Fact("left float", text) for text in _left_float(record)]
    if record.equalized:
        facts.append(Fact("channels equalized", _equalized(record)))
    return facts + interruption_facts(record.training)


def _length(record: QatRecord) -> str:
    trained, epochs = len(record.training.epochs), record.settings.epochs
    part = f"{trained} of " if trained != epochs else ""
    return (
        f"{part}{units.counted(epochs, 'epoch')} at learning rate {record.settings.learning_rate:g}"
    )


def _start(record: QatRecord) -> str:
    if not record.rebuilt:
        return "the tf_keras model, unchanged"
    error = units.significant(record.rebuilt_max_abs_error)
    return f"the Keras 3 model rebuilt in tf_keras, outputs differ by at most {error}"


def _losses(record: QatRecord) -> str:
    return units.plain(", ".join(f"{loss} of {name}" for name, loss in record.losses.items()))


def _equalized(record: QatRecord) -> str:
    return units.plain(", ".join(f"{first} to {second}" for first, second in record.equalized))


def _batch_norm(freeze_after: int | None) -> str:
    if freeze_after is None:
        return "updated in every batch"
    return f"frozen after {units.counted(freeze_after, 'epoch')}" if freeze_after else "frozen"


def _treatments(record: QatRecord) -> str:
    treatments = [layer.treatment for layer in record.layers]
    left = treatments.count("float")
    own = treatments.count("quantized with a config of edgeconv's")
    configs = f" ({own} by a config of edgeconv's)" if own else ""
    return f"{len(treatments) - left} quantized{configs}, {left} left float"


def _left_float(record: QatRecord) -> list[str]:
    layers = [layer for layer in record.layers if layer.treatment == "float"]
    reasons = dict.fromkeys(layer.reason for layer in layers)
    return [
        units.plain(
            ", ".join(f"{x.name} ({x.kind})" for x in layers if x.reason == reason)
            + (f": {reason}" if reason else "")
        )
        for reason in reasons
    ]
