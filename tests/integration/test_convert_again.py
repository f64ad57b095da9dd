"""`convert` once more: what is unchanged is left alone, what changed is made anew, alike."""

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import captured
from forking import edgeconv_command

import edgeconv.conversion.plan
import edgeconv.conversion.publish
from edgeconv import convert
from edgeconv.requests.recipes import make_recipes
from edgeconv.system.processes.workers import Child
from edgeconv.system.store import tool_versions
from edgeconv.types import RECIPE_NAMES, Conversion, Execution

TENSORFLOW, TRAINED, QUANTIZER = (
    "TensorFlow's converter",
    "the trained model in TensorFlow",
    "litert-quantizer",
)
HEAVY = ("numpy", "tensorflow", "keras", "tf_keras", "ai_edge_litert", "litert_quantizer", "h5py")
# Runs a command line, and says which of the heavy modules that took.
WATCHED = f"""
import subprocess, sys
from edgeconv.cli import run
def refuse(*arguments, **options):
    raise AssertionError("a child process was started")
subprocess.Popen = refuse
code = run(sys.argv[1:])
print("loaded:", [name for name in {HEAVY} if name in sys.modules])
sys.exit(code)
"""


@pytest.fixture
def started(monkeypatch) -> list[str]:
    """The labels of the child processes that are started, as they are."""
    labels: list[str] = []
    make = Child.__init__

    def recording(self: Child, *arguments: Any, label: str, **options: Any) -> None:
        labels.append(label)
        make(self, *arguments, label=label, **options)

    monkeypatch.setattr(Child, "__init__", recording)
    return labels


@pytest.fixture
def model(zoo, tmp_path) -> Path:
    """A copy of the CNN's SavedModel that a test may change."""
    return Path(shutil.copytree(zoo / "legacy", tmp_path / "model"))


@pytest.fixture
def samples(zoo, tmp_path) -> Path:
    """A copy of its samples, likewise."""
    return Path(shutil.copyfile(zoo / "images.npz", tmp_path / "samples.npz"))


def contents(directory: str | Path) -> dict[str, bytes]:
    """The published files by name."""
    files = (path for path in Path(directory).iterdir() if path.suffix in (".tflite", ".json"))
    return {path.name: path.read_bytes() for path in files}


def names(conversion: Conversion) -> tuple[str, ...]:
    return tuple(artifact.recipe.name for artifact in conversion.artifacts)


@pytest.mark.parametrize(
    "source", ["legacy", "legacy.h5", "modern.keras", "by_hand/float32.tflite"]
)
def test_an_unchanged_convert_starts_no_process_and_imports_nothing_heavy(
    source, zoo, tmp_path, monkeypatch
):
    arguments = ["convert", str(zoo / source), "-o", "out", "--to", "float32,int8"]
    arguments += ["--calibration", str(zoo / "images.npz")]
    first = captured([*edgeconv_command(), *arguments], cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    before = contents(tmp_path / "out")
    again = captured([sys.executable, "-c", WATCHED, *arguments], cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1] == "loaded: []"
    assert again.stdout.count("up to date") == 1
    assert contents(tmp_path / "out") == before


def test_an_unchanged_convert_leaves_every_file_as_it_is(model, tmp_path, started):
    first = convert(model, out=tmp_path / "out", to=["float32", "dynamic"])
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("*.*")}
    started.clear()
    again = convert(model, out=tmp_path / "out", to=["float32", "dynamic"])
    assert started == []
    assert again.reused == ("float32", "dynamic")
    assert again.artifacts == first.artifacts
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("*.*")} == times


def test_a_changed_source_is_converted_anew(model, tmp_path, started):
    first = convert(model, out=tmp_path / "out", to=["float32"])
    (model / "assets" / "labels.txt").write_text("cat\ndog\n")
    started.clear()
    again = convert(model, out=tmp_path / "out", to=["float32"])
    assert started[:2] == [TENSORFLOW, TRAINED]
    assert again.reused == ()
    assert again.artifacts[0].source_sha256 != first.artifacts[0].source_sha256


@pytest.mark.slow
def test_a_source_that_moved_gives_the_same_files_with_its_new_place(model, tmp_path, started):
    convert(model, out=tmp_path / "out", to=["float32"])
    (tmp_path / "there").mkdir()
    moved = model.rename(tmp_path / "there" / "model")
    started.clear()
    again = convert(moved, out=tmp_path / "out", to=["float32"])
    assert started == []
    assert again.artifacts[0].source_path == moved.name
    # What was not made yet is made from where the source is now.
    later = convert(moved, out=tmp_path / "out", to=make_recipes(["dynamic"], engine="tflite"))
    assert later.failures == ()
    assert names(later) == ("dynamic",)


def test_changed_samples_calibrate_and_verify_anew_without_converting_anew(
    model, samples, tmp_path, started
):
    first = convert(model, out=tmp_path / "out", to=["float32", "int8"], calibration=str(samples))
    np.savez(samples, image=np.load(samples)["image"][::-1] * 0.5)
    started.clear()
    again = convert(model, out=tmp_path / "out", to=["float32", "int8"], calibration=str(samples))
    assert TENSORFLOW not in started
    assert {f"reading {samples}", TRAINED, QUANTIZER} <= set(started)
    assert again.reused == ()
    old, new = ({a.recipe.name: a.sha256 for a in c.artifacts} for c in (first, again))
    assert old["float32"] == new["float32"]
    assert old["int8"] != new["int8"]


def test_a_changed_number_of_samples_calibrates_anew(model, samples, tmp_path, started):
    convert(model, out=tmp_path / "out", to=["int8"], calibration=str(samples))
    again = convert(model, out=tmp_path / "out", to=["int8"], calibration=str(samples), samples=10)
    assert again.reused == ()
    assert again.artifacts[0].calibration[0].samples == 10


def test_a_changed_option_of_one_recipe_makes_only_that_one_anew(model, samples, tmp_path, started):
    to = make_recipes(["float32", "dynamic", "int8"])
    convert(model, out=tmp_path / "out", to=to, calibration=str(samples))
    started.clear()
    to = make_recipes(["float32", "dynamic", "int8"], input_type="int8", output_type="int8")
    said: list[str] = []
    again = convert(
        model,
        out=tmp_path / "out",
        to=to,
        calibration=str(samples),
        on_progress=lambda line: said.append(str(line)),
    )
    assert again.reused == ("float32", "dynamic")
    assert not {TENSORFLOW, TRAINED}.intersection(started)
    assert [line for line in said if "dynamic" in line] == []
    assert "verifying int8" in said


def test_another_signature_or_batch_is_another_model(zoo, tmp_path, started):
    convert(zoo / "many", out=tmp_path / "out", to=["float32"], signature="double")
    for batch in (None, 2):
        started.clear()
        again = convert(
            zoo / "many", out=tmp_path / "out", to=["float32"], signature="project", batch=batch
        )
        assert TENSORFLOW in started
        assert again.artifacts[0].signature.key == "project"
        assert again.artifacts[0].signature.inputs[0].shape == (batch or -1, 4)


def test_another_version_of_a_tool_makes_everything_anew(model, tmp_path, started, monkeypatch):
    convert(model, out=tmp_path / "out", to=["float32"])
    started.clear()
    newer = {**tool_versions(), "tensorflow": "99.0"}
    for module in (edgeconv.conversion.plan, edgeconv.conversion.publish):
        monkeypatch.setattr(module, "tool_versions", lambda: newer)
    again = convert(model, out=tmp_path / "out", to=["float32"])
    assert TENSORFLOW in started
    assert again.reused == ()
    assert again.artifacts[0].tools["tensorflow"] == "99.0"


def test_a_recipe_that_is_added_later_starts_no_tensorflow(model, samples, tmp_path, started):
    convert(model, out=tmp_path / "out", to=["float32"], calibration=str(samples))
    started.clear()
    again = convert(model, out=tmp_path / "out", to=["float32", "int8"], calibration=str(samples))
    assert again.reused == ("float32",)
    assert names(again) == ("float32", "int8")
    assert not {TENSORFLOW, TRAINED}.intersection(started)
    assert QUANTIZER in started


@pytest.mark.slow
def test_the_float_graph_of_a_keras_file_is_kept_for_the_second_engine_too(zoo, tmp_path, started):
    convert(zoo / "modern.keras", out=tmp_path / "out", to=["float32"])
    started.clear()
    again = convert(
        zoo / "modern.keras", out=tmp_path / "out", to=make_recipes(["dynamic"], engine="tflite")
    )
    assert again.failures == ()
    assert TENSORFLOW not in started


@pytest.mark.parametrize("damage", ["deleted", "edited", "manifest deleted", "manifest edited"])
def test_a_damaged_artifact_is_repaired_from_the_cache_without_a_process(
    damage, model, tmp_path, started
):
    first = convert(model, out=tmp_path / "out", to=["float32", "dynamic"])
    before = contents(tmp_path / "out")
    file = tmp_path / "out" / first.artifacts[1].file
    target = file.with_suffix(".json") if "manifest" in damage else file
    if "deleted" in damage:
        target.unlink()
    else:
        target.write_bytes(target.read_bytes()[:-20])
    started.clear()
    again = convert(model, out=tmp_path / "out", to=["float32", "dynamic"])
    assert started == []
    assert again.reused == ("float32",)
    assert len(again.notes) == ("edited" in damage)
    assert all(note in str(again) for note in again.notes)
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("stage", ["artifact", "float", "reference"])
def test_a_damaged_cache_entry_is_passed_over_and_made_again(
    stage, model, samples, tmp_path, started
):
    to = ["float32", "int8"]
    convert(model, out=tmp_path / "out", to=to, calibration=str(samples))
    before = contents(tmp_path / "out")
    damage_all(tmp_path / "cache" / stage)
    if stage != "artifact":
        shutil.rmtree(tmp_path / "cache" / "artifact")
    shutil.rmtree(tmp_path / "out")
    started.clear()
    convert(model, out=tmp_path / "out", to=to, calibration=str(samples))
    assert contents(tmp_path / "out") == before
    assert (TENSORFLOW in started) == (stage == "float")
    assert (TRAINED in started) == (stage == "reference")
    # The entry that was made again is whole.
    shutil.rmtree(tmp_path / "out")
    started.clear()
    convert(model, out=tmp_path / "out", to=to, calibration=str(samples))
    assert started == []
    assert contents(tmp_path / "out") == before


def damage_all(stage: Path) -> None:
    files = [path for path in stage.rglob("*") if path.is_file()]
    assert files
    for path in files:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def test_without_the_cache_nothing_of_it_is_read_or_written(model, tmp_path, started):
    for directory in ("first", "second"):
        started.clear()
        convert(
            model, out=tmp_path / directory, to=["float32"], execution=Execution(use_cache=False)
        )
        assert TENSORFLOW in started
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("source", [pytest.param("legacy", marks=pytest.mark.slow), "modern.keras"])
def test_two_processes_in_two_places_with_two_caches_make_the_same_bytes(
    source, zoo, tmp_path, cli
):
    made = []
    for place in ("here", "there"):
        model = tmp_path / place / source
        copy = shutil.copytree if (zoo / source).is_dir() else shutil.copyfile
        model.parent.mkdir()
        copy(zoo / source, model)
        done = cli(
            "convert",
            model,
            "-o",
            f"out-{place}",
            "--to",
            "all",
            "--calibration",
            zoo / "images.npz",
            EDGECONV_CACHE_DIR=str(tmp_path / f"c-{place}"),
        )
        assert done.returncode == 0, done.stderr
        files = contents(tmp_path / f"out-{place}")
        made.append({name: data for name, data in files.items() if name.endswith(".tflite")})
    assert len(made[0]) == len(RECIPE_NAMES)
    assert made[0] == made[1]
