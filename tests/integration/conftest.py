import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from commands import captured
from edge_models import Workshop, images
from forking import edgeconv_command, output_of
from once import made_once, shared_directory
from places import SUPPORT
from sources import split_taken
from zoo import stocked

from edgeconv.data import Samples
from edgeconv.runtimes.choice import open_runtime, parse_choice, parse_target_runtime
from edgeconv.runtimes.interface import RuntimeSettings
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.runtimes.local import RuntimePython
from edgeconv.types.errors import UsageError

# What it asserts is shown as in a test.
pytest.register_assert_rewrite("fault_stages")


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """A directory of the whole run, which the processes of xdist share."""
    return shared_directory(tmp_path_factory)


@pytest.fixture(scope="session")
def zoo(shared) -> Path:
    """The models of model_zoo.py, and samples for them."""
    return made_once(shared / "zoo", make_zoo)


def make_zoo(root: Path) -> None:
    np.savez(root / "images.npz", image=images())
    calibration, _ = split_taken(Samples({"image": images()}, None, ""), None)
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
    stocked(root, "model_zoo:write")


@pytest.fixture(scope="session")
def loops(shared) -> Path:
    """The models of loop_zoo.py, and what came of unrolling them."""
    return made_once(shared / "loops", lambda root: output_of(SUPPORT / "loop_zoo.py", root))


@pytest.fixture(scope="session")
def brought(shared) -> Path:
    """The models of brought_zoo.py, samples for them, and what TensorFlow answers."""
    return made_once(shared / "brought", lambda root: stocked(root, "brought_zoo:write"))


@pytest.fixture(scope="module")
def models(request, tmp_path_factory) -> Path:
    """The models of the builder that the module of the test names as `ZOO`."""
    return stocked(tmp_path_factory.mktemp("models"), request.module.ZOO)


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory) -> Path:
    """A directory that the tests of a module share."""
    return tmp_path_factory.mktemp(request.module.__name__)


@pytest.fixture(scope="session")
def workshop(zoo, shared) -> Workshop:
    """Conversions that several tests look at; each is made once."""
    return Workshop(zoo, shared)


@pytest.fixture(scope="session")
def old_cache(tmp_path_factory) -> Path:
    """The cache that the environment of `old_runtime` is in."""
    return tmp_path_factory.mktemp("old-cache")


@pytest.fixture(scope="session")
def old_runtime(old_cache) -> RuntimePython:
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


@pytest.fixture(scope="session")
def micro_cache(shared) -> Path:
    """The cache that the environment of tflite-micro is in, made once for the whole run."""

    def make(root: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("EDGECONV_CACHE_DIR", str(root))
            try:
                isolated_target(parse_target_runtime("tflite-micro"))
            except UsageError as error:
                pytest.skip(str(error))

    return made_once(shared / "micro-cache", make)


@pytest.fixture
def cli(tmp_path):
    """Runs `edgeconv …` as a process in `tmp_path`; temporary files go to tmp_path/tmp."""
    (tmp_path / "tmp").mkdir(exist_ok=True)

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [*edgeconv_command(), *map(str, arguments)]
        environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), **variables}
        return captured(command, cwd=tmp_path, env=environment)

    return run


@pytest.fixture(scope="session")
def gpu_device(tmp_path_factory) -> str:
    """The GPU, or SwiftShader, that the runtime `gpu` computes on; skips without one."""
    settings = RuntimeSettings(scratch=tmp_path_factory.mktemp("gpu"))
    try:
        with open_runtime(parse_choice("gpu"), settings) as runtime:
            return runtime.gpu
    except UsageError as error:
        pytest.skip(str(error))
