"""A metric, a kind of data and a target are one file and one line: those of CONTRIBUTING.md."""

import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import captured
from documents import blocks
from places import ROOT
from tiny_tflite import Graph, packed


@pytest.fixture(scope="module")
def extended(tmp_path_factory) -> Path:
    """A folder with the package, as if somebody had followed CONTRIBUTING.md; and a model."""
    folder = tmp_path_factory.mktemp("extended")
    clutter = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "edgeconv", folder / "edgeconv", ignore=clutter)
    shutil.copytree(ROOT / "models", folder / "edgeconv" / "models", ignore=clutter)
    plugins = folder / "edgeconv" / "plugins" / "__init__.py"
    for block in blocks(ROOT / "CONTRIBUTING.md"):
        if block.title.endswith(".py"):
            (folder / block.title).write_text(block.text, encoding="utf-8")
        elif block.title:
            line = block.text.strip().strip("{}")
            text = plugins.read_text(encoding="utf-8")
            table = f"{block.title} = {{\n"
            assert text.count(table) == 1, block.title
            plugins.write_text(text.replace(table, f"{table}    {line},\n"), encoding="utf-8")
    graph = Graph()
    x = graph.tensor("x", (1, 16), "float32")
    w = graph.tensor("w", (1, 16), "float32", data=np.full((1, 16), 1 / 16, np.float32))
    b = graph.tensor("b", (1,), "float32", data=np.zeros(1, np.float32))
    y = graph.tensor("y", (1, 1), "float32")
    graph.operator("FULLY_CONNECTED", (x, w, b), (y,))
    model = graph.model((x,), (y,), signature=("serving_default", ["x"], ["y"]))
    (folder / "mean.tflite").write_bytes(packed(model))
    return folder


def called(folder: Path, *arguments: str) -> str:
    ended = captured(
        [sys.executable, "-m", "edgeconv", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


FEW = ("--rounds", "1", "--repeats", "2", "--warmup", "1", "--seconds", "0.01", "--json")


def test_the_metric_is_measured(extended):
    x = np.repeat(np.array([[0.5], [0.5], [1.0]], np.float32), 16, axis=1)
    np.savez(extended / "labeled.npz", x=x, labels=np.array([0.0, 1.0, 1.0], np.float32))
    printed = called(
        extended, "bench", "mean.tflite", "--data", "labeled.npz", "--metric", "brier", *FEW
    )
    (value,) = re.findall(r'"metric": ?"brier".*?"value": ?([\d.]+)', printed, re.DOTALL)
    assert float(value) == pytest.approx(0.5 / 3)


def test_the_kind_of_data_is_read(extended):
    np.zeros((5, 16), "<f4").tofile(extended / "rows.bin")
    printed = called(extended, "bench", "mean.tflite", "--data", "raw:rows.bin", *FEW)
    assert re.search(r'"samples": ?5\b', printed), printed[:3000]


def test_the_target_is_written(extended):
    called(extended, "embed", "mean.tflite", "--target", "text", "-o", "out", "--symbol", "net")
    assert (extended / "out" / "net.txt").read_text() == "x float32 [1, 16]\ny float32 [1, 1]\n"
