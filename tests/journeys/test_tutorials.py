"""The tutorials, followed as a stranger would: each page in an empty folder."""

from __future__ import annotations

import json
import shutil
from itertools import takewhile
from typing import TYPE_CHECKING

import pytest
from documents import DOCS, blocks, run
from reports import accuracies

if TYPE_CHECKING:
    from pathlib import Path

    from installed import Machine

TUTORIALS = DOCS / "tutorials"
BUILDS = {"mobile", "firmware"}
# Each run follows this one and the README; the others take turns.
EACH_RUN = ("mobile",)


@pytest.fixture(scope="module")
def beginnings(tmp_path_factory) -> Path:
    """Where what several pages begin with is: the model that they are about."""
    return tmp_path_factory.mktemp("beginnings")


def followed(page: Path, folder: Path, beginnings: Path, machine: Machine) -> Path:
    """The folder in which everything on the page was done.

    Pages that begin with the same model share the run that makes it: the files before the first
    commands, and these.
    """
    todo = list(blocks(page))
    beginning = [*takewhile(lambda block: not block.is_run, todo)]
    beginning.append(todo[len(beginning)])
    made = beginnings / str(abs(hash(tuple(block.text for block in beginning))))
    if not made.is_dir():
        made.mkdir()
        run(beginning, made, lambda text: machine.shell(made, text))
    shutil.copytree(made, folder, dirs_exist_ok=True)
    run(todo[len(beginning) :], folder, lambda text: machine.shell(folder, text))
    return folder


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(page.stem, marks=() if page.stem in EACH_RUN else pytest.mark.slow)
        for page in sorted(TUTORIALS.glob("*.md"))
    ],
)
def test_a_tutorial_does_what_it_says(name, tmp_path, beginnings, machine):
    if name in BUILDS and not (shutil.which("cmake") and shutil.which("cc")):
        pytest.skip("needs CMake and a C compiler")
    folder = followed(TUTORIALS / f"{name}.md", tmp_path, beginnings, machine)
    if name == "int8":
        tuned = [path.suffix for path in (folder / "tuned").iterdir()]
        assert {".tflite", ".toml"} <= set(tuned)
        (file,) = (folder / "tuned").glob("*.tflite")
        assert file.read_bytes() == (folder / "again" / file.name).read_bytes()
    elif name == "ci":
        assert "trained" in (folder / "comment.md").read_text(encoding="utf-8")
    elif name == "platform":
        assert (folder / "export/digits/2/saved_model.pb").is_file()
        record = json.loads((folder / "export/digits/1.training.json").read_text("utf-8"))
        assert (record["strategy"], record["workers"]) == ("MultiWorkerMirroredStrategy", 2)
        assert accuracies(folder / "report")["float32"] > 0.8


@pytest.mark.slow
def test_models_from_a_table_and_from_a_folder_of_images_are_trained_and_converted(
    tmp_path, beginnings, machine
):
    folder = followed(DOCS / "bring-your-model.md", tmp_path, beginnings, machine)
    for name in ("parts", "scenes"):
        record = json.loads((folder / f"export/{name}/1.training.json").read_text("utf-8"))
        assert record["test_metrics"]["accuracy"] > 0.85, name
        assert list((folder / f"{name}.tflites").glob("*.int8.tflite")), name
    # The last training is of several workers, whom Keras 3's own loop cannot train.
    path = max((folder / "export/parts").glob("*.training.json"))
    record = json.loads(path.read_text("utf-8"))
    assert (record["workers"], record["loop"]) == (2, "custom")
    assert record["test_metrics"]["accuracy"] > 0.85
