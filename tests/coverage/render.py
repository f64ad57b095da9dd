"""The rows as the document docs/coverage.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from counts import others, targets
from footnotes import Footnotes, shortened

from edgeconv.types import MAX_SNR_DB, RECIPE_NAMES

if TYPE_CHECKING:
    from results import Cell, Row

# Biases stay float32 in most recipes.
_WORTH_KNOWING = 0.25
_LONGEST_STEP = 110
_COMMANDS = """\
```sh
python tests/coverage/table.py --results results
python tests/coverage/table.py --results results --render
```"""
_INTRODUCTION = """\
# Coverage

Every architecture below was built with random weights or trained in seconds, and converted with
every recipe. This page is generated (see the end); `python -m pytest tests/coverage` runs the small
architectures each time, and with `-m slow` all of them.

A cell is the signal-to-noise ratio, in decibels, of the worst output on held-back samples: float32
is compared with the trained model, the other recipes with float32. 20 dB is an error of a tenth of
the output's variation, 40 dB of a hundredth; *exact* means no difference. Random weights are harder
to quantize than trained ones, and no number here is an accuracy. Names after the number are
operators that stay in float: int8 and int16x8 refuse such files by default, and were allowed
exactly the operators that the refusal named (`--allow-float`). The last column counts the files
that give the same outputs in tflite-runtime 2.14.0 as in LiteRT, unchanged. tflite-runtime loads
dynamic files with dense layers, but computes nonsense without an error:
`--target-runtime tflite-runtime==2.14.0` makes files that are right there."""


def render(rows: Sequence[Row], names: Sequence[str]) -> str:
    """The whole document. `names` are the table's architectures, run or not."""
    notes = Footnotes()
    ought = [row for row in rows if not row.refusal]
    ought_not = [row for row in rows if row.refusal]
    missing = [name for name in names if name not in {row.architecture for row in rows}]
    parts = [
        _INTRODUCTION,
        "## Against the targets",
        _targets(rows),
        "\n".join(f"- {line}" for line in others(rows)),
        "## Architectures",
        _table(ought, notes),
    ]
    if ought_not:
        parts += ["## Refused as they should be", _refusals(ought_not)]
    if missing:
        parts += ["## Not run", "\n".join(f"- {name}" for name in missing)]
    if lines := notes.lines():
        parts += ["## Notes", "\n".join(lines)]
    return "\n\n".join([*parts, "## Made with", _made_with(rows), _COMMANDS]) + "\n"


def grid(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A markdown table."""
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *lines))


def _targets(rows: Sequence[Row]) -> str:
    lines = [(t.what, t.target, t.reached, "met" if t.ok else "**not met**") for t in targets(rows)]
    return grid(("", "target", "reached", ""), lines)


def _table(rows: Sequence[Row], notes: Footnotes) -> str:
    header = ("architecture", "saved as", "float32 size", *RECIPE_NAMES, "tflite-runtime 2.14")
    return grid(header, [_line(row, notes) for row in rows])


def _line(row: Row, notes: Footnotes) -> list[str]:
    if row.skipped:
        return [row.architecture, row.source, f"skipped: {row.skipped}", *[""] * 7]
    done = [cell for cell in row.cells if cell.outcome == "converted"]
    everywhere = [n for n in (told(done[0]) if done else ()) if all(n in told(c) for c in done)]
    floating = row.cell("float32")
    return [
        row.architecture + notes.marks(*everywhere),
        row.source + (f" `{' '.join(row.options)}`" if row.options else ""),
        _size(floating.size_bytes if floating else 0),
        *(_cell(row.cell(recipe), everywhere, notes) for recipe in RECIPE_NAMES),
        _old_runtime(row, notes),
    ]


def told(cell: Cell) -> list[str]:
    """What is worth a footnote about a file that was made: the ladder first."""
    steps = [
        step if len(step) <= _LONGEST_STEP else f"{step[:_LONGEST_STEP]}…)" for step in cell.ladder
    ]
    return [*(["attempts: " + " → ".join(steps)] if steps else []), *cell.notes]


def _size(size_bytes: int) -> str:
    if not size_bytes:
        return "–"
    if size_bytes < 1_000_000:
        return f"{size_bytes / 1e3:.3g} kB"
    return f"{size_bytes / 1e6:.3g} MB"


def _cell(cell: Cell | None, everywhere: Sequence[str], notes: Footnotes) -> str:
    if cell is None:
        return "–"
    if cell.outcome == "refused":
        return f"refused: {cell.error}{notes.marks(cell.message)}"
    if cell.outcome != "converted":
        return f"**{cell.outcome.upper()}**{notes.marks(cell.message)}"
    own = [note for note in told(cell) if note not in everywhere]
    floats = f"; float: {', '.join(cell.float_operators)}" if cell.float_operators else ""
    marks = notes.marks(*own)
    return _decibels(cell.snr_db) + floats + _float_weights(cell) + marks


def _float_weights(cell: Cell) -> str:
    """How many of the weights stayed float32, where that is a share worth knowing."""
    if cell.recipe == "float32" or cell.float_weight_share < _WORTH_KNOWING:
        return ""
    return f"; {cell.float_weight_share:.0%} of the weights float32"


def _decibels(snr_db: float | None) -> str:
    if snr_db is None:
        return "runs"
    return "exact" if snr_db >= MAX_SNR_DB else f"{snr_db:.1f} dB"


def _old_runtime(row: Row, notes: Footnotes) -> str:
    tried = [cell for cell in row.cells if cell.old_runtime is not None]
    failed = [cell for cell in tried if cell.old_runtime]
    if not tried:
        return "–"
    if not failed:
        return f"all {len(tried)}"
    names = ", ".join(f"{c.recipe}{notes.marks(c.old_runtime or '')}" for c in failed)
    return f"{len(tried) - len(failed)} of {len(tried)}, not {names}"


def _refusals(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        said = sorted(
            {f"{c.error or c.outcome.upper()}: {shortened(c.message)}" for c in row.cells}
        )
        answer = "<br>".join(said) or f"skipped: {row.skipped}"
        lines.append((row.architecture, row.source, row.refusal, answer))
    return grid(("model", "saved as", "why", "what edgeconv says"), lines)


def _made_with(rows: Sequence[Row]) -> str:
    tools = sorted({f"{name} {version}" for row in rows for name, version in row.tools.items()})
    states = sorted({row.state for row in rows})
    hours = sum(row.build_seconds + row.convert_seconds for row in rows) / 3600
    return (
        f"{', '.join(tools)}; code {', '.join(states)} (a hash of its modules). The whole "
        f"run took {hours:.1f} hours on 2 cores. To make it again:"
    )
