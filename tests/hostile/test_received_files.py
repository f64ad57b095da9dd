"""Files that a received folder has, and edgeconv reads or writes over: nobody else's is touched."""

import json
import sys
from pathlib import Path

import click
import embed_models
import pytest
from strangers import Place, place, watch

from edgeconv.cli import command_named, run
from edgeconv.embedding.embedding import JOURNAL
from edgeconv.embedding.plan import RECORD
from edgeconv.measure.model_files import find_baseline, find_model_files
from edgeconv.measure.visualize import _open
from edgeconv.reporting.trackers import TrackedRun, csv_file, now, tensorboard
from edgeconv.system.store import locked, read_noun, sha256_file
from edgeconv.system.store.notes import note_converted
from edgeconv.types import Artifact, CalibrationRecord, Checked, Execution
from edgeconv.types.errors import EdgeconvError, InputRefused, OutputRefused, UsageError

__all__ = ["place", "watch"]


def received(place: Place, source: str, **more: object) -> Path:
    """A published file whose manifest names a model, and its true hash."""
    folder = place.checkout / "received"
    sha256 = sha256_file(Path(source))
    return embed_models.float_tiny(folder, source_path=source, source_sha256=sha256, **more)


@pytest.mark.parametrize("source", ["float.tflite", "../../secret.tflite", "{home}/secret.tflite"])
def test_a_model_that_only_a_manifest_names_is_not_opened(source, place, watch):
    source = source.format(home=place.home)
    file = received(place, source)
    watch.seen.clear()
    model, notes = find_baseline(find_model_files([file], None), None)
    assert (model, watch.seen) == (None, [])
    assert "was not converted here" in notes[0]
    assert "--baseline " in notes[0]
    assert Path(source).name in notes[0]


def test_a_model_that_was_converted_here_is_the_baseline_until_it_changes(place):
    file = received(place, "float.tflite")
    sha256 = sha256_file(Path("float.tflite"))
    note_converted("float.tflite", sha256)
    found, _ = find_baseline(find_model_files([file], None), None)
    assert found is not None
    note_converted("float.tflite", "0" * 64)
    assert find_baseline(find_model_files([file], None), None)[0] is None
    trusting = Execution(trusted=(sha256,))
    assert find_baseline(find_model_files([file], None), None, execution=trusting)[0] is not None
    assert find_baseline(find_model_files([file], None), "float.tflite")[0] is not None


def test_a_note_that_cannot_be_written_stops_nothing_and_the_process_knows_it_without(
    place, monkeypatch
):
    Path("file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(place.checkout / "file"))
    file = received(place, "float.tflite")
    assert find_baseline(find_model_files([file], None), None)[0] is None
    note_converted("float.tflite", sha256_file(Path("float.tflite")))
    # As `check` measures what it has just converted.
    assert find_baseline(find_model_files([file], None), None)[0] is not None
    note_converted("float.tflite", "0" * 64)
    assert find_baseline(find_model_files([file], None), None)[0] is None


@pytest.mark.parametrize("code", [False, True])
def test_a_manifest_is_not_made_again_from_what_only_it_names(code, place, watch, capsys):
    record = CalibrationRecord(
        signature="", source="evil:load", samples=1, sha256="0" * 64, range="minmax"
    )
    more = {"calibration": (record,)} if code else {}
    file = received(place, str(place.checkout / "float.tflite"), **more)
    if code:
        note_converted(place.checkout / "float.tflite", sha256_file(Path("float.tflite")))
    words = ["embed", str(file), "--target", "arduino", "-o", "app", "--remake"]
    watch.seen.clear()
    code_of_exit, seen = run(words), list(watch.seen)
    said = capsys.readouterr().err
    assert (code_of_exit, seen, place.ran.exists()) == (3, [], False), said
    assert "is not trusted" in said
    assert "edgeconv convert " in said


@pytest.mark.parametrize("name", ["../secret.tflite", "/etc/passwd", "..", "", "a/b.tflite"])
def test_a_manifest_describes_a_file_beside_it(name, place):
    manifest = embed_models.float_tiny(place.checkout / "received").with_suffix(".json")
    said = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**said, "file": name}))
    with pytest.raises(InputRefused, match="is not the name of a file next to it"):
        read_noun(manifest, Artifact, what="manifest")


def test_the_lock_of_a_folder_is_no_link(place):
    place.link("out/.edgeconv.lock", ".profile")
    with pytest.raises(OutputRefused, match="symbolic link"), locked(Path("out/.edgeconv.lock")):
        pass
    assert (place.home / ".profile").read_text() == "# canary\n"


@pytest.mark.parametrize("target", [".profile", ".bashrc"])
def test_a_csv_file_that_is_a_link_is_refused_also_where_it_was_typed(target, place):
    place.link("log.csv", target)
    before = place.outside()
    with pytest.raises(OutputRefused, match="symbolic link"):
        csv_file.track(Checked(), {}, "log.csv")
    assert place.outside() == before


@pytest.mark.parametrize("linked", ["tb/check", "tb/check/model"])
def test_event_files_go_through_no_link(linked, place):
    place.link(linked, "folder")
    one = TrackedRun(check="check", model="model", verdict="", texts={}, numbers={})
    with pytest.raises(OutputRefused, match="symbolic link"):
        tensorboard._directory(Path("tb"), one, now())


@pytest.mark.parametrize("name", [RECORD, JOURNAL])
def test_a_record_of_an_embedding_removes_nothing_through_a_link(name, place):
    place.link("app/d", "folder")
    file = embed_models.float_tiny(place.checkout / "received")
    app = place.checkout / "app"
    if name == RECORD:
        assert run(["embed", str(file), "--target", "python", "-o", "other"]) == 0
        said = json.loads((place.checkout / "other" / RECORD).read_text())
        kept = {"path": "d/kept", "sha256": sha256_file(place.home / "folder" / "kept")}
        (app / RECORD).write_text(json.dumps({**said, "key": "0" * 64, "files": [kept]}))
    else:
        (app / JOURNAL).write_text(json.dumps({"files": ["d/kept"]}))
    before = place.outside()
    assert run(["embed", str(file), "--target", "python", "-o", "app"]) == 3
    assert place.outside() == before


def test_a_viewer_is_not_a_module_of_the_present_directory(place, monkeypatch):
    (place.checkout / "viewer.py").write_text((place.checkout / "evil.py").read_text())
    start = [sys.executable, "-m", "viewer"]
    with pytest.raises(EdgeconvError, match="ended with exit code 1"):
        _open(Path("float.tflite"), None, "netron", start, print)
    assert not place.ran.exists()


def test_a_configuration_that_is_a_link_out_of_the_project_is_not_read(place, watch):
    place.link("edgeconv.toml", "secret.toml")
    watch.seen.clear()
    with pytest.raises(UsageError, match="link out of its project"):
        command_named("bench").make_context("bench", ["int8.tflite"])
    assert watch.seen == []
    typed = ["int8.tflite", "--config", "edgeconv.toml"]
    assert isinstance(command_named("bench").make_context("bench", typed), click.Context)


def test_a_link_that_stays_in_the_project_is_followed(place):
    (place.checkout / "shared.toml").write_text("[bench]\nrounds = 7\n")
    Path("edgeconv.toml").symlink_to("shared.toml")
    context = command_named("bench").make_context("bench", ["int8.tflite"])
    assert context.obj.request.measuring.rounds == 7
