"""The package that `embed --target python` writes, in environments that have no edgeconv."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import captured
from embed_models import float_tiny, hostile_tiny, int8_tiny, named_tiny, published
from embed_updates import model
from places import SHARED
from tiny_tflite import BIASES, WEIGHTS

from edgeconv import embed
from edgeconv.types import Preprocessing
from edgeconv.types.errors import UsageError

MODELS = SHARED / "tflm_models"


@pytest.fixture(scope="session")
def litert_environment(tmp_path_factory) -> Path:
    """A Python with ai-edge-litert, what that needs, and nothing else."""
    place = tmp_path_factory.mktemp("litert")
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    python = place / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "-q", "--only-binary", ":all:", "ai-edge-litert"]
    done = captured(pip)
    if done.returncode:
        pytest.skip(f"ai-edge-litert cannot be installed here: {done.stderr[-200:]}")
    return python


@pytest.fixture(
    params=[pytest.param("ai-edge-litert", marks=pytest.mark.slow), "tflite-runtime 2.14"]
)
def python(request) -> Path:
    """Each of the two runtimes, in an environment of its own."""
    if request.param == "ai-edge-litert":
        return request.getfixturevalue("litert_environment")
    return Path(request.getfixturevalue("old_runtime").python)


def run(python: Path, place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return captured([python, *arguments], cwd=place, env=environment)


def test_the_environments_have_no_edgeconv_and_no_tensorflow(tmp_path, python):
    listing = (
        "from importlib.metadata import *; print(*(d.metadata['Name'] for d in distributions()))"
    )
    names = {name.lower() for name in run(python, tmp_path, "-c", listing).stdout.split()}
    assert "numpy" in names
    assert not names & {"edgeconv", "tensorflow", "tf-keras", "keras", "jinja2", "msgspec"}


@pytest.mark.parametrize("make", [int8_tiny, float_tiny, hostile_tiny])
def test_the_self_test_passes(tmp_path, python, make):
    embed(make(tmp_path / "m"), "python", tmp_path / "out", symbol="net", vectors=3)
    done = run(python, tmp_path / "out", "-m", "net")
    assert done.returncode == 0, done.stderr
    assert "passed: the outputs are those of LiteRT; largest difference" in done.stdout


def test_a_model_that_keeps_state_passes_too(tmp_path, python):
    source = MODELS / "mnist_lstm__trained_lstm_int8.tflite"
    if not source.is_file():
        pytest.skip("needs a recurrent model, in ../shared/data/tflm_models")
    file = published(tmp_path / "m", source.read_bytes())
    embed(file, "python", tmp_path / "out", symbol="net", vectors=3)
    done = run(python, tmp_path / "out", "-m", "net")
    assert done.returncode == 0, done.stderr


def test_numbers_go_in_and_come_out_under_the_models_own_names(tmp_path, python):
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\ndög\n'\"\n", encoding="utf-8")
    steps = {"": Preprocessing(scale=1 / 255, mean=(0.5,))}
    file = int8_tiny(tmp_path / "m", preprocessing=steps)
    embed(file, "python", tmp_path / "out", symbol="net", labels=labels)
    program = (
        "import net, numpy as np\n"
        "x = np.array([[1.0, -2.0, 3.0, 0.5]], np.float32)\n"
        "model = net.Model()\n"
        "print(model.run(x=x).y.tolist()[0])\n"
        "print(model.run(x=net.INPUTS[0].quantize(x)).y.tolist()[0])\n"
        "print(net.INPUTS[0].normalize(np.array([255], np.uint8)).tolist())\n"
        "print([ascii(label) for label in net.LABELS])\n"
    )
    done = run(python, tmp_path / "out", "-c", program)
    assert done.returncode == 0, done.stderr
    first, second, normalised, names = map(eval, done.stdout.splitlines())
    np.testing.assert_allclose(first, WEIGHTS @ [1, -2, 3, 0.5] + BIASES, atol=32)
    assert first == second
    assert normalised == [0.5]
    assert names == [ascii(text) for text in ("cat", "dög", "'\"")]


def test_an_input_may_be_called_as_what_the_code_calls(tmp_path, python):
    names = ["enumerate", "index", "model", "self_", "np"]
    embed(named_tiny(tmp_path / "m", names), "python", tmp_path / "out", symbol="net")
    given = ", ".join(
        f"{name}=[[1, {place}]]"
        for place, name in enumerate(["enumerate_", "index_", "model", "self_", "np"])
    )
    program = f"import net\nprint([y.tolist() for y in net.Model().run({given})])"
    done = run(python, tmp_path / "out", "-c", program)
    assert done.stdout.strip() == str([[[2.0, 2.0 * place]] for place in range(5)]), done.stderr


def test_a_model_edited_after_embedding_is_refused_at_run_time(tmp_path, python):
    embed(float_tiny(tmp_path / "m"), "python", tmp_path / "out", symbol="net")
    model = tmp_path / "out" / "net" / "model.tflite"
    model.write_bytes(model.read_bytes()[:-1] + b"?")
    done = run(python, tmp_path / "out", "-m", "net")
    assert done.returncode == 1
    assert "is not the model that this code was made for" in done.stderr


UPDATES = """
import net, numpy as np, sys
sha256 = sys.argv[1]
content = open("better.tflite", "rb").read()
print(net.accepts("better.tflite", net.INTERFACE_ID, sha256), net.accepts(content, "0", sha256))
for options in (
    {"model": "better.tflite"},
    {"model": "better.tflite", "interface_id": net.INTERFACE_ID, "sha256": sha256},
    {"model": content, "sha256": sha256},
    {"model": content[:-1], "sha256": sha256},
    {"model": "better.tflite", "interface_id": "0", "sha256": sha256},
):
    try:
        print(net.Model(**options).run_raw([np.array([[-3, -3, -3, -1]], np.int8)])[0].tolist()[0])
    except ValueError as error:
        print(error)
"""


def test_a_model_that_came_later_runs_as_it_was_announced(tmp_path, python):
    embed(published(tmp_path / "m", model()), "python", tmp_path / "out", symbol="net")
    better = model(weights=-WEIGHTS)
    (tmp_path / "out" / "better.tflite").write_bytes(better)
    done = run(python, tmp_path / "out", "-c", UPDATES, hashlib.sha256(better).hexdigest())
    assert done.returncode == 0, done.stderr
    answer = str([int(v) for v in np.rint((BIASES - WEIGHTS[:, 3]) / 64.0) + 5])
    assert done.stdout.splitlines() == [
        "True False",
        "better.tflite is not the model that this code was made for",
        answer,
        answer,
        "the model is not the model that was announced",
        "better.tflite has another interface than this code was made for",
    ]


def test_other_outputs_than_the_golden_ones_fail(tmp_path, python):
    embed(float_tiny(tmp_path / "m"), "python", tmp_path / "out", symbol="net")
    golden = tmp_path / "out" / "net" / "golden.bin"
    content = bytearray(golden.read_bytes())
    content[16:20] = np.float32(1e3).tobytes()
    golden.write_bytes(content)
    done = run(python, tmp_path / "out", "-m", "net")
    assert done.returncode == 1
    assert "failed: vector 0: output y differs by" in done.stderr


def test_it_installs_with_its_model(tmp_path, old_runtime):
    embed(float_tiny(tmp_path / "m"), "python", tmp_path / "out", symbol="my_net")
    python, site = Path(old_runtime.python), tmp_path / "site"
    pip = ("-m", "pip", "--python", str(python), "install", "-q", "--no-deps")
    target = ("--target", str(site), str(tmp_path / "out"))
    done = run(Path(sys.executable), tmp_path, *pip, *target)
    if "No matching distribution" in done.stderr:
        pytest.skip("setuptools cannot be installed here")
    assert done.returncode == 0, done.stderr
    assert (site / "my_net" / "model.tflite").is_file()
    done = run(python, site, "-m", "my_net")
    assert done.returncode == 0, done.stderr


def test_without_a_runtime_it_says_what_to_install(tmp_path):
    embed(float_tiny(tmp_path / "m"), "python", tmp_path / "out", symbol="net")
    for name in ("ai_edge_litert", "tflite_runtime"):
        (tmp_path / "out" / f"{name}.py").write_text("")
    done = run(Path(sys.executable), tmp_path / "out", "-m", "net")
    assert done.returncode == 1
    assert "install ai-edge-litert or tflite-runtime" in done.stderr


@pytest.mark.parametrize("symbol", ["import", "lambda", "numpy", "json", "random"])
def test_a_symbol_that_is_no_name_of_a_package_is_refused(tmp_path, symbol):
    with pytest.raises(UsageError, match=f"symbol '{symbol}' cannot be the name of the package"):
        embed(float_tiny(tmp_path / "m"), "python", tmp_path / "out", symbol=symbol)
