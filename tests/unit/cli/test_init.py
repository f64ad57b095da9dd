"""The first configuration: what it says of a model, that it is read, and what it never does."""

import json
import os
import re
import shutil
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tiny_tflite import float_model, packed
from wording import says

from edgeconv.cli import run
from edgeconv.gate.init_config import Start, config_text, decidable_drop
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.check import CheckRequest
from edgeconv.requests.config.chosen import Chosen
from edgeconv.requests.config.file import Config, limited
from edgeconv.requests.config.reach import NOTHING_GRANTED
from edgeconv.requests.config.tables import Table, read_config
from edgeconv.types import Inspection, Limit, Signature, SourceKind, SourceModel, TensorSpec

ROWS = TensorSpec(name="x", shape=(-1, 28, 28, 1), dtype="float32")
PROBABILITIES = TensorSpec(name="y", shape=(-1, 10), dtype="float32")
HOSTILE = 'x"\n[budget]\nmin-accuracy = 0 # \u202e\x1b[31m'


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(
    *inputs: TensorSpec,
    kind: SourceKind = "saved_model",
    size_bytes: int = 1_000_000,
    keys: tuple[str, ...] = ("serving_default",),
    source: str = "models/mnist/1",
    name: str = "mnist",
    data: str = "",
    calibration: str = "",
) -> Start:
    signatures = tuple(
        Signature(key=key, inputs=inputs or (ROWS,), outputs=(PROBABILITIES,)) for key in keys
    )
    model = SourceModel(
        path=source,
        kind=kind,
        name=name,
        sha256="0" * 64,
        size_bytes=size_bytes,
        signatures=signatures,
        notes=("version 2 of 1, 2",),
    )
    return Start(
        inspection=Inspection(model=model, operators=()),
        signatures=signatures,
        source=source,
        data=data,
        calibration=calibration,
    )


def loaded(text: str) -> Config:
    Path("edgeconv.toml").write_text(text, encoding="utf-8")
    config = read_config(Path("edgeconv.toml"))
    chosen = Chosen(CheckRequest(), config)
    for model in config.models.values():
        chosen.converting(model)
        chosen.request(BenchRequest, "bench", model, {"models": (model.source,)})
    Table(config, "check", NOTHING_GRANTED).request(CheckRequest, {})
    return config


def with_every_option(text: str) -> str:
    """The text with the options that it only shows made active."""
    lines = []
    for line in text.splitlines():
        shown = line.removeprefix("# ")
        key = shown.partition(" = ")[0]
        is_option = shown != line and " = " in shown and key.replace("-", "").isalpha()
        lines.append(shown if is_option else line)
    return "\n".join(lines)


def test_without_data_it_limits_what_can_be_measured_only():
    config = loaded(config_text(start()))
    assert config.tables["convert"]["to"] == ["float32", "float16", "dynamic"]
    assert set(limited(config, "mnist").every.by_name()) == {"max-size-ratio"}
    assert set(config.budget.recipe) == {"float16"}


def test_with_data_and_calibration_it_limits_the_accuracy_drop_of_int8_too():
    config = loaded(config_text(start(data="test.npz", calibration="train.npz")))
    assert config.tables["convert"]["to"] == ["float32", "float16", "dynamic", "int8"]
    assert config.tables["convert"]["calibration"] == "train.npz"
    assert config.tables["bench"]["data"] == "test.npz"
    assert config.budget.every.max_accuracy_drop == 0.01
    assert set(config.budget.recipe) == {"float16", "int8"}


@pytest.mark.parametrize("kind", ["saved_model", "keras", "hdf5", "tflite"])
@pytest.mark.parametrize("size_bytes", [5000, 5_000_000])
@pytest.mark.parametrize("data", ["", "test.npz"])
def test_it_is_read_and_so_is_every_option_that_it_shows(kind, size_bytes, data):
    keys = () if kind in ("keras", "hdf5") else ("a", "serving_default")
    text = config_text(
        start(kind=kind, size_bytes=size_bytes, keys=keys, data=data, calibration=data)
    )
    loaded(text)
    config = loaded(with_every_option(text))
    assert config.budget.every.max_class_drop == 0.05
    assert {"confidence", "method", "inconclusive", "output"} <= set(config.tables["check"])
    assert config.models["mnist"].slices == "slices.txt"


def test_it_says_what_the_model_takes_and_gives():
    text = config_text(start())
    assert "# A SavedModel, 1,000,000 bytes.\n# version 2 of 1, 2\n" in text
    assert "#   input x: float32 [?, 28, 28, 1]\n#   output y: float32 [?, 10]\n" in text
    assert "# batch = 1\n" in text
    assert "# shape" not in text
    assert '# io = ["int8"]\n' in text


def test_open_dimensions_beside_the_batch_are_named():
    tokens = TensorSpec(name="ids", shape=(-1, -1), dtype="int32")
    text = config_text(start(tokens))
    assert '# shape = ["ids=?x?"]\n' in text
    assert "# io" not in text
    fixed = TensorSpec(name="x", shape=(1, 4), dtype="float32")
    assert "# batch" not in config_text(start(fixed))


def test_of_several_signatures_one_is_chosen_and_all_are_named():
    text = config_text(start(keys=("encode", "serving_default", "decode")))
    assert loaded(text).tables["convert"]["signature"] == ["serving_default"]
    assert "# One or several of encode, serving_default, decode" in text
    assert loaded(config_text(start(keys=("b", "a")))).tables["convert"]["signature"] == ["b"]
    assert "signature =" not in config_text(start())


def test_what_has_no_samples_is_not_quantised_and_text_has_some():
    text = config_text(start(TensorSpec(name="t", shape=(-1,), dtype="resource")))
    assert loaded(text).tables["convert"]["to"] == ["float32"]
    text = config_text(start(TensorSpec(name="t", shape=(-1,), dtype="string")))
    assert loaded(text).tables["convert"]["to"] == ["float32", "float16", "dynamic"]


def test_hostile_names_stay_in_their_comments_and_quotes():
    tensor = TensorSpec(name=HOSTILE, shape=(-1, -1), dtype=HOSTILE)
    given = start(tensor, keys=(HOSTILE, "b"), source=f"m/{HOSTILE}", name="n" * 200)
    text = config_text(given)
    assert all(line.isprintable() for line in text.splitlines())
    config = loaded(text)
    assert config.tables["convert"]["signature"] == [HOSTILE]
    assert config.models["n" * 64].source == f"m/{HOSTILE}"
    assert set(config.budget.every.by_name()) == {"max-size-ratio"}


# The command


@pytest.fixture
def model(here) -> Path:
    """A float .tflite that edgeconv takes."""
    target = here / "models" / "small.tflite"
    target.parent.mkdir()
    target.write_bytes(packed(float_model()))
    return target


def test_the_model_is_looked_at_and_the_file_is_read(model, capsys):
    assert run(["init", "models/small.tflite", "--data", "npz:test.npz"]) == 0
    assert "configuration: edgeconv.toml\nnext: " in capsys.readouterr().out
    config = read_config(Path("edgeconv.toml"))
    assert config.models["small"].source == "models/small.tflite"
    assert "\n#   input " in config.written.text
    assert config.tables["bench"]["data"] == "npz:test.npz"


def test_a_name_of_data_that_is_not_there_is_noted_with_the_one_that_is_like_it(model, capsys):
    Path("test.npz").touch()
    assert run(["init", "models/small.tflite", "--data", "tst.npz"]) == 0
    assert "did you mean test.npz?" in capsys.readouterr().err
    assert read_config(Path("edgeconv.toml")).tables["bench"]["data"] == "tst.npz"


def test_without_a_name_the_only_model_here_is_taken(model):
    assert run(["init"]) == 0
    assert read_config(Path("edgeconv.toml")).models["small"].source == "models/small.tflite"


def test_without_a_name_none_or_several_models_are_refused(model, capsys):
    shutil.copy(model, "second.tflite")
    shutil.copytree("models", "made.tflites")
    shutil.copytree("models", ".hidden")
    assert run(["init"]) == 3
    says(capsys.readouterr().err)
    os.chdir("made.tflites")
    Path("small.tflite").unlink()
    assert run(["init"]) == 3
    says(capsys.readouterr().err)


def test_paths_are_written_from_the_folder_of_the_file(model):
    Path("ci").mkdir()
    words = ["--data", "test.npz", "--calibration", "/abs/c.npz"]
    assert run(["init", "models/small.tflite", "-o", "ci/edgeconv.toml", *words]) == 0
    config = read_config(Path("ci/edgeconv.toml"))
    assert config.models["small"].source == "ci/../models/small.tflite"
    assert config.tables["bench"]["data"] == "../test.npz"
    assert config.tables["convert"]["calibration"] == "/abs/c.npz"


@pytest.mark.parametrize("name", ["edgeconv.toml", "pyproject.toml"])
def test_nothing_is_overwritten_or_put_beside_a_configuration(name, model, capsys):
    Path(name).write_text("[tool.edgeconv]\n", encoding="utf-8")
    assert run(["init", "models/small.tflite"]) == 3
    says(capsys.readouterr().err)
    assert Path(name).read_text(encoding="utf-8") == "[tool.edgeconv]\n"
    assert run(["init", "models/small.tflite", "-o", "other.toml"]) == 0


def test_a_link_to_nowhere_is_not_written_through(model):
    Path("edgeconv.toml").symlink_to("elsewhere.toml")
    assert run(["init", "models/small.tflite"]) == 3
    assert not Path("elsewhere.toml").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["gone.tflite"], 3),
        (["models/small.tflite", "--data", "npx:a"], 2),
        (["models/small.tflite", "-o", "no/folder.toml"], 3),
    ],
)
def test_what_is_refused_leaves_nothing_behind(words, code, model, capsys):
    assert run(["init", *words]) == code
    says(capsys.readouterr().err)
    assert [path.name for path in Path().iterdir()] == ["models"]


def test_the_keras_file_that_a_version_was_exported_from_is_its_checkpoint(capsys):
    from edgeconv.cli.init import _checkpoint

    found = start().inspection.model
    Path("m").mkdir()
    Path("m/2.keras").touch()
    assert _checkpoint(Path(), Path("m/2"), found) == "m/2.keras"
    assert _checkpoint(Path(), Path("m/3"), found) == ""
    assert _checkpoint(Path(), Path("m"), found) == ""


NEEDS = re.compile(r"; ([\d.]+) needs ([\d,]+);")


def test_the_limit_of_a_drop_is_one_that_the_test_samples_can_tell():
    floats = ("float32", "float16", "dynamic")
    assert decidable_drop(800, floats) == 0.05
    assert decidable_drop(50, floats) is None
    assert decidable_drop(100_000, floats) == 0.01
    # More answers of int8 differ: for a drop of 0.0065, 2,000 did not decide a limit of 0.01.
    assert decidable_drop(2000, floats) == 0.02
    assert decidable_drop(2000, (*floats, "int8")) == 0.03


@pytest.mark.parametrize(
    ("samples", "limit", "lower"),
    [
        (2000, Limit(limit=0.03), 0.02),
        (50, Limit(limit=0.1, severity="warn"), 0.1),
        (100_000, Limit(limit=0.01), None),
    ],
)
def test_the_limit_is_one_that_the_samples_decide_or_a_warning(samples, limit, lower):
    given = start(data="test.npz", calibration="train.npz")
    text = config_text(msgspec.structs.replace(given, samples=samples))
    assert loaded(text).budget.every.by_name()["max-accuracy-drop"] == limit
    # How many samples a lower limit needs, which these are not.
    needed = {float(at): int(count.replace(",", "")) for at, count in NEEDS.findall(text)}
    assert list(needed) == ([] if lower is None else [lower])
    for at, count in needed.items():
        assert samples < count
        assert decidable_drop(count, given.recipes) == at


def test_a_keras_file_is_looked_into_and_its_samples_are_counted():
    classes = [
        ("InputLayer", {"batch_shape": [None, 28, 28, 1], "dtype": "float32", "name": "image"}),
        ("Flatten", {"name": "flatten", "dtype": "float32"}),
    ]
    layers = [{"class_name": kind, "config": config} for kind, config in classes]
    config = {"class_name": "Sequential", "config": {"name": "digits", "layers": layers}}
    with zipfile.ZipFile("digits.keras", "w") as file:
        file.writestr("config.json", json.dumps(config))
        file.writestr("metadata.json", '{"keras_version": "3.15.1"}')
        file.writestr("model.weights.h5", b"")
    # As stored, they do not fit: `check` will have the preprocessing.
    images = np.zeros((2000, 28, 28, 1), np.uint8)
    np.savez("test.npz", image=images, labels=np.arange(2000) % 10)
    assert run(["init", "digits.keras", "--data", "test.npz"]) == 0
    written = read_config(Path("edgeconv.toml"))
    assert "#   input image: float32 [?, 28, 28, 1]" in written.written.text
    assert "# 2,000 test samples can decide a limit of 0.02" in written.written.text
