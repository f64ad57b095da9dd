"""The document, from rows written by hand."""

from __future__ import annotations

import msgspec
from counts import targets
from footnotes import Footnotes
from golden_files import assert_golden
from render import render
from results import Cell, Row

from edgeconv.types import RECIPE_NAMES

TOOLS = {"edgeconv": "0.1.0", "tensorflow": "2.21.0"}
NO_KERNEL = "RuntimeError: Type INT16 is unsupported by op Rsqrt."


def converted(recipe: str, snr_db: float | None = 41.25, **more: object) -> Cell:
    cell = Cell(
        recipe=recipe,  # type: ignore[arg-type]
        outcome="converted",
        snr_db=snr_db,
        engine="litert",
        size_bytes=36_240,
        old_runtime="",
    )
    return msgspec.structs.replace(cell, **more)


def failed(recipe: str, outcome: str, message: str, error: str = "") -> Cell:
    return Cell(recipe=recipe, outcome=outcome, message=message, error=error)  # type: ignore[arg-type]


def row(name: str, *cells: Cell, **more: object) -> Row:
    seconds = {"build_seconds": 300.0, "convert_seconds": 420.0}
    return msgspec.structs.replace(
        Row(architecture=name, source="keras SavedModel", state="abc", cells=cells, tools=TOOLS),
        **seconds,
        **more,
    )


def good(name: str, **by_recipe: Cell) -> Row:
    """A row that converted, but for the recipes given (their dashes as underscores)."""
    cells = {recipe: converted(recipe) for recipe in RECIPE_NAMES}
    cells |= {cell.recipe: cell for cell in by_recipe.values()}
    return row(name, *cells.values())


def rows() -> list[Row]:
    ladder = ("as it is (TensorListReserve needs a static shape)", "batch fixed to 1")
    noted = ("loaded with keras",)
    everywhere = [converted(r, notes=noted, ladder=ladder) for r in RECIPE_NAMES]
    allowed = {"allowed_float": ("GELU", "NEG"), "float_operators": ("GELU", "NEG")}
    return [
        good("plain", float32=converted("float32", 200.0, size_bytes=1_250_000)),
        msgspec.structs.replace(row("LSTM", *everywhere), options=("--signature", "encode")),
        good(
            "attention",
            int8=converted("int8", 38.04, **allowed),
            int16=converted("int16x8", 52.0, old_runtime=NO_KERNEL, **allowed),
            dynamic=converted("dynamic", 32.1, float_weight_share=0.886),
        ),
        good(
            "broken",
            int8=failed("int8", "crash", "ended with exit code -11"),
            int16=failed("int16x8", "fallback", "computes in float: A | B"),
            dynamic=failed("dynamic", "refused", "no <dynamic>\n  next: try", "VerificationFailed"),
        ),
        good("source is a .tflite", float32=converted("float32", None)),
        row("not here", skipped="keras_hub is not installed"),
        row(
            "quantised",
            *(failed(r, "refused", "it is int8", "InputRefused") for r in RECIPE_NAMES),
            refusal="it is quantised already",
        ),
    ]


def test_the_document_of_these_rows() -> None:
    names = [row.architecture for row in rows()]
    assert_golden("coverage.md", render(rows(), [*names, "never run"]))


def by_what(rows: list[Row]) -> dict[str, tuple[str, bool]]:
    return {target.what: (target.reached, target.ok) for target in targets(rows)}


def test_what_converted_is_counted_over_what_was_built_and_ought_to_convert() -> None:
    reached = by_what(rows())
    assert reached["convert to float32"] == ("5 of 5 (100.0%)", True)
    assert reached["convert to dynamic"] == ("4 of 5 (80.0%)", False)
    int8 = "4 of 5 (80.0%), 1 of them with operators left in float by name"
    assert reached["convert to int8"] == (int8, False)
    assert reached["crashes"] == ("1", False)
    assert reached["silent fallbacks"] == ("1", False)
    assert reached["refused as they should be"] == ("1 of 1", True)


def test_int8_needs_19_of_20() -> None:
    refused = failed("int8", "refused", "no", "VerificationFailed")
    twenty = [good(str(index)) for index in range(19)] + [good("last", int8=refused)]
    assert by_what(twenty)["convert to int8"] == ("19 of 20 (95.0%)", True)
    assert not by_what([*twenty, good("more", int8=refused)])["convert to int8"][1]


def test_what_ought_to_be_refused_and_converts_is_no_success() -> None:
    wrong = msgspec.structs.replace(good("custom"), refusal="custom operators")
    assert by_what([wrong])["refused as they should be"] == ("0 of 1", False)


def test_nothing_run_meets_no_target_of_conversion() -> None:
    assert not by_what([])["convert to float32"][1]


def test_the_same_note_has_the_same_number_and_only_its_first_line() -> None:
    notes = Footnotes()
    assert notes.marks("one\nmore of it") == "<sup>1</sup>"
    assert notes.marks("two", "one\nsomething else") == "<sup>2, 1</sup>"
    assert notes.marks() == ""
    assert notes.lines() == ["1. one", "2. two"]


def test_a_long_note_is_cut_and_a_bar_breaks_no_table() -> None:
    notes = Footnotes()
    notes.marks("a|b " + "x" * 900)
    (line,) = notes.lines()
    assert line.startswith("1. a\\|b x")
    assert line.endswith("x…")
    assert len(line) < 710
