"""Samples whose class differs from that of the trained model."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edgeconv.reporting import units
from edgeconv.reporting.tables import Cell, Column, Table, number, table

if TYPE_CHECKING:
    from edgeconv.types import Measurement, Report

Effect = Literal["broken", "fixed", "other"]
MOST_EXAMPLES = 8
_WORDS: dict[Effect, tuple[str, str]] = {
    "broken": ("became wrong", "mark over"),
    "fixed": ("became right", "mark ok"),
    "other": ("still wrong", ""),
}
_ORDER: tuple[Effect, ...] = ("broken", "fixed", "other")


@dataclass(frozen=True, kw_only=True)
class Flip:
    """Samples of one class that two models assign to different classes, by their indices."""

    effect: Effect
    label: int | None
    before: int
    after: int
    samples: tuple[int, ...]


def flips_of(model: Measurement, baseline: Measurement, labels: tuple[int, ...]) -> list[Flip]:
    """The flips from the baseline to the model, broken ones first, then by frequency.

    Without `labels` every effect is "other". Empty where a model has no classes, or where the
    samples differ.
    """
    before = baseline.accuracy.predicted if baseline.accuracy else ()
    after = model.accuracy.predicted if model.accuracy else ()
    if len(before) != len(after):
        return []
    known = labels if len(labels) == len(after) else ()
    groups: dict[tuple[int | None, int, int], list[int]] = defaultdict(list)
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            groups[(known[i] if known else None, old, new)].append(i)
    flips = [
        Flip(
            effect=_effect(label, old, new),
            label=label,
            before=old,
            after=new,
            samples=tuple(samples),
        )
        for (label, old, new), samples in groups.items()
    ]
    return sorted(flips, key=lambda f: (_ORDER.index(f.effect), -len(f.samples), f.samples))


def flip_tables(report: Report) -> list[tuple[str, str, Table]]:
    """For each artifact with flips: its name, a summary and the table."""
    if report.baseline is None:
        return []
    tables = []
    for index, model in enumerate(report.measurements):
        flips = flips_of(model, report.baseline, report.labels)
        if flips:
            name = units.plain(model.name)
            tables.append((name, _summary(flips), _table(index, name, flips, report.class_names)))
    return tables


def class_name(index: int | None, names: tuple[str, ...]) -> str:
    """The name of a class where it is known, else its index; "–" for None."""
    if index is None:
        return units.ABSENT
    return units.plain(names[index]) if 0 <= index < len(names) else str(index)


def _effect(label: int | None, before: int, after: int) -> Effect:
    if label is None:
        return "other"
    return "fixed" if after == label else "broken" if before == label else "other"


def _summary(flips: list[Flip]) -> str:
    counts = {effect: sum(len(f.samples) for f in flips if f.effect == effect) for effect in _ORDER}
    if all(flip.label is None for flip in flips):
        return f"{counts['other']} changed"
    return ", ".join(f"{n} {_WORDS[effect][0]}" for effect, n in counts.items() if n)


def _table(index: int, name: str, flips: list[Flip], names: tuple[str, ...]) -> Table:
    return table(
        (
            Column("Class", lambda flip: class_name(flip.label, names), is_text=True),
            Column("Baseline", lambda flip: class_name(flip.before, names), is_text=True),
            Column("This model", lambda flip: class_name(flip.after, names), is_text=True),
            Column("Effect", _word, is_text=True),
            Column("Samples", lambda flip: number(str(len(flip.samples)), len(flip.samples))),
            Column("Examples", _examples, is_text=True),
        ),
        flips,
        name=f"flips-{index}",
        caption=f"Where {name} predicts another class than the baseline. Samples are indices in "
        "the data, from 0.",
    )


def _word(flip: Flip) -> Cell:
    word, kind = _WORDS[flip.effect] if flip.label is not None else ("changed", "")
    return Cell(word, kind=kind)


def _examples(flip: Flip) -> str:
    examples = ", ".join(map(str, flip.samples[:MOST_EXAMPLES]))
    more = len(flip.samples) - MOST_EXAMPLES
    return f"{examples} and {more} more" if more > 0 else examples
