from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from edge_models import Workshop, images
from places import SUPPORT

from edgeconv.data import Samples, split_calibration
from edgeconv.errors import UsageError
from edgeconv.runtimes.choice import parse_target_runtime
from edgeconv.runtimes.isolated import isolated_target

if TYPE_CHECKING:
    from edgeconv.runtimes.local import RuntimePython

# What it asserts is shown as in a test.
pytest.register_assert_rewrite("fault_stages")

ZOO = SUPPORT / "model_zoo.py"


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the models of model_zoo.py, and samples for them."""
    root = tmp_path_factory.mktemp("zoo")
    np.savez(root / "images.npz", image=images())
    calibration, _ = split_calibration(Samples({"image": images()}, None, ""), None)
    np.save(root / "calibration.npy", calibration.arrays["image"])
    rng = np.random.default_rng(2)
    np.savez(root / "steps.npz", steps=rng.standard_normal((20, 5, 8), np.float32))
    np.savez(root / "tokens.npz", tokens=rng.integers(0, 20, (20, 6), np.int32))
    np.savez(
        root / "pairs.npz",
        left=rng.standard_normal((20, 6), np.float32),
        right=rng.standard_normal((20, 4), np.float32),
    )
    np.savez(root / "rows.npz", x=rng.standard_normal((21, 4), np.float32))
    with (root / "log.txt").open("wb") as log:
        made = subprocess.run(
            [sys.executable, ZOO, root], stdout=log, stderr=subprocess.STDOUT, check=False
        )
    assert made.returncode == 0, (root / "log.txt").read_text(errors="replace")[-3000:]
    return root


def made_by(script: str, root: Path) -> Path:
    """`root`, once `script` has filled it in a process of its own."""
    log = root / "log.txt"
    with log.open("wb") as output:
        done = subprocess.run(
            [sys.executable, SUPPORT / script, root],
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    assert done.returncode == 0, log.read_text(errors="replace")[-3000:]
    return root


@pytest.fixture(scope="session")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of loop_zoo.py, and what came of unrolling them."""
    return made_by("loop_zoo.py", tmp_path_factory.mktemp("loops"))


@pytest.fixture(scope="session")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of brought_zoo.py, samples for them, and what TensorFlow answers."""
    return made_by("brought_zoo.py", tmp_path_factory.mktemp("brought"))


@pytest.fixture(scope="session")
def workshop(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Conversions that several tests look at; each is made once."""
    return Workshop(zoo, tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="session")
def old_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache that the environment of `old_runtime` is in."""
    return tmp_path_factory.mktemp("old-cache")


@pytest.fixture(scope="session")
def old_runtime(old_cache: Path) -> RuntimePython:
    """tflite-runtime 2.14 in an environment that edgeconv made, over the wreck of another."""
    for python in ("39", "310", "311"):
        wreck = old_cache / "runtimes" / f"tflite-runtime-2.14.0-py{python}" / "venv" / "bin"
        wreck.mkdir(parents=True)
        (wreck / "python").write_text("half of a program")
        (wreck.parents[1] / "left-over").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(old_cache))
        try:
            return isolated_target(parse_target_runtime("tflite-runtime==2.14.0"))
        except UsageError as error:
            pytest.skip(str(error))


@pytest.fixture
def cli(tmp_path: Path) -> Any:
    """Runs `edgeconv …` as a process in `tmp_path`; temporary files go to tmp_path/tmp."""
    (tmp_path / "tmp").mkdir(exist_ok=True)

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "edgeconv", *map(str, arguments)]
        environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), **variables}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run
