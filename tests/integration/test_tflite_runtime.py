"""The runtime of older devices, for real: tflite-runtime in an environment of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tiny_tflite import float_model, int8_model, packed

from edgeconv import bench
from edgeconv.measure.measuring import Measuring
from edgeconv.runtimes.local import Target, Timing


def test_bench_runs_on_it_and_its_accuracy_is_that_of_litert(
    tmp_path: Path, old_runtime: Target
) -> None:
    for name, make in (("float", float_model), ("int8", int8_model)):
        content = packed(make(signature=("serving_default", ["x"], ["y"])))
        (tmp_path / f"{name}.tflite").write_bytes(content)
    rng = np.random.default_rng(3)
    data = tmp_path / "data.npz"
    np.savez(data, x=rng.normal(size=(40, 4)).astype(np.float32), labels=rng.integers(0, 3, 40))
    timing = Timing(warmup=1, repeats=5)
    old, new = (
        bench(
            [tmp_path],
            data_source=str(data),
            measuring=Measuring(rounds=1, timing=timing, target=target),
        )
        for target in (old_runtime, Target())
    )
    for before, now in zip(old.measurements, new.measurements, strict=True):
        assert before.runtime == "tflite_runtime 2.14.0"
        assert before.error == now.error == ""
        assert before.accuracy == now.accuracy
        assert before.latency is not None
        assert len(before.latency.rounds_us[0]) == 5


def test_a_package_that_is_not_there_is_said_so(tmp_path: Path, old_runtime: Target) -> None:
    (tmp_path / "float.tflite").write_bytes(packed(float_model()))
    wrong = Target(package="ai_edge_litert", python=old_runtime.python)
    report = bench([tmp_path], measuring=Measuring(rounds=1, target=wrong))
    assert "ai_edge_litert" in report.measurements[0].error
    assert "No module named" in report.measurements[0].error
