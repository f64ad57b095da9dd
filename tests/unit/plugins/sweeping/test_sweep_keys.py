"""The key of a cell: all that decides its result changes it, and nothing else does."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from sweeps import SWEEP, planned, write_models


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "one").mkdir()
    write_models(tmp_path / "one", "a", "b")
    return tmp_path / "one"


def keys(folder: Path, text: str = SWEEP, **fields) -> dict[tuple[str, ...], str]:
    return {cell.name: cell.key for cell in planned(folder, text, **fields).cells}


def test_no_two_cells_have_the_same_key(folder):
    assert len({*keys(folder).values()}) == 4


def test_copies_of_a_model_share_their_cells(folder):
    shutil.copy(folder / "nets" / "a.tflite", folder / "nets" / "c.tflite")
    plan = planned(folder)
    keys_of = {cell.name: cell.key for cell in plan.cells}
    assert len(keys_of) == 6
    assert len({*keys_of.values()}) == 4
    assert [len(job.cells) for job in plan.missing(())] == [2, 2]


def test_where_and_when_and_how_fast_are_not_in_it(folder):
    before = keys(folder)
    other = folder.with_name("two")
    shutil.copytree(folder, other)
    for file in other.rglob("*.*"):
        os.utime(file, (1, 1))
    assert keys(other, jobs=7) == before


def test_other_cells_are_not_in_it(folder):
    before = keys(folder)
    more = SWEEP.replace('"int8"', '"int8", "float16", "tune(max-drop=0.1)"')
    more = 'runtimes = ["litert", "tflite-micro"]\n' + more
    more += '[data.more]\nsource = "cal.npz"\ncalibration = "test.npz"\n'
    assert keys(folder, more).items() >= before.items()


def _samples(folder: Path) -> None:
    np.savez(folder / "test.npz", x=np.zeros((3, 4), np.float32), y=np.zeros(3, np.int64))


def _calibration(folder: Path) -> None:
    np.savez(folder / "cal.npz", x=np.zeros((9, 4), np.float32))


@pytest.mark.parametrize("change", [_samples, _calibration])
def test_the_content_of_samples_is_in_it(folder, change):
    before = keys(folder)
    change(folder)
    assert not {*keys(folder).values()} & {*before.values()}


def test_the_content_of_a_model_is_in_it(folder):
    before = keys(folder)
    with (folder / "nets" / "a.tflite").open("ab") as file:
        file.write(b"\0" * 64)
    after = keys(folder)
    assert {name[0] for name in before if after[name] != before[name]} == {"nets/a.tflite"}


@pytest.mark.parametrize(
    "text",
    [
        SWEEP + "[bench]\nsamples = 20\n",
        SWEEP + "[convert]\nmethods = 'none'\n",
        SWEEP + 'preprocess = "scale=2"\n',
        "timing = true\n" + SWEEP,
    ],
)
def test_options_are_in_it(folder, text):
    assert not {*keys(folder, text).values()} & {*keys(folder).values()}


def test_the_code_of_a_metric_is_in_it(folder, monkeypatch):
    monkeypatch.chdir(folder)
    text = SWEEP + '[bench]\nmetric = "own_metric:f"\n'
    (folder / "own_metric.py").write_text("def f(o, y): return y * 0.0\n", encoding="utf-8")
    before = keys(folder, text, any_code=True)
    (folder / "own_metric.py").write_text("def f(o, y): return y * 1.0\n", encoding="utf-8")
    assert not {*keys(folder, text, any_code=True).values()} & {*before.values()}
