"""The rows of both tables as Markdown: counts, a line for each architecture, and the reasons."""

from collections import Counter
from collections.abc import Iterable, Sequence

from benchmarks.coverage.kernel_rows import GPU, KERNELS, KernelRow
from benchmarks.coverage.results import Cell, Row
from edgeconv.types import MAX_SNR_DB, RECIPE_NAMES

# Biases stay float32 in most recipes.
_WORTH_KNOWING = 0.25
_LONGEST = 300
_LEAST = {"float32": 1.0, "dynamic": 1.0, "int8": 0.95}
_STATES = ("full", "partial", "wrong", "refused", "crashed")


def coverage_page(rows: Sequence[Row], names: Sequence[str]) -> str:
    """What became of each architecture. `names` are those of the table, run or not.

    A number is the signal-to-noise ratio of the worst output, in decibels.
    """
    built = [row for row in rows if not row.skipped]
    ought = [row for row in built if not row.refusal]
    tried = [cell for row in rows for cell in row.cells if cell.old_runtime is not None]
    counts = [
        *(_converted(ought, recipe) for recipe in RECIPE_NAMES),
        *(f"{what}: {_count(built, what)} (target: 0)" for what in ("crash", "fallback")),
        _refused([row for row in built if row.refusal]),
        f"tflite-runtime 2.14.0 gives the same answers with "
        f"{sum(cell.old_runtime == '' for cell in tried)} of {len(tried)} files",
    ]
    header = ("architecture", "saved as", *RECIPE_NAMES)
    table = _grid(header, ((*_named(row), *map(_shown, _cells(row))) for row in rows))
    reasons = [
        f"{row.architecture} {cell.recipe}: {_first_line(text)}"
        for row in rows
        for cell in row.cells
        for text in (cell.message, *cell.ladder, *cell.notes, cell.old_runtime or "")
        if text
    ]
    reasons += [f"{row.architecture}: not built: {row.skipped}" for row in rows if row.skipped]
    hours = sum(row.build_seconds + row.convert_seconds for row in rows) / 3600
    return _page("Coverage", counts, [table], reasons, rows, names, hours)


def kernels_page(rows: Sequence[KernelRow], names: Sequence[str]) -> str:
    """What each architecture's files do in other kernels."""
    wrong = {row.architecture: row.wrongly_published for row in rows if row.wrongly_published}
    counts = [
        f"crashes of edgeconv: {[row.architecture for row in rows if row.is_crash]} (target: none)",
        f"published for the GPU: {sum(len(row.published) for row in rows)} files, wrong: {wrong}",
    ]
    tables, reasons = [_states(rows)], []
    for kernels in KERNELS:
        cells = [[row.cell(kernels, recipe) for recipe in RECIPE_NAMES] for row in rows]
        lines = [
            (row.architecture, row.source, *(cell.state if cell else "–" for cell in of_row),
             ", ".join(row.published) if kernels == GPU else "")
            for row, of_row in zip(rows, cells, strict=True)
        ]  # fmt: skip
        header = (kernels, "saved as", *RECIPE_NAMES, "published for it" if kernels == GPU else "")
        tables.append(_grid(header, lines))
        reasons += [
            f"{row.architecture} {kernels} {cell.recipe}: {_first_line(cell.reason)}"
            for row, of_row in zip(rows, cells, strict=True)
            for cell in of_row
            if cell and cell.reason
        ]
    reasons += [f"{row.architecture}: {_first_line(row.failed)}" for row in rows if row.failed]
    hours = sum(row.seconds for row in rows) / 3600
    return _page("Kernels", counts, tables, reasons, rows, names, hours)


def _page(
    title: str,
    counts: Iterable[str],
    tables: Iterable[str],
    reasons: Iterable[str],
    rows: Sequence[Row] | Sequence[KernelRow],
    names: Iterable[str],
    hours: float,
) -> str:
    done = {row.architecture for row in rows}
    missing = [f"{name}: not run" for name in names if name not in done]
    tools = sorted({f"{name} {version}" for row in rows for name, version in row.tools.items()})
    made = f"Made with {', '.join(tools)} in {hours:.1f} hours on 2 cores."
    lists = ["\n".join(f"- {line}" for line in lines) for lines in (counts, (*reasons, *missing))]
    return "\n\n".join([f"# {title}", lists[0], *tables, lists[1], made]) + "\n"


def _converted(rows: Sequence[Row], recipe: str) -> str:
    cells = [cell for row in rows if (cell := row.cell(recipe)) is not None]
    done = [cell for cell in cells if cell.outcome == "converted"]
    partly = sum(bool(cell.float_operators) for cell in done)
    share = len(done) / len(rows) if rows else 0.0
    least = f" (target: {_LEAST[recipe]:.0%})" if recipe in _LEAST else ""
    return (
        f"{recipe}: {len(done)} of {len(rows)}, {share:.1%}{least}; {partly} with operators left "
        "in float by name"
    )


def _count(rows: Iterable[Row], outcome: str) -> int:
    return sum(cell.outcome == outcome for row in rows for cell in row.cells)


def _refused(rows: Sequence[Row]) -> str:
    refused = sum(all(cell.is_known_refusal for cell in row.cells) for row in rows)
    return f"refused as they should be: {refused} of {len(rows)} (target: all)"


def _states(rows: Iterable[KernelRow]) -> str:
    counted = Counter((c.kernels, c.recipe, c.state) for row in rows for c in row.cells)
    lines = [
        (kernels, recipe, *(str(counted[kernels, recipe, state]) for state in _STATES))
        for kernels in KERNELS
        for recipe in RECIPE_NAMES
    ]
    return _grid(("kernels", "recipe", *_STATES), lines)


def _named(row: Row) -> tuple[str, str]:
    return row.architecture, f"{row.source} {' '.join(row.options)}".strip()


def _cells(row: Row) -> list[Cell | None]:
    return [row.cell(recipe) for recipe in RECIPE_NAMES]


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    if cell.outcome != "converted":
        return f"{cell.outcome.upper()} {cell.error}".strip()
    snr_db = cell.snr_db
    exact = snr_db is not None and snr_db >= MAX_SNR_DB
    parts = ["runs" if snr_db is None else "exact" if exact else f"{snr_db:.1f} dB"]
    if cell.float_operators:
        parts.append(f"float: {', '.join(cell.float_operators)}")
    if cell.recipe != "float32" and cell.float_weight_share >= _WORTH_KNOWING:
        parts.append(f"{cell.float_weight_share:.0%} of the weights float32")
    return "; ".join(parts)


def _grid(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *lines))


def _first_line(text: str) -> str:
    """At most a few hundred characters of it, as Markdown that means only itself."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")[:_LONGEST]
    return line.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
