import re

import pytest
import report_example as example
from golden_files import assert_golden
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from edgeconv.reporting.closeness import io_types, weights
from edgeconv.reporting.pages import table_lines, text_of
from edgeconv.reporting.tables import Cell, Column, Row, Table
from edgeconv.types import Artifact, Conversion, Verdict

HOSTILE = "[bold]x[/] \x1b[31m:smile:\n" + "n" * 200
COLUMNS: tuple[Column[str], ...] = (
    Column("m", str, is_text=True, wraps=True),
    Column("n", str),
    Column("o", str, beneath=True),
)
WIDTHS = [(None, "wide"), (80, "80"), (40, "40")]


@pytest.mark.parametrize(("width", "name"), WIDTHS)
def test_the_tables_look_as_they_did(width, name):
    brief, whole = (
        text_of(example.conversion(), width=width, verbose=verbose) for verbose in (False, True)
    )
    assert_golden(f"table_{name}.txt", f"{brief}\n\n{whole}\n")
    report = text_of(example.report(), width=width)
    verdict = text_of(example.verdict(), below_table=True, width=width)
    assert_golden(f"report_{name}.txt", f"{report}\n\n{verdict}\n")


@pytest.mark.parametrize("width", [16, 20, 40, 60, 80, 100, 200])
def test_no_line_is_wider_than_asked_and_no_word_is_lost(width):
    text = text_of(example.report(), width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    found = re.sub(r"\s", "", text)
    for word in ("digits_cnn-weight-only-int8", "0.694×", "38.2MB", "FULLY_CONNECTED", "+2−13"):
        # A folded name is broken by the cells of its row, so only its parts must be there.
        assert all(part in found for part in re.split("[-_]", word))


@given(st.lists(st.text("ab-1é漢", max_size=30), min_size=3, max_size=3), st.integers(12, 70))
def test_a_folded_table_keeps_every_character_of_every_cell(cells, width):
    row = Row((Cell("x"), Cell(cells[1]), Cell(cells[2])), (cells[0],))
    text = "".join(line.plain for line in table_lines(Table(COLUMNS, (row,)), width))
    assert sorted(c for c in text if c in "ab1é漢") == sorted(
        c for c in "".join(cells) if c in "ab1é漢"
    )


def test_names_break_after_their_separators_and_numbers_do_not_break():
    row = Row((Cell("digits_cnn-weight-only-int8"), Cell("-3.1 dB"), Cell("1/2")))
    lines = [line.plain.rstrip() for line in table_lines(Table(COLUMNS, (row,)), 27)]
    assert lines[-2:] == ["digits_cnn-weight-  -3.1 dB", "only-int8               1/2"]


def test_without_color_there_is_no_escape_and_with_it_a_broken_limit_is_red():
    assert "\x1b" not in text_of(example.verdict(), below_table=True)
    assert "\x1b[1;31mFAIL" in text_of(example.verdict(), below_table=True, color=True)


def test_no_color_is_respected_even_when_color_is_asked_for(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert text_of(example.verdict(), below_table=True, color=True) == text_of(
        example.verdict(), below_table=True
    )


def test_color_changes_no_letter():
    colored = text_of(example.report(), width=80, color=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == text_of(example.report(), width=80)


def test_an_empty_conversion_and_an_empty_verdict_are_one_line_each():
    assert text_of(Conversion(directory="out", artifacts=())) == "0 files in out"
    assert text_of(Verdict(findings=()), below_table=True).startswith(
        "FAIL The budget has no limit"
    )


def test_weights_and_types_are_told_in_few_words():
    assert weights(example.artifact("int8")) == "99.6 % int"
    assert weights(example.artifact("float16")) == ">99.9 % f16"
    assert weights(example.artifact("float32")) == "float"
    assert io_types(example.artifact("int8").signature) == "int8 → float32"
    assert io_types(example.artifact("float32").signature) == "float32"


@given(st.text("a漢 -_", max_size=12), st.integers(1, 6))
def test_even_an_absurd_width_ends_and_keeps_every_letter(text, width):
    conversion = Conversion(directory=text, artifacts=())
    shown = text_of(conversion, width=width)
    assert sorted(re.sub(r"\s", "", shown)) == sorted(re.sub(r"\s", "", f"0 files in {text}"))


def test_what_is_doubtful_about_the_samples_and_notes_of_several_files_are_said_once():
    def doubtful(artifact: Artifact) -> Artifact:
        if artifact.recipe.name not in ("int8", "int16x8"):
            return artifact
        said = ("calibration samples: they are few", "its own")
        verification = replace(artifact.verification, warnings=said)
        own = f"{artifact.recipe.name} alone"
        return replace(artifact, verification=verification, notes=("loops unrolled", own))

    made = example.conversion()
    shown = text_of(replace(made, artifacts=tuple(map(doubtful, made.artifacts))))
    assert shown.count("warning: calibration samples: they are few") == 1
    assert shown.count("warning: its own") == 2
    assert shown.count("loops unrolled") == 1
    assert "\nnote: int8, int16x8: loops unrolled\n" in shown
    assert "    note: int8 alone\n" in shown
