"""Sweeps of a tiny model, and results of cells as if they had run."""

from pathlib import Path

import msgspec
import numpy as np
import report_example
from tiny_tflite import BIASES, WEIGHTS, float_model, packed

from edgeconv.plugins.scale.sweep_jobs import JobCell
from edgeconv.plugins.scale.sweep_plan import SweepPlan, make_plan
from edgeconv.requests.tune import SweepRequest
from edgeconv.types import CellResult, RecipeName

SWEEP = """\
models = ["nets/*.tflite"]
recipes = ["float32", "int8"]
[data.test]
source = "test.npz?labels=y"
calibration = "cal.npz"
"""


def write_models(folder: Path, *names: str) -> None:
    """Models in `nets`, and samples next to it."""
    (folder / "nets").mkdir()
    for number, name in enumerate(names or ("a",)):
        content = packed(float_model(signature=("serving_default", ["x"], ["y"])))
        # Else all would be one model, by its content.
        (folder / "nets" / f"{name}.tflite").write_bytes(content + b"\0" * 4 * number)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 4)).astype(np.float32)
    labels = (x @ WEIGHTS.T.astype(np.float32) + BIASES).argmax(axis=1)
    np.savez(folder / "test.npz", x=x, y=labels)
    np.savez(folder / "cal.npz", x=rng.normal(size=(64, 4)).astype(np.float32))


def planned(folder: Path, text: str = SWEEP, **fields) -> SweepPlan:
    """The plan of a sweep.toml with this text in `folder`."""
    file = folder / "sweep.toml"
    file.write_text(text, encoding="utf-8")
    return make_plan(SweepRequest(file=str(file), **fields), folder / "out", lambda _: None)


def result_of(cell: JobCell, recipe: RecipeName = "int8", drop: float = 0.01) -> CellResult:
    """A result: the example's row of a recipe, with this drop."""
    report = report_example.report()
    row = next(row for row in report.measurements if row.recipe == recipe)
    row = msgspec.structs.replace(
        row, name=f"{cell.recipe} {cell.runtime}", measured_in=str(cell.runtime), accuracy_drop=drop
    )
    return CellResult(key=cell.key, report=msgspec.structs.replace(report, measurements=(row,)))
