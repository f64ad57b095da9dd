"""One file in versions of LiteRT that pip installs, for real, and one that it cannot install."""

from pathlib import Path

import numpy as np
import pytest
from started import starts
from tiny_tflite import Graph, int8_model, packed

from edgeconv import bench, check
from edgeconv.model.tflite import with_half_biases
from edgeconv.types import Budget, Checked, Finding, Limits, Measuring, RuntimeVersions, Timing

CONFIG = """\
[model.int8]
source = "int8.tflite"
[check]
runtimes = "litert>=2.2,!=97.0.0"
[budget]
max-size-bytes = 1e6
"""


@pytest.mark.slow
def test_each_version_of_the_index_has_its_state(tmp_path, monkeypatch):
    model = tmp_path / "int8.tflite"
    model.write_bytes(packed(int8_model(signature=("serving_default", ["x"], ["y"]))))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "ai_edge_litert-97.0.0-py3-none-any.whl").write_bytes(b"no wheel")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    report = bench(
        [model],
        measuring=Measuring(
            rounds=1,
            timing=Timing(warmup=1, warmup_seconds=0, repeats=3),
            versions=RuntimeVersions(name="litert", specifier=">=2.2"),
        ),
    )
    *older, newest, missing = report.matrix
    assert older[0].runtime == "litert==2.2.0"
    assert [row.state for row in (*older, newest)] == ["right"] * (len(older) + 1)
    assert newest.is_reference
    assert (missing.runtime, missing.state) == ("litert==97.0.0", "not installable")
    assert "installing litert==97.0.0" in missing.detail
    # The usual measurement is next to it.
    assert [row.error for row in report.measurements] == [""]
    check_the_same(tmp_path, monkeypatch)


def check_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate on the same file, whose answers are kept; then on one that crashes everywhere."""
    monkeypatch.chdir(tmp_path)
    config = Path("edgeconv.toml")
    config.write_text(CONFIG)
    sound = of_versions(check())
    assert (sound.outcome, sound.line) == ("passed", 4)
    assert sound.model == "int8"
    with starts() as started:
        again = check()
    assert again.checks[0].reused
    assert not started
    config.write_text(CONFIG.replace("!=97.0.0", "!=96.0.0"))
    absent = of_versions(check())
    assert (absent.outcome, absent.ok) == ("missing", False)
    assert "not installed: litert==97.0.0" in absent.reason


def half_convolution() -> bytes:
    """A 3x3 convolution with float16 weights and a float32 bias, as float16 files have them."""
    rng = np.random.default_rng(0)
    graph = Graph()
    x = graph.tensor("x", (1, 8, 8, 8), "float32")
    data = rng.normal(size=(8, 3, 3, 8)).astype(np.float16)
    half = graph.tensor("half", data.shape, "float16", data=data)
    weights = graph.tensor("weights", data.shape, "float32")
    graph.operator("DEQUANTIZE", [half], [weights])
    bias = graph.tensor("bias", (8,), "float32", data=rng.normal(size=8).astype(np.float32))
    y = graph.tensor("y", (1, 8, 8, 8), "float32")
    graph.convolution([x, weights, bias], y, version=1)
    return packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"])))


@pytest.mark.slow
def test_a_version_that_answers_wrong_is_named_by_the_gate(tmp_path, monkeypatch):
    """LiteRT 1.1.1 to 1.3.0 take the float32 bias for float16; docs/bench.md has it."""
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("half.tflite").write_bytes(half_convolution())
    Path("mended.tflite").write_bytes(with_half_biases(half_convolution()))
    report = bench(
        ["half.tflite", "mended.tflite"],
        measuring=Measuring(
            rounds=1,
            timing=Timing(warmup=1, warmup_seconds=0, repeats=3),
            versions=RuntimeVersions(name="litert", specifier=">=1.3,<1.5"),
        ),
    )
    assert {(row.model, row.runtime): row.state for row in report.matrix} == {
        ("half", "litert==1.3.0"): "wrong",
        ("half", "litert==1.4.0"): "right",
        ("mended", "litert==1.3.0"): "right",
        ("mended", "litert==1.4.0"): "right",
    }
    checked = check(report=report, budget=Budget(every=Limits(max_size_bytes=1e6)))
    assert not checked.ok
    broken = of_versions(checked)
    assert broken.actual == "litert==1.3.0 answers wrong"
    assert "!=1.3.0" in broken.reason
    # Both environments have the files of uv's cache.
    numpys = (tmp_path / "cache" / "runtimes").glob("litert-*/venv/lib/*/*/numpy/__init__.py")
    assert [path.stat().st_nlink > 1 for path in numpys] == [True, True]


def of_versions(checked: Checked) -> Finding:
    findings = [
        finding
        for each in checked.checks
        for finding in each.verdict.findings
        if finding.limit == "runtimes"
    ]
    (only,) = [finding for finding in findings if finding.outcome != "passed"] or findings
    return only
