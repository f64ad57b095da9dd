"""What other kernels make of an architecture's files, as values and as files."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks.coverage.results import file_of
from edgeconv.measure.kernels import kernel_mistake
from edgeconv.types import Measurement, RecipeName

GPU, MICRO = "gpu", "tflite-micro"
KERNELS = (GPU, MICRO)
# "full" and "partial" are what a delegate took; a runtime without a delegate is "full".
State = Literal["full", "partial", "wrong", "refused", "crashed"]
_ENDED = re.compile(r"was ended by|did not end within")


class KernelCell(msgspec.Struct, frozen=True, kw_only=True):
    """A file in one set of kernels: what became of it, and why or how much."""

    recipe: RecipeName
    kernels: str
    state: State
    reason: str = ""


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One architecture. `published` are the recipes of `convert --target-runtime gpu`.

    `wrongly_published` are those of them whose published files are not right there.
    `failed` says why there is no row: edgeconv itself failed, or nothing was there to measure.
    `is_crash`: it ended without an error of its own.
    """

    architecture: str
    source: str
    cells: tuple[KernelCell, ...] = ()
    published: tuple[RecipeName, ...] = ()
    wrongly_published: tuple[RecipeName, ...] = ()
    samples: int = 0
    seconds: float = 0.0
    failed: str = ""
    is_crash: bool = False
    tools: dict[str, str] = {}

    def cell(self, kernels: str, recipe: str) -> KernelCell | None:
        """The cell of a recipe in these kernels."""
        cells = (c for c in self.cells if (c.kernels, c.recipe) == (kernels, recipe))
        return next(cells, None)

    def in_short(self) -> str:
        """One line."""
        bad = (c for c in self.cells if c.state != "full")
        states = "; ".join(f"{c.kernels} {c.recipe} {c.state}" for c in bad)
        return f"{self.architecture} ({self.seconds:.0f} s): {self.failed or states or 'all right'}"

    @property
    def doubtful(self) -> tuple[RecipeName, ...]:
        """The published recipes whose usual file is not right on the GPU: another one may be."""
        return tuple(recipe for recipe in self.published if self.is_bad(recipe))

    def is_bad(self, recipe: RecipeName) -> bool:
        """Whether a recipe's file gives no answers, or wrong ones, on the GPU."""
        cell = self.cell(GPU, recipe)
        return cell is not None and cell.state in {"wrong", "refused", "crashed"}


def kernel_cell(row: Measurement, here: Measurement | None) -> KernelCell:
    """The cell of a measurement; `here` is that of the same file on the processor."""
    assert row.recipe is not None
    state, reason = _delegated(row) if row.measured_in == GPU else _computed(row, here)
    return KernelCell(recipe=row.recipe, kernels=row.measured_in, state=state, reason=reason)


def _delegated(row: Measurement) -> tuple[State, str]:
    outcome = row.acceleration
    assert outcome is not None
    operators = "; ".join(outcome.on_cpu)
    if outcome.state == "partial":
        return "partial", f"on the processor: {operators}"
    return outcome.state, "; ".join(filter(None, (operators, outcome.reason)))


def _computed(row: Measurement, here: Measurement | None) -> tuple[State, str]:
    if row.error:
        return ("crashed" if _ENDED.search(row.error) else "refused"), row.error
    mistake = kernel_mistake(row.kernels, row.agreement, here.agreement if here else ())
    return ("wrong", mistake) if mistake else ("full", "")


def write_row(directory: Path, row: KernelRow) -> None:
    """Keep a row, whole or not at all."""
    target = file_of(directory, row.architecture)
    partial = target.with_suffix(".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(row), indent=1) + b"\n")
    partial.replace(target)


def read_rows(directory: Path, names: Iterable[str]) -> list[KernelRow]:
    """The rows there are, in the order of `names`."""
    files = (file_of(directory, name) for name in names)
    return [msgspec.json.decode(f.read_bytes(), type=KernelRow) for f in files if f.exists()]
