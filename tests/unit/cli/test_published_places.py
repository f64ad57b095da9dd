"""What is published does not tell where on a machine it was made, whatever was typed."""

import json
from pathlib import Path

import numpy as np
import pytest
from build_project import OFFLINE_CONFIG, write_project

from edgeconv.cli import run
from edgeconv.embedding.plan import find_published
from edgeconv.measure.model_files import find_baseline, find_model_files
from edgeconv.reporting.files import FORMATS as REPORT_FORMATS
from edgeconv.reporting.verdicts import FORMATS
from edgeconv.system.store.notes import find_source, in_project, note_converted, recorded_path
from edgeconv.types import DataIdentity

TIMES = ["--rounds=1", "--repeats=5", "--warmup-seconds=0.01", "--seconds=0.01"]
CONFIG = f"""\
{OFFLINE_CONFIG}[budget]
max-size-bytes = 100_000
[bench]
out = "reports"
rounds = 1
repeats = 5
warmup-seconds = 0.01
seconds = 0.01
"""
SWEEP = """\
models = ["net.tflite"]
recipes = ["int8"]
timing = false
[data.own]
source = "cal.npz"
calibration = "cal.npz"
"""


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    folder = write_project(tmp_path / "secret-place", CONFIG)
    values = np.random.default_rng(1).uniform(-3, 3, (80, 4)).astype(np.float32)
    np.savez(folder / "cal.npz", x=values)
    (folder / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def publish_all_kinds(project: Path) -> None:
    """Every file that verbs write, with absolute paths typed."""
    config = ["--config", str(project / "edgeconv.toml"), "-q"]
    verdicts = [
        word for name in FORMATS for word in ("--output", f"{name}={project}/verdicts/{name}")
    ]
    rendered = [word for name in REPORT_FORMATS for word in ("--format", name)]
    model, samples = str(project / "net.tflite"), str(project / "cal.npz")
    out = str(project / "direct")
    report = str(project / "measured" / "report.json")
    tune = ["tune", model, "--data", samples]
    for words in (
        ["check", *verdicts, "--track", f"csv:{project}/log.csv", *config],
        ["check", "--update", *config],
        ["build", *config],
        ["convert", model, "--to", "int8", "--calibration", samples, "-o", out, "-q"],
        ["bench", out, "--data", samples, "-o", str(project / "measured"), *TIMES, "-q"],
        ["report", report, "-o", str(project / "rendered"), *rendered],
        ["sweep", str(project / "sweep.toml"), "-o", str(project / "swept"), "-q"],
        [*tune, "--max-drop=0.9", "--trials=1", "-o", str(project / "tuned"), "-q"],
    ):
        assert run(words) in (0, 1), words
    for target in ("python", "android"):
        words = ["--target", target, "-o", str(project / target), "--data", samples, "-q"]
        assert run(["embed", f"{out}/net.int8.tflite", *words]) == 0


def test_no_published_file_has_the_directory(project):
    publish_all_kinds(project)
    files = [path for path in project.rglob("*") if path.is_file()]
    assert len(files) > 40
    telling = [str(path) for path in files if str(project).encode() in path.read_bytes()]
    assert telling == []
    manifest = json.loads((project / "direct" / "net.int8.json").read_bytes())
    assert manifest["source_path"] == "net.tflite"
    cells = [json.loads(path.read_bytes()) for path in (project / "swept").rglob("cells/*/*.json")]
    sources = {each["source_path"] for cell in cells for each in cell["report"]["artifacts"]}
    assert sources == {"net.tflite"}
    published = find_published(project / "direct" / "net.int8.tflite")
    assert published.source == project / "net.tflite"


def test_what_a_manifest_names_is_found_from_elsewhere(project, tmp_path, monkeypatch):
    words = ["--to", "int8", "--calibration", "cal.npz", "-o", "deep/out", "-q"]
    assert run(["convert", "net.tflite", *words]) == 0
    monkeypatch.chdir(tmp_path)
    published = find_published(project / "deep" / "out" / "net.int8.tflite")
    assert published.source == project / "net.tflite"
    assert published.calibration[0][1].location == str(project / "cal.npz")
    model, notes = find_baseline(find_model_files([published.model], None), None)
    assert (model is not None, notes) == (True, ())


def test_a_model_outside_the_project_is_named_and_found_where_it_was_converted(project, tmp_path):
    model = tmp_path / "elsewhere.tflite"
    model.write_bytes(b"x")
    out = project / "out"
    assert recorded_path(model, out) == "elsewhere.tflite"
    assert find_source("elsewhere.tflite", "0" * 64, out) == model
    model.rename(tmp_path / "a-model")
    note_converted(tmp_path / "a-model", "0" * 64)
    assert find_source("other", "0" * 64, out) == Path("other")
    assert find_source("a-model", "0" * 64, project.parent.parent.parent / "out") == (
        tmp_path / "a-model"
    )


def test_only_paths_of_the_project_become_relative(project):
    texts = {
        f"npz:{project}/cal.npz": "npz:cal.npz",
        f"/mnt{project}/cal.npz": f"/mnt{project}/cal.npz",
        f"{project}s/cal.npz": f"{project}s/cal.npz",
        'a "quoted" one': 'a "quoted" one',
    }
    for text, shown in texts.items():
        identity = DataIdentity(source=text, samples=1, sha256="")
        assert in_project(identity, project / "out").source == shown
