"""Quantized .tflite files that edgeconv did not make: bench, check, embed and inspect take them."""

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from forking import edgeconv_command
from tiny_tflite import WEIGHTS, Graph, float_model, int8_model, packed
from wording import fails, says

from edgeconv import bench, convert, embed
from edgeconv.model.source import artifact_of_file
from edgeconv.model.tflite.operators import likely_recipe
from edgeconv.system.store import sha256_file
from edgeconv.types import Checked, Measuring, Timing
from edgeconv.types.errors import InputRefused

QUICK = Measuring(rounds=2, timing=Timing(warmup=1, repeats=5, seconds=1.0))


def uint8_model() -> schema.ModelT:
    """As TensorFlow 1's quantisation-aware training left it: uint8 weights with a zero point."""
    graph = Graph()
    x = graph.tensor("input:0", (1, 4), "uint8", scale=0.5, zero_point=125)
    weights = (WEIGHTS.astype(np.int16) + 120).astype(np.uint8)
    w = graph.tensor("w", (3, 4), "uint8", data=weights, scale=1.0, zero_point=120)
    b = graph.tensor("b", (3,), "int32", data=np.array([20, -40, 60], np.int32), scale=0.5)
    y = graph.tensor("out/put", (1, 3), "uint8", scale=4.0, zero_point=133)
    graph.operator("FULLY_CONNECTED", [x, w, b], [y])
    graph.codes[0].builtinCode = 0
    return graph.model([x], [y])


def hybrid_model(*, unpacked: bool = False) -> schema.ModelT:
    """int8 weights beside float activations: dynamic, or made floats first."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    w = graph.tensor("w", (3, 4), "int8", data=WEIGHTS, scale=1.0)
    if unpacked:
        floats = graph.computed("floats", (3, 4), "DEQUANTIZE", [w], version=2)
        w = floats
    y = graph.computed("y", (1, 3), "FULLY_CONNECTED", [x, w, -1], version=3)
    return graph.model([x], [y])


def int16_model() -> schema.ModelT:
    graph = Graph()
    x, y = (graph.tensor(name, (1, 4), "int16", scale=0.5) for name in "xy")
    graph.operator("RELU", [x], [y])
    return graph.model([x], [y])


@pytest.mark.parametrize(
    ("model", "recipe"),
    [
        (float_model(), "float32"),
        (int8_model(), "int8"),
        (uint8_model(), "int8"),
        (int16_model(), "int16x8"),
        (hybrid_model(), "dynamic"),
        (hybrid_model(unpacked=True), "weight-only-int8"),
    ],
)
def test_a_file_is_known_by_the_types_in_it(model, recipe):
    assert likely_recipe(packed(model), where="it") == recipe


def test_its_description_claims_no_comparison(tmp_path):
    (tmp_path / "net v1.tflite").write_bytes(packed(uint8_model()))
    made = artifact_of_file(tmp_path / "net v1.tflite")
    assert (made.name, made.key, made.quantized_weight_share) == ("net-v1", "", 1.0)
    assert made.sha256 == sha256_file(tmp_path / "net v1.tflite")
    assert made.verification.samples == 0
    assert made.verification.reference.startswith("none")


def test_converting_it_says_what_it_is_and_what_takes_it(tmp_path):
    (tmp_path / "net.tflite").write_bytes(packed(uint8_model()))
    with fails(InputRefused):
        convert(tmp_path / "net.tflite", out=tmp_path / "out", to=["dynamic"])


def test_bench_takes_files_of_both_eras_beside_each_other_and_a_baseline(tmp_path):
    (tmp_path / "float.tflite").write_bytes(packed(float_model(signature=("s", ["x"], ["y"]))))
    for name, model in (("old", uint8_model()), ("new", int8_model()), ("half", hybrid_model())):
        (tmp_path / f"{name}.tflite").write_bytes(packed(model))
    np.savez(tmp_path / "data.npz", x=np.eye(4, dtype=np.float32) * 3, labels=np.arange(4) % 3)
    report = bench(
        [tmp_path / f"{name}.tflite" for name in ("old", "new", "half")],
        baseline=tmp_path / "float.tflite",
        data=str(tmp_path / "data.npz"),
        measuring=QUICK,
    )
    assert [row.error for row in report.measurements] == ["", "", ""]
    assert [row.recipe for row in report.measurements] == ["int8", "int8", "dynamic"]
    old, _, half = report.measurements
    assert old.agreement[0].snr_db > 15
    assert half.accuracy_drop is not None


@pytest.mark.parametrize("make", [uint8_model, int8_model])
def test_embed_takes_it_without_a_manifest(tmp_path, make):
    file = tmp_path / "net.tflite"
    file.write_bytes(packed(make()))
    done = embed(file, "python", tmp_path / "app")
    assert done.model_sha256 == sha256_file(file)
    assert "net.tflite has no manifest" in done.notes[0]
    tested = subprocess.run(
        [sys.executable, "-m", "net"], cwd=tmp_path / "app", capture_output=True, text=True
    )
    assert "passed" in tested.stdout, tested.stderr
    header = embed(file, "c", tmp_path / "firmware")
    assert any(one.path == "net.h" for one in header.files)
    assert embed(file, "c", tmp_path / "firmware").key == header.key


CONFIG = """
[convert]
to = "float32"

[bench]
data = "data.npz"
rounds = 1
repeats = 5
seconds = 0.05

[budget]
max-accuracy-drop = { limit = 0.9, severity = "warn" }

[budget.recipe.int8]
max-size-bytes = %d

[budget.recipe.dynamic]
max-size-bytes = 1

[model.download]
source = "net.tflite"
%s

[model.download.bench]
baseline = "float.tflite"
"""


@pytest.fixture
def project(tmp_path) -> Path:
    (tmp_path / "float.tflite").write_bytes(packed(float_model()))
    (tmp_path / "net.tflite").write_bytes(packed(uint8_model()))
    data = np.eye(4, dtype=np.float32) * 3
    np.savez(tmp_path / "data.npz", x=data, labels=np.arange(4) % 3)
    return tmp_path


def check(project: Path, limit_bytes: int, more: str = "") -> subprocess.CompletedProcess[str]:
    text = CONFIG.replace('to = "float32"', 'to = "float32,int8,dynamic"') % (limit_bytes, more)
    (project / "edgeconv.toml").write_text(text, encoding="utf-8")
    return subprocess.run(
        [*edgeconv_command(), "check", "-q", "--json", "--no-cache"],
        cwd=project,
        capture_output=True,
        text=True,
    )


def test_check_judges_the_file_itself_by_the_limits_of_what_it_looks_like(project):
    before = sorted(path.name for path in project.iterdir())
    done = check(project, 10_000)
    assert done.returncode == 0, done.stderr
    (one,) = msgspec.json.decode(done.stdout, type=Checked).checks
    assert {(each.model, each.limit) for each in one.verdict.findings} == {
        ("net", "max-size-bytes"),
        ("net", "max-accuracy-drop"),
    }
    after = sorted(path.name for path in project.iterdir())
    assert after == sorted([*before, "edgeconv.toml", "net.verdict.json"])
    assert check(project, 100).returncode == 1


def test_options_to_convert_what_is_not_converted_are_refused(project):
    done = check(project, 10_000, '[model.download.convert]\nengine = "litert"\n')
    assert done.returncode == 2
    says(done.stderr)
