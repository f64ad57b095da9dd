"""What the table found of one architecture, as a value and as a file."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from edgeconv.types import RecipeName

Outcome = Literal["converted", "refused", "crash", "fallback"]


class Cell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one recipe.

    `error` is the class of the error, or the exit code's where the command ended before any recipe;
    `message` all that it said. `snr_db` is that of the worst output, None where there was nothing
    to compare with. `float_operators` are those that compute in float in the file. `ladder` has the
    attempts, the last of which succeeded, where the first one did not. `float_weight_share` is the
    fraction of constants stored as float32. `old_runtime` says "" where the file runs in the older
    runtime with the answers it has here, why not where it does not, and is None where that was not
    tried.
    """

    recipe: RecipeName
    outcome: Outcome
    snr_db: float | None = None
    engine: str = ""
    notes: tuple[str, ...] = ()
    ladder: tuple[str, ...] = ()
    float_operators: tuple[str, ...] = ()
    float_weight_share: float = 0.0
    size_bytes: int = 0
    error: str = ""
    message: str = ""
    old_runtime: str | None = None

    @property
    def is_known_refusal(self) -> bool:
        """Whether the recipe was refused, and the error says of what class it is."""
        return self.outcome == "refused" and bool(self.error) and bool(self.message)


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One architecture, every recipe.

    `skipped` says why it could not be built here, and then there are no cells. `refusal` is
    why it ought to be refused, "" where it ought to convert. `state` identifies edgeconv's
    code. Seconds are wall-clock.
    """

    architecture: str
    source: str
    state: str
    cells: tuple[Cell, ...] = ()
    skipped: str = ""
    refusal: str = ""
    options: tuple[str, ...] = ()
    build_seconds: float = 0.0
    convert_seconds: float = 0.0
    tools: dict[str, str] = {}
    old_runtime: str = ""

    def cell(self, recipe: str) -> Cell | None:
        """The cell of a recipe."""
        return next((cell for cell in self.cells if cell.recipe == recipe), None)


def file_of(directory: Path, architecture: str) -> Path:
    """Where the row of an architecture is kept."""
    return directory / f"{re.sub(r'[^A-Za-z0-9.]+', '-', architecture).strip('-')}.json"


def write_row(directory: Path, row: Row) -> None:
    """Keep a row, whole or not at all."""
    target = file_of(directory, row.architecture)
    partial = target.with_suffix(".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(row), indent=1) + b"\n")
    partial.replace(target)


def read_row(directory: Path, architecture: str) -> Row | None:
    """The row that was kept of an architecture, None if there is none."""
    file = file_of(directory, architecture)
    return msgspec.json.decode(file.read_bytes(), type=Row) if file.exists() else None


def read_rows(directory: Path, architectures: Iterable[str]) -> list[Row]:
    """The rows there are, in the order of `architectures`."""
    rows = (read_row(directory, name) for name in architectures)
    return [row for row in rows if row is not None]
