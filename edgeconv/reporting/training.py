"""How a model was trained: as facts, and as a table of its epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeconv.reporting import units

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edgeconv.types import Epoch, TrainingRecord

_LOOPS = {"fit": "Keras fit", "custom": "custom training loop"}


@dataclass(frozen=True)
class Fact:
    """Something to say of a training, harmless as it is; `is_code`: a path or the like."""

    label: str
    text: str
    is_code: bool = False


@dataclass(frozen=True)
class EpochTable:
    """The epochs as cells, one row each, by number; the one that was kept has a *.

    `is_beneath` has, for every heading, whether it belongs to the one before it.
    """

    headings: tuple[str, ...]
    is_beneath: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]


def training_facts(record: TrainingRecord) -> list[Fact]:
    """All there is to say of a training but its epochs, which `epoch_table` has."""
    tools = ", ".join(f"{name} {version}" for name, version in sorted(record.tools.items()))
    return [
        Fact("model", units.plain(record.model)),
        *circumstance_facts(record),
        *outcome_facts(record),
        *place_facts(record),
        *([Fact("versions", units.plain(tools))] if tools else []),
    ]


def epoch_table(record: TrainingRecord) -> EpochTable:
    """What was logged: every metric and its validation, and the throughput."""
    names = tuple(
        dict.fromkeys(name for e in record.epochs for name in (*e.metrics, *e.validation))
    )
    pairs = [(name, kept) for name in names for kept in (False, True) if _has(record, name, kept)]
    rows = [
        (
            f"{number}{'*' if number == record.best_epoch else ''}",
            *(metric(_of(epoch, kept).get(name)) for name, kept in pairs),
            units.significant(epoch.samples_per_second),
            units.duration(epoch.seconds * 1e6),
        )
        for number, epoch in enumerate(record.epochs, start=1)
    ]
    said = [f"{'val ' if kept else ''}{units.plain(name)}" for name, kept in pairs]
    beneath = [kept and _has(record, name, False) for name, kept in pairs]
    return EpochTable(
        ("epoch", *said, "samples/s", "time"), (False, *beneath, False, True), tuple(rows)
    )


def metric(value: float | None) -> str:
    """A loss or a metric: four decimals, and fewer of what is large."""
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
    """How many samples it was trained on, and how many were kept apart."""
    kept_apart = f", {record.validation_samples} to validate" if record.validation_samples else ""
    return f"{record.train_samples} to train{kept_apart}"


def circumstance_facts(record: TrainingRecord) -> Iterator[Fact]:
    """What it was trained on and how."""
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
    """What came of it, and how long it took."""
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
    """Where the model is."""
    if record.saved_model:
        yield Fact("SavedModel", units.plain(record.saved_model), is_code=True)
    if record.keras_file:
        yield Fact("Keras file", units.plain(record.keras_file), is_code=True)


def interruption_facts(record: TrainingRecord) -> list[Fact]:
    """Why it ended early, and where it was taken up again."""
    facts = [Fact("stopped", units.plain(record.stopped))] if record.stopped else []
    if record.resumed_at:
        steps = ", ".join(map(str, record.resumed_at))
        many = "step" if len(record.resumed_at) == 1 else "steps"
        facts.append(Fact("resumed", f"at {many} {steps}"))
    return facts


def _named(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{units.plain(name)} {metric(value)}" for name, value in metrics.items())


def _of(epoch: Epoch, validation: bool) -> Mapping[str, float]:
    return epoch.validation if validation else epoch.metrics


def _has(record: TrainingRecord, name: str, validation: bool) -> bool:
    return any(name in _of(epoch, validation) for epoch in record.epochs)
