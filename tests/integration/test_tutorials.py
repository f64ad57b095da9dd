"""The README and the tutorials, followed as a stranger would: each page in an empty folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import takewhile
from typing import TYPE_CHECKING

import pytest
from documents import DOCS, blocks, environment_of, run
from places import ROOT

from edgeconv.config.tables import read_config

if TYPE_CHECKING:
    from pathlib import Path

TUTORIALS = DOCS / "tutorials"
BUILDS = {"mobile", "firmware"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages share: the cache, and the model that several of them begin with."""
    return tmp_path_factory.mktemp("pages")


def followed(page: Path, folder: Path, home: Path) -> Path:
    """The folder in which everything on the page was done.

    Pages that begin with the same model share the run that makes it: the files before the first
    commands, and these.
    """
    todo = list(blocks(page))
    beginning = [*takewhile(lambda block: not block.is_run, todo)]
    beginning.append(todo[len(beginning)])
    made = home / str(abs(hash(tuple(block.text for block in beginning))))
    if not made.is_dir():
        made.mkdir()
        run(beginning, made, home / "cache")
    shutil.copytree(made, folder, dirs_exist_ok=True)
    run(todo[len(beginning) :], folder, home / "cache")
    return folder


def accuracies(report: Path) -> dict[str, float]:
    """The accuracy of each row of a report.json, by name."""
    content = json.loads((report / "report.json").read_text(encoding="utf-8"))
    return {row["name"]: row["accuracy"]["value"] for row in content["measurements"]}


@pytest.fixture(scope="module")
def readme(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return followed(ROOT / "README.md", tmp_path_factory.mktemp("readme"), home)


def test_the_ten_lines_of_the_readme_give_a_verified_file(readme: Path) -> None:
    manifest = json.loads((readme / "my_model.tflites/my_model.int8.json").read_text("utf-8"))
    assert manifest["verification"]["outputs"][0]["snr_db"] > 6
    assert (readme / "report/report.html").is_file()
    assert accuracies(readme / "report")["int8"] > 0.85


def test_the_ci_and_build_lines_of_the_readme_give_a_lock_and_c_code(readme: Path) -> None:
    assert "[model.my_model.stage.int8]" in (readme / "edgeconv.lock").read_text(encoding="utf-8")
    assert (readme / "junit.xml").is_file()
    assert (readme / "my_model.o").is_file()
    assert read_config(readme / "edgeconv.toml").models["my_model"].budget is not None


def test_the_python_of_the_readme_prints_the_files(readme: Path, home: Path) -> None:
    (example,) = [block.text for block in blocks(ROOT / "README.md") if block.language == "python"]
    ended = subprocess.run(
        [sys.executable, "-c", example],
        cwd=readme,
        env=environment_of(home / "cache"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    names = [line.split()[0] for line in ended.stdout.splitlines()]
    assert names == ["my_model.float16.tflite", "my_model.int8.tflite"]


@pytest.mark.parametrize("name", [page.stem for page in sorted(TUTORIALS.glob("*.md"))])
def test_a_tutorial_does_what_it_says(name: str, tmp_path: Path, home: Path) -> None:
    if name in BUILDS and not (shutil.which("cmake") and shutil.which("cc")):
        pytest.skip("needs CMake and a C compiler")
    folder = followed(TUTORIALS / f"{name}.md", tmp_path, home)
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


def test_models_from_a_table_and_from_a_folder_of_images_are_trained_and_converted(
    tmp_path: Path, home: Path
) -> None:
    folder = followed(DOCS / "bring-your-model.md", tmp_path, home)
    for name in ("parts", "scenes"):
        record = json.loads((folder / f"export/{name}/1.training.json").read_text("utf-8"))
        assert record["test_metrics"]["accuracy"] > 0.85, name
        assert list((folder / f"{name}.tflites").glob("*.int8.tflite")), name
