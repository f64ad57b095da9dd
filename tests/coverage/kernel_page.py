"""The rows of other kernels as the document docs/kernels.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from footnotes import Footnotes
from kernel_rows import GPU, KERNELS, MICRO
from render import grid

from edgeconv.types import RECIPE_NAMES

if TYPE_CHECKING:
    from kernel_rows import KernelRow

_COMMANDS = """\
```sh
python tests/coverage/kernels.py --results results
python tests/coverage/kernels.py --results results --render
```"""
_INTRODUCTION = """\
# Kernels

This page shows what LiteRT's GPU delegate (on SwiftShader) and TensorFlow Lite for
Microcontrollers do with the files of the architectures in [coverage](coverage.md), according to
`edgeconv bench --runtime gpu --runtime tflite-micro`. The files were converted with `--batch 1`
where the model allows it, since an app runs one sample at a time: with an open batch, the delegate
refuses [most of them](gpu.md#fix-the-batch). The page is generated (see the end). The models have
random weights or were trained in seconds, and the samples are few: the page shows what kernels
accept and where they compute something else, but no accuracy.

- **full**: the delegate or runtime runs the whole file, with the right answers.
- **partial**: some operators stay on the processor.
- **wrong**: on the GPU, fewer than 99 % of the answers are those of float32 on the processor (the
  note says whether the delegate or the quantizer caused it); on tflite-micro, the error against
  float32 is twice that of the same file on the processor, or more answers are lost than rounding
  explains.
- **refused**: the file does not load, or an operator is missing; the note names it.
- **crashed**: the file ends the process that runs it, or an invoke does not end within five
  minutes. edgeconv goes on."""
_STATES = ("full", "partial", "wrong", "refused", "crashed")
_TITLES = {GPU: "The GPU delegate", MICRO: "tflite-micro"}


def render(rows: Sequence[KernelRow], names: Sequence[str]) -> str:
    """The whole document. `names` are the architectures that convert, run or not."""
    notes = Footnotes()
    run = [row for row in rows if row.cells]
    failed = [row for row in rows if row.failed]
    parts = [_INTRODUCTION, "## In short", _counts(run), _targets(rows)]
    for kernels in KERNELS:
        lines = [_line(row, kernels, notes) for row in run]
        published = ("published for it",) if kernels == GPU else ()
        header = ("architecture", "saved as", *RECIPE_NAMES, *published)
        parts += [f"## {_TITLES[kernels]}", grid(header, lines)]
    if failed:
        lines = [(row.architecture, _without_paths(row.failed.splitlines()[0])) for row in failed]
        parts += ["## Without an answer", grid(("architecture", "why"), lines)]
    done = {row.architecture for row in rows}
    if missing := [name for name in names if name not in done]:
        parts += ["## Not run", "\n".join(f"- {name}" for name in missing)]
    if lines_of_notes := notes.lines():
        parts += ["## Notes", "\n".join(lines_of_notes)]
    return "\n\n".join([*parts, "## Made with", _made_with(rows), _COMMANDS]) + "\n"


def _without_paths(text: str) -> str:
    """A text in which each file in a scratch directory has its name only."""
    return re.sub(r"/\S*/", "", text)


def _counts(rows: Sequence[KernelRow]) -> str:
    lines = []
    for kernels in KERNELS:
        for recipe in RECIPE_NAMES:
            cells = [cell for row in rows if (cell := row.cell(kernels, recipe)) is not None]
            by_state = Counter(cell.state for cell in cells)
            lines.append((kernels, recipe, *(str(by_state[state]) for state in _STATES)))
    return grid(("kernels", "recipe", *_STATES), lines)


def _targets(rows: Sequence[KernelRow]) -> str:
    crashes = [row.architecture for row in rows if row.is_crash]
    wrong = [f"{row.architecture}: {', '.join(w)}" for row in rows if (w := row.wrongly_published)]
    files = sum(len(row.published) for row in rows)
    return "\n".join(
        (
            f"- edgeconv crashed on {len(crashes)} of {len(rows)} architectures"
            + (f": {', '.join(crashes)}." if crashes else "."),
            f"- `convert --target-runtime gpu` published {files} files, {len(wrong)} of them wrong "
            "when measured on all samples of this page"
            + (f": {'; '.join(wrong)}." if wrong else "."),
            "- If the usual file is wrong there, `convert` may publish another one: with one "
            "weight scale for each dense layer, or made by TFLiteConverter.",
        )
    )


def _line(row: KernelRow, kernels: str, notes: Footnotes) -> list[str]:
    line = [row.architecture, row.source]
    for recipe in RECIPE_NAMES:
        cell = row.cell(kernels, recipe)
        if cell is None:
            line.append("–")
            continue
        state = f"**{cell.state}**" if cell.state in {"wrong", "crashed"} else cell.state
        # The rest of a crash is addresses.
        line.append(state + (notes.marks(cell.reason) if cell.reason else ""))
    return [*line, ", ".join(row.published) or "none"] if kernels == GPU else line


def _made_with(rows: Sequence[KernelRow]) -> str:
    tools = sorted({f"{name} {version}" for row in rows for name, version in row.tools.items()})
    hours = sum(row.seconds for row in rows) / 3600
    return f"{', '.join(tools)}. The whole run took {hours:.1f} hours on 2 cores. To make it again:"
