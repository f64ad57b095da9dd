"""The table itself: the small architectures in every run, all of them with -m slow."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from architectures import ARCHITECTURES
from counts import targets
from table import DOCUMENT, code_state, make_row

from edgeconv.errors import WORKER_ERRORS
from edgeconv.types import RECIPE_NAMES

if TYPE_CHECKING:
    from results import Row

NAMES = [
    pytest.param(name, marks=() if architecture.is_tiny else pytest.mark.slow)
    for name, architecture in ARCHITECTURES.items()
]


@cache
def row_of(name: str) -> Row:
    return make_row(name, code_state(), None)


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_converts_or_is_refused_with_a_known_error(name: str) -> None:
    if why := ARCHITECTURES[name].missing():
        pytest.skip(why)
    row = row_of(name)
    assert [cell.recipe for cell in row.cells] == list(RECIPE_NAMES)
    for cell in row.cells:
        assert cell.outcome in {"converted", "refused"}, cell
        if cell.outcome == "refused":
            assert cell.error in WORKER_ERRORS, cell
            assert cell.message
            assert "Traceback" not in cell.message
        elif row.source.endswith(".tflite") and cell.recipe == "float32":
            assert cell.snr_db is None  # It is its own reference.
        else:
            assert cell.size_bytes > 0
            assert cell.snr_db is not None


@pytest.mark.parametrize("name", NAMES)
def test_what_ought_to_convert_does_and_what_ought_not_is_refused(name: str) -> None:
    architecture = ARCHITECTURES[name]
    if why := architecture.missing():
        pytest.skip(why)
    outcomes = {cell.recipe: cell.outcome for cell in row_of(name).cells}
    if architecture.refusal:
        assert set(outcomes.values()) == {"refused"}
    else:
        assert outcomes["float32"] == outcomes["dynamic"] == "converted", row_of(name)


@pytest.mark.slow
def test_the_targets_are_met() -> None:
    rows = [row_of(name) for name in ARCHITECTURES]
    assert [target for target in targets(rows) if not target.ok] == []


def test_there_are_as_many_architectures_as_promised_and_no_name_has_a_comma() -> None:
    assert len(ARCHITECTURES) >= 48
    assert not [name for name in ARCHITECTURES if "," in name]


def test_the_document_names_every_architecture() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    shown = [line.split("|")[1].partition("<sup>")[0].strip() for line in lines if "|" in line]
    missing = [name for name in ARCHITECTURES if name not in shown]
    assert not missing, "python tests/coverage/table.py --render"
