"""`embed --remake`: a Keras model converted again for a microcontroller, and what that saved."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from forking import output_of

from edgeconv.cli import cli, run
from edgeconv.system.store import read_noun
from edgeconv.types import Artifact

MAKE = """
import keras, sys
x = keras.Input((8, 8, 1), name="image")
y = keras.layers.Conv2D(8, 3, activation="relu")(x)
y = keras.layers.Dense(4, activation="softmax", name="scores")(keras.layers.Flatten()(y))
keras.Model(x, y).save(sys.argv[1])
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A directory with a Keras model, its samples, and what `convert` made of it."""
    place = tmp_path_factory.mktemp("project")
    output_of("-c", MAKE, place / "net.keras")
    images = np.random.default_rng(1).uniform(0, 1, (64, 8, 8, 1)).astype(np.float32)
    np.savez(place / "cal.npz", image=images)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(place / "cache"))
        patch.chdir(place)
        words = ["convert", "net.keras", "--to", "int8", "--calibration", "cal.npz", "-q"]
        assert run(words) == 0
    return place


@pytest.fixture
def here(project, monkeypatch) -> Path:
    monkeypatch.chdir(project)
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(project / "cache"))
    return project


def embedded(*options: str) -> str:
    done = CliRunner().invoke(cli, ["embed", "net.tflites/net.int8.tflite", *options])
    assert done.exit_code == 0, done.output
    return done.output


def operators(manifest: str) -> int:
    artifact = read_noun(Path(manifest), Artifact, what="manifest")
    return sum(one.count for one in artifact.operators)


def test_what_is_said_to_go_goes_and_what_is_saved_is_what_was_measured(here):
    offered = embedded("--target", "c", "-o", "before")
    going, count = map(int, re.findall(r"note: (\d+) of the (\d+) operators are", offered)[0])
    said = embedded("--target", "c", "-o", "after", "--remake")
    assert f"remade: {count} operators became {count - going}, " in said
    assert operators("net.tflites/net.int8.json") == count
    assert operators("net.tflites/remade/net.int8.json") == count - going
    before, after = (Path(f"net.tflites/{at}net.int8.tflite") for at in ("", "remade/"))
    sizes = [f"{path.stat().st_size:,}" for path in (before, after)]
    assert f"{sizes[0]} bytes of model became {sizes[1]}," in said
    arenas = [
        re.search(r"_ARENA_BYTES (\d+)u", Path(place, "net_micro.h").read_text())[1]
        for place in ("before", "after")
    ]
    assert f"{int(arenas[0]):,} bytes of arena, by estimate, became {int(arenas[1]):,}" in said
    assert int(arenas[1]) < int(arenas[0])
    assert "net_input_image_quantize" in Path("after/net.h").read_text()


def test_the_command_that_is_offered_makes_the_same_file(here):
    offered = embedded("--target", "c", "-o", "before")
    embedded("--target", "c", "-o", "after", "--remake")
    made = Path("net.tflites/remade/net.int8.tflite")
    content = made.read_bytes()
    made.unlink()
    words = shlex.split(re.search(r"next: --remake, or (.*)", offered)[1])
    assert run([*words[1:], "-q"]) == 0
    assert made.read_bytes() == content


def test_other_samples_than_those_of_the_manifest_are_refused(here, capsys):
    content = Path("cal.npz").read_bytes()
    other = np.random.default_rng(2).uniform(0, 1, (64, 8, 8, 1)).astype(np.float32)
    try:
        np.savez("cal.npz", image=other)
        words = ["embed", "net.tflites/net.int8.tflite", "--target", "c", "-o", "other"]
        assert run([*words, "--remake"]) == 3
    finally:
        Path("cal.npz").write_bytes(content)
    assert "calibration samples changed since net.int8.tflite was" in capsys.readouterr().err
    assert not Path("other").exists()
