"""Every architecture by every recipe: made, written to files, and rendered.

    python -m benchmarks.coverage --results DIR [--only NAME,NAME] [--resume]
    python -m benchmarks.coverage --results DIR --render > coverage.md

This process never imports TensorFlow: models are built, and converted, in processes of
their own. A row is a file in DIR; one that is there of the same code is kept with --resume.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import edgeconv
from benchmarks.coverage.architectures import ARCHITECTURES
from benchmarks.coverage.converting import build, convert_all
from benchmarks.coverage.older import NAME, old_target, with_old_runtime
from benchmarks.coverage.page import coverage_page
from benchmarks.coverage.results import Cell, Row, read_row, read_rows, write_row
from edgeconv.system.store import tool_versions
from edgeconv.types import RECIPE_NAMES

if TYPE_CHECKING:
    from benchmarks.coverage.architecture import Architecture
    from edgeconv.runtimes.local import RuntimePython


def main(arguments: Sequence[str]) -> int:
    """0 where no row has a crash or a silent fallback."""
    options = _parser().parse_args(arguments)
    if options.list:
        print("\n".join(ARCHITECTURES))
        return 0
    options.results.mkdir(parents=True, exist_ok=True)
    if options.render:
        rows = read_rows(options.results, ARCHITECTURES)
        print(coverage_page(rows, list(ARCHITECTURES)), end="")
        return 0
    names = options.only.split(",") if options.only else list(ARCHITECTURES)
    unknown = [name for name in names if name not in ARCHITECTURES]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; --list shows them all", file=sys.stderr)
        return 2
    return _make(names, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("coverage_results"))
    parser.add_argument("--only", metavar="NAME,NAME", help="these architectures alone")
    parser.add_argument("--resume", action="store_true", help="keep rows of the same code")
    parser.add_argument(
        "--old-python", metavar="PYTHON", help="one with tflite-runtime; default: made on demand"
    )
    parser.add_argument("--render", action="store_true", help="print the page")
    parser.add_argument("--list", action="store_true", help="show the names")
    return parser


def _make(names: Sequence[str], options: argparse.Namespace) -> int:
    state = code_state()
    target = old_target(options.old_python)
    bad = 0
    for name in names:
        kept = read_row(options.results, name)
        if not (options.resume and kept is not None and kept.state == state):
            kept = make_row(name, state, target)
            write_row(options.results, kept)
            print(in_short(kept), flush=True)
        bad += any(cell.outcome in {"crash", "fallback"} for cell in kept.cells)
    return 1 if bad else 0


def code_state() -> str:
    """Identifies edgeconv's code: a hash of all its modules."""
    folder = Path(edgeconv.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def make_row(name: str, state: str, target: RuntimePython | None) -> Row:
    """Build, convert, and run in the older runtime where there is one."""
    architecture = ARCHITECTURES[name]
    row = Row(
        architecture=name,
        source=architecture.source,
        state=state,
        refusal=architecture.refusal,
        options=architecture.options,
        tools=dict(tool_versions()),
        old_runtime=NAME if target else "",
    )
    if why := architecture.missing():
        return _with(row, skipped=why)
    with tempfile.TemporaryDirectory(prefix="coverage-") as directory:
        return _filled(row, architecture, Path(directory), target)


def _filled(
    row: Row, architecture: Architecture, directory: Path, target: RuntimePython | None
) -> Row:
    started = time.monotonic()
    try:
        built = build(row.architecture, architecture, directory)
    except subprocess.CalledProcessError as error:
        message = f"it cannot be built: {error.stderr.strip()}"
        crashed = tuple(Cell(recipe=r, outcome="crash", message=message) for r in RECIPE_NAMES)
        return _with(row, cells=crashed)
    between = time.monotonic()
    cells, files = convert_all(built)
    ended = time.monotonic()
    return _with(
        row,
        cells=tuple(
            with_old_runtime(cell, files.get(cell.recipe), built.samples, target) for cell in cells
        ),
        build_seconds=round(between - started, 1),
        convert_seconds=round(ended - between, 1),
    )


def _with(row: Row, **changes: object) -> Row:
    import msgspec

    return msgspec.structs.replace(row, **changes)


def in_short(row: Row) -> str:
    """One line about a row."""
    cells = [f"{cell.recipe} {cell.outcome}" for cell in row.cells if cell.outcome != "converted"]
    seconds = row.build_seconds + row.convert_seconds
    what = row.skipped or "; ".join(cells) or "all converted"
    return f"{row.architecture} ({seconds:.0f} s): {what}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
