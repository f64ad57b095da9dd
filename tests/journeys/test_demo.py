"""The whole job, as a user runs it: `edgeconv demo`."""

from pathlib import Path

import msgspec
import pytest

from edgeconv.system.store import sha256_file
from edgeconv.types import RECIPE_NAMES, Artifact, Report


@pytest.fixture(scope="module")
def done(machine, tmp_path_factory) -> tuple[Path, str]:
    """A finished demo: the directory it wrote, and what it printed."""
    directory = tmp_path_factory.mktemp("demo")
    return directory / "edgeconv-demo", machine.edgeconv(directory, "demo")


def report_of(directory: Path) -> Report:
    return msgspec.json.decode((directory / "report.json").read_bytes(), type=Report)


def test_it_prints_one_table_and_a_verdict_that_passes(done):
    _, printed = done
    lines = printed.splitlines()
    for name in ("baseline", *RECIPE_NAMES):
        assert any(line.startswith(name) for line in lines), name
    assert "PASS 9 limits hold." in lines
    assert "\x1b" not in printed
    assert "epoch 1/" in printed


def test_the_baseline_was_trained_by_two_replicas_of_a_mirrored_strategy(done):
    directory, _ = done
    training = report_of(directory).training
    assert (training.strategy, training.replicas) == ("MirroredStrategy", 2)
    assert (directory / "digits_cnn" / "1" / "saved_model.pb").is_file()


def test_every_artifact_is_what_its_manifest_says(done):
    directory, _ = done
    manifests = sorted((directory / "tflites").glob("*.json"))
    artifacts = [msgspec.json.decode(path.read_bytes(), type=Artifact) for path in manifests]
    assert {artifact.recipe.name for artifact in artifacts} == set(RECIPE_NAMES)
    for artifact in artifacts:
        assert sha256_file(directory / "tflites" / artifact.file) == artifact.sha256


def test_no_format_loses_more_than_a_hundredth_of_the_baselines_accuracy(done):
    report = report_of(done[0])
    assert report.baseline.accuracy.value > 0.95
    for row in report.measurements:
        assert row.accuracy_drop <= 0.01, row.name
        assert len(row.latency.rounds_us) == 3
        assert row.peak_memory_bytes


def test_the_page_needs_nothing_but_itself(done):
    page = (done[0] / "report.html").read_text(encoding="utf-8")
    assert "digits_cnn" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
