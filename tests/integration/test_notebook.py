"""docs/notebook.ipynb, executed from the first cell to the last in an empty folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from documents import DOCS
from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

NOTEBOOK = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))


def test_the_notebook_has_no_outputs() -> None:
    for cell in NOTEBOOK["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, cell in enumerate(NOTEBOOK["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert sorted(path.name for path in (tmp_path / "digits.tflites").glob("*.tflite")) == [
        "digits.float16.tflite",
        "digits.int8.tflite",
    ]
    accuracy = {row.recipe: row.accuracy.value for row in names["report"].measurements}
    assert accuracy["int8"] > 0.8
    assert names["report"].baseline.accuracy.value > 0.8
    assert {layer.operator for layer in names["debugged"].layers} >= {"CONV_2D"}
    assert ROOT not in (tmp_path, *tmp_path.parents)
