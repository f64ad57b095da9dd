"""The runtime of older devices, for real: tflite-runtime in an environment of its own."""

import numpy as np
import pytest
from tiny_tflite import float_model, int8_model, packed

from edgeconv import bench
from edgeconv.types import Measuring, Timing
from edgeconv.types.errors import ToolFailed


def test_bench_runs_on_it_and_its_accuracy_is_that_of_litert(
    tmp_path, old_runtime, old_cache, monkeypatch
):
    for name, make in (("float", float_model), ("int8", int8_model)):
        content = packed(make(signature=("serving_default", ["x"], ["y"])))
        (tmp_path / f"{name}.tflite").write_bytes(content)
    rng = np.random.default_rng(3)
    data = tmp_path / "data.npz"
    np.savez(data, x=rng.normal(size=(40, 4)).astype(np.float32), labels=rng.integers(0, 3, 40))
    measuring = Measuring(
        rounds=1, timing=Timing(warmup=1, repeats=5), runtimes=("tflite-runtime==2.14.0", "litert")
    )
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(old_cache))
    report = bench([tmp_path], data=str(data), measuring=measuring)
    assert [row.name for row in report.measurements] == [
        "float in tflite-runtime==2.14.0",
        "int8 in tflite-runtime==2.14.0",
        "float in litert",
        "int8 in litert",
    ]
    for before, now in zip(report.measurements[:2], report.measurements[2:], strict=True):
        assert before.runtime == "tflite_runtime 2.14.0"
        assert before.error == now.error == ""
        assert before.accuracy == now.accuracy
        assert len(before.latency.rounds_us[0]) == 5


def test_the_python_that_has_it_can_be_named(tmp_path, old_runtime):
    (tmp_path / "float.tflite").write_bytes(packed(float_model()))
    there = Measuring(rounds=1, runtimes=("tflite-runtime",), python=old_runtime.python)
    (row,) = bench([tmp_path], measuring=there).measurements
    assert (row.error, row.runtime) == ("", "tflite_runtime 2.14.0")
    wrong = Measuring(rounds=1, runtimes=("litert",), python=old_runtime.python)
    with pytest.raises(ToolFailed, match="No module named"):
        bench([tmp_path], measuring=wrong)
