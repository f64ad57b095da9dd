"""Where only ai-edge-quantizer is installed, the old name of litert-quantizer, edgeconv uses it."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from two_dense import two_dense

from edgeconv.requests.config import lock
from edgeconv.system.store.tools import QUANTIZERS

OLD = ("ai-edge-quantizer", "0.10.0")
PROGRAM = "from edgeconv.cli import main; main()"


@pytest.fixture(scope="module")
def old_python(tmp_path_factory) -> Path:
    """An environment with all packages of this one, but the quantizer under its old name."""
    place = tmp_path_factory.mktemp("old")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = place / "lib" / version / "site-packages"
    new = tuple(name.replace("-", "_") for name in QUANTIZERS)
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not entry.name.startswith(new):
            (site / entry.name).symlink_to(entry)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site]
    subprocess.run([*pip, "==".join(OLD)], check=True)
    return place / "bin" / "python"


def run(python: str | Path, place: Path, *words: str) -> str:
    """What a command of edgeconv prints in `place`, on stderr too. It succeeds."""
    done = subprocess.run(
        [python, "-c", PROGRAM, *words],
        cwd=place,
        # A confined child may read where libraries are; the packages are links to there.
        env={**os.environ, "LD_LIBRARY_PATH": sysconfig.get_paths()["purelib"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


CONFIGURATION = """\
[model.dense]
source = "dense.tflite"
[convert]
to = ["int8"]
calibration = "samples.npz"
[bench]
data = "samples.npz"
[budget]
max-size-bytes = 100000
"""


@pytest.mark.slow
def test_it_quantizes_and_the_successor_is_a_tool_of_another_version(tmp_path, old_python):
    (tmp_path / "dense.tflite").write_bytes(two_dense())
    samples = np.random.default_rng(1).normal(size=(32, 8)).astype(np.float32)
    np.savez(tmp_path / "samples.npz", x=samples)
    (tmp_path / "edgeconv.toml").write_text(CONFIGURATION)
    said = run(old_python, tmp_path, "--version")
    assert " ".join(OLD) in said
    assert QUANTIZERS[0] not in said
    run(old_python, tmp_path, "check", "--update")
    (model,) = lock.read(tmp_path / "edgeconv.lock").models.values()
    assert model.tools[OLD[0]] == OLD[1]
    said = run(sys.executable, tmp_path, "check")
    assert f"{' '.join(OLD)} → {QUANTIZERS[0]} " in said
