"""Models that are broken: each has its own error, and nothing is written."""

import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from edgeconv.cli import run

REFUSED = 3


@pytest.fixture
def refusal(tmp_path, monkeypatch, capsys) -> Callable[[Path], str]:
    """Runs `edgeconv convert MODEL`, which is refused; what it says on stderr."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr("edgeconv.system.processes.signals.end_on_signals", lambda: None)

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
    said = refusal(cut(brought / "plain.h5", tmp_path / "cut.h5", share))
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
