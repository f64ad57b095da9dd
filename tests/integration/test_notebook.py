"""docs/notebook.ipynb, executed from the first cell to the last in an empty folder."""

import json
import subprocess
import sys
import sysconfig
from typing import Any

import pytest
from commands import captured
from documents import DOCS
from places import ROOT, SUPPORT

NOTEBOOK = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))


def test_the_notebook_has_no_outputs():
    for cell in NOTEBOOK["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs(tmp_path, monkeypatch):
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


CELLS = (
    f"""import sys
sys.path[:0] = {[str(ROOT), str(SUPPORT)]}
sys.path.append({sysconfig.get_path("purelib")!r})
import report_example
report, conversion = report_example.report(), report_example.conversion()""",
    "report.show()",
    "conversion.show()",
    "conversion",
)
EXECUTES = """
import json, sys, nbclient, nbformat
cells = [nbformat.v4.new_code_cell(cell) for cell in json.loads(sys.stdin.read())]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, kernel_name="python3").execute()
json.dump([[output["data"] for output in cell.outputs] for cell in notebook.cells], sys.stdout)
"""


@pytest.mark.slow
def test_results_are_shown_below_the_cells_of_a_notebook(tmp_path):
    """In a kernel of Jupyter, which has an environment of its own."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "-q", "--only-binary", ":all:", "nbclient", "ipykernel"]
    installed = captured(pip)
    if installed.returncode:
        pytest.skip(f"pip cannot install a kernel of Jupyter: {installed.stderr[-200:]}")
    done = subprocess.run(
        [python, "-c", EXECUTES],
        input=json.dumps(CELLS),
        capture_output=True,
        text=True,
        check=True,
    )
    outputs = json.loads(done.stdout)
    assert [len(each) for each in outputs] == [0, 1, 1, 1]
    (page,), (table,), (value,) = outputs[1:]
    for framed in (page, table):
        assert framed["text/html"].startswith('<div><iframe srcdoc="&lt;!doctype html&gt;')
    assert value["text/html"].startswith("<div><table>")
    assert value["text/plain"].splitlines()[0].startswith("recipe")
