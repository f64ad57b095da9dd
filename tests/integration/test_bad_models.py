"""Models that are broken or would run code: each has its own error, and nothing is written."""

import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest
from forking import output_of

from edgeconv.cli import run

REFUSED = 3
# Every loader, and for the one that would run it (tf_keras, of HDF5) also deep in a model.
LAMBDAS = (
    "lambda.keras.keras",
    "lambda.keras.h5",
    "lambda.tf_keras.keras",
    "lambda.tf_keras.h5",
    "nested.tf_keras.h5",
    "timed.tf_keras.h5",
)


@pytest.fixture
def refusal(tmp_path, monkeypatch, capsys) -> Callable[[Path], str]:
    """Runs `edgeconv convert MODEL`, which is refused; what it says on stderr."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr("edgeconv.system.processes.workers.end_on_signals", lambda: None)
    monkeypatch.setenv("EDGECONV_TEST_MARK", str(tmp_path / "the code ran"))

    def convert(model: Path) -> str:
        code = run(["convert", str(model), "--to", "float32", "-o", "out", "-q"])
        said = capsys.readouterr()
        assert (code, said.out) == (REFUSED, ""), said.err
        assert list(work.iterdir()) == []
        assert said.err.startswith("error: ")
        assert "\n  next: " in said.err
        assert "Traceback" not in said.err
        return said.err

    return convert


def cut(source: Path, target: Path, share: float) -> Path:
    content = source.read_bytes()
    target.write_bytes(content[: int(len(content) * share)])
    return target


def test_a_link_that_leads_to_itself(refusal, tmp_path):
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    assert "cannot be read: Too many levels of symbolic links" in refusal(tmp_path / "one")


def test_a_saved_model_whose_file_is_a_link_to_itself(refusal, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").symlink_to("saved_model.pb")
    assert "saved_model.pb" in refusal(tmp_path / "model")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.97])
def test_a_keras_archive_that_is_cut_short(share, refusal, brought, tmp_path):
    said = refusal(cut(brought / "custom.keras", tmp_path / "cut.keras", share))
    assert "cut.keras cannot be read as a zip archive" in said


@pytest.mark.parametrize("share", [0.2, 0.6, 0.97])
def test_a_hdf5_file_that_is_cut_short(share, refusal, brought, tmp_path):
    said = refusal(cut(brought / "lambda.keras.h5", tmp_path / "cut.h5", share))
    assert "cut.h5 cannot be read as an HDF5 file" in said


def test_a_hdf5_file_whose_weights_are_gone(refusal, brought, tmp_path):
    """It has its configuration, so that it is a model by all that a look into it tells."""
    shutil.copy(brought / "plain.h5", tmp_path / "bare.h5")
    with h5py.File(tmp_path / "bare.h5", "r+") as file:
        del file["model_weights"]
    assert "bare.h5 does not load in" in refusal(tmp_path / "bare.h5")


def without(name: str) -> Callable[[Path], None]:
    return lambda variables: next(variables.glob(name)).unlink()


def halved(name: str) -> Callable[[Path], None]:
    def halve(variables: Path) -> None:
        path = next(variables.glob(name))
        cut(path, path, 0.5)

    return halve


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (shutil.rmtree, "/dense lacks the values of its variables: variables/ is missing or empty"),
        (without("variables.data*"), "variables/variables.data-00000-of-00001 is missing"),
        (halved("variables.index"), "error: the variables of the SavedModel cannot be read: "),
        (halved("variables.data*"), "error: the variables of the SavedModel cannot be read: "),
    ],
    ids=["no folder", "no data", "half the index", "half the data"],
)
def test_a_saved_model_whose_variables_are_damaged(damage, says, refusal, brought, tmp_path):
    shutil.copytree(brought / "dense", tmp_path / "dense")
    damage(tmp_path / "dense" / "variables")
    said = refusal(tmp_path / "dense")
    assert said.startswith("error: ")
    assert says in said
    assert "then, with" not in said


@pytest.mark.parametrize("name", LAMBDAS)
def test_a_layer_that_is_code_is_refused_and_the_code_does_not_run(
    name, refusal, brought, tmp_path
):
    said = refusal(brought / name)
    assert f"{name} has a Lambda layer: loading it would run code from the file" in said
    assert not (tmp_path / "the code ran").exists()


def test_a_layer_that_hides_its_name_is_refused_too(refusal, brought, tmp_path):
    """JSON can write a letter in another way, which the loader reads as the same."""
    shutil.copy(brought / "lambda.tf_keras.h5", tmp_path / "hidden.h5")
    with h5py.File(tmp_path / "hidden.h5", "r+") as file:
        config = file.attrs["model_config"]
        text = config.decode() if isinstance(config, bytes) else config
        hidden = text.replace('"class_name": "Lambda"', '"class_name" : "\\u004cambda"')
        assert hidden != text
        file.attrs["model_config"] = hidden
    assert "has a Lambda layer" in refusal(tmp_path / "hidden.h5")
    assert not (tmp_path / "the code ran").exists()


def test_the_code_would_have_run(brought, tmp_path):
    """Else the tests above would prove nothing."""
    script = f"import tf_keras; tf_keras.models.load_model({str(brought / 'lambda.tf_keras.h5')!r})"
    mark = tmp_path / "the code ran"
    output_of("-c", script, EDGECONV_TEST_MARK=str(mark))
    assert mark.exists()
