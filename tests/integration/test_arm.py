"""The runtimes `arm64` and `armv7`: the kernels of an Arm processor, run for real under QEMU."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_tflite import float_model, int8_model, packed

from edgeconv import bench, convert
from edgeconv.runtimes.choice import parse_target_runtime
from edgeconv.runtimes.emulation import MACHINES
from edgeconv.runtimes.isolated import installed, isolated_target
from edgeconv.runtimes.local import RuntimePython
from edgeconv.types import Measuring
from edgeconv.types.errors import EdgeconvError, UsageError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["arm64", "armv7"])
def target(request, tmp_path_factory) -> tuple[str, RuntimePython, Path]:
    """A runtime, its environment, and the cache that this is in."""
    name = request.param
    if shutil.which(MACHINES[name].qemu) is None:
        pytest.skip(f"needs {MACHINES[name].qemu}, of Debian's qemu-user-static")
    cache = tmp_path_factory.mktemp("arm-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(cache))
        try:
            return name, isolated_target(parse_target_runtime(name)), cache
        except EdgeconvError as error:
            pytest.skip(f"{name} cannot be installed here: {error}")


def test_arm_kernels_give_outputs_and_are_compared_with_this_processor(
    target, tmp_path, monkeypatch
):
    name, python, cache = target
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(cache))
    (tmp_path / "int8.tflite").write_bytes(packed(int8_model()))
    (tmp_path / "float.tflite").write_bytes(packed(float_model()))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(230, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, labels=rng.integers(0, 3, 230))
    measuring = Measuring(rounds=1, runtimes=(name,))
    report = bench([tmp_path], measuring=measuring, data=str(tmp_path / "data.npz"))
    rows = {row.name: row for row in report.measurements}
    for model in ("int8", "float"):
        there, here = rows[f"{model} in {name}"], rows[f"{model} in litert"]
        assert there.error == here.error == ""
        assert there.latency is None
        assert here.latency is not None
        assert there.accuracy.samples == 200
        agree = np.equal(there.accuracy.predicted, here.accuracy.predicted).mean()
        assert agree >= 0.99
    assert report.data.samples == 200
    assert any(
        note.startswith(f"200 of 230 samples, because {name} is slow") for note in report.notes
    )
    compared = {each.partition(": ")[0]: each for each in report.notes if "processor's" in each}
    assert {f"int8 in {name}", f"float in {name}"} <= set(compared)
    assert "600 values" in compared[f"int8 in {name}"]
    if name == "arm64":
        # Integers are; a processor with other instructions may round them otherwise.
        assert "identical" in compared[f"int8 in {name}"]
    contents = installed(python)
    assert contents.python == "3.11"
    assert set(contents.packages) >= {"numpy"}
    assert any(file.endswith(".deb") for file in contents.sha256)
    assert all(len(value) == 64 for value in contents.sha256.values())


def test_a_file_is_verified_on_arm(target, tmp_path, monkeypatch):
    name, _, cache = target
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(cache))
    (tmp_path / "float.tflite").write_bytes(packed(float_model()))
    converted = convert(
        tmp_path / "float.tflite", out=tmp_path / "out", to=["float32"], target_runtime=name
    )
    assert converted.failures == ()
    (artifact,) = converted.artifacts
    assert artifact.target.runtime.startswith(f"{name} 2.")
    (output,) = artifact.target.outputs
    assert output.snr_db is None or output.snr_db > 60


def test_without_qemu_it_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "float.tflite").write_bytes(packed(float_model()))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="qemu-aarch64-static") as refusal:
        bench([tmp_path], measuring=Measuring(rounds=1, runtimes=("arm64",)))
    assert "apt-get install qemu-user-static" in refusal.value.hint
