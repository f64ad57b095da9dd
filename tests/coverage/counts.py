"""The rows held against the targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from results import Cell, Row

INT8_TARGET = 0.95


class Target(NamedTuple):
    """One target, what was reached, and whether it is met."""

    what: str
    target: str
    reached: str
    ok: bool


def targets(rows: Sequence[Row]) -> list[Target]:
    """Every target, over the rows that could be built."""
    built = [row for row in rows if not row.skipped]
    ought = [row for row in built if not row.refusal]
    ought_not = [row for row in built if row.refusal]
    refused = sum(all(cell.is_known_refusal for cell in row.cells) for row in ought_not)
    return [
        _converted(ought, "float32", 1.0),
        _converted(ought, "dynamic", 1.0),
        _converted(ought, "int8", INT8_TARGET),
        _none("crashes", built, "crash"),
        _none("silent fallbacks", built, "fallback"),
        Target(
            "refused as they should be",
            "all",
            f"{refused} of {len(ought_not)}",
            refused == len(ought_not),
        ),
    ]


def _converted(rows: Sequence[Row], recipe: str, least: float) -> Target:
    cells = [cell for row in rows if (cell := row.cell(recipe)) is not None]
    done = [cell for cell in cells if cell.outcome == "converted"]
    partly = sum(bool(cell.float_operators) for cell in done)
    share = len(done) / len(rows) if rows else 0.0
    reached = f"{len(done)} of {len(rows)} ({share:.1%})"
    if partly:
        reached += f", {partly} of them with operators left in float by name"
    target = "all" if least >= 1 else f"≥ {least:.0%}"
    return Target(f"convert to {recipe}", target, reached, share >= least)


def _none(what: str, rows: Iterable[Row], outcome: str) -> Target:
    count = sum(cell.outcome == outcome for row in rows for cell in row.cells)
    return Target(what, "0", str(count), count == 0)


def others(rows: Sequence[Row]) -> list[str]:
    """What there is no target for and is worth knowing, a sentence each."""
    cells = [cell for row in rows for cell in row.cells]
    said = []
    for recipe in ("float16", "weight-only-int8", "int16x8"):
        ought = [row for row in rows if not row.skipped and not row.refusal]
        said.append(f"{recipe}: {_converted(ought, recipe, 1.0).reached}.")
    said.append(_old_runtime(cells))
    crashed = sum(cell.error == "WorkerCrashed" for cell in cells)
    if crashed:
        said.append(
            f"{crashed} of the refusals are a tool that crashed in its own process, which edgeconv "
            "reported as an error."
        )
    if skipped := [f"{row.architecture} ({row.skipped})" for row in rows if row.skipped]:
        said.append(f"Not built here: {', '.join(skipped)}.")
    return [line for line in said if line]


def _old_runtime(cells: Iterable[Cell]) -> str:
    tried = [cell for cell in cells if cell.old_runtime is not None]
    if not tried:
        return ""
    ran = sum(cell.old_runtime == "" for cell in tried)
    return (
        f"tflite-runtime 2.14.0 gives the same answers with {ran} of the {len(tried)} files made."
    )
