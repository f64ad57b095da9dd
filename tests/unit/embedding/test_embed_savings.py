"""What an open batch and float ends cost on a microcontroller, and the command that saves it."""

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from embed_models import int8_tiny, published
from msgspec.structs import replace
from open_batch import open_batch_model
from wording import says

from edgeconv import embed
from edgeconv.cli import cli, run
from edgeconv.embedding.plan import find_published
from edgeconv.embedding.remake import remake_command
from edgeconv.types import CalibrationRecord, Preprocessing, Recipe

SAMPLES = CalibrationRecord(
    signature="serving_default", source="cal data.npz", samples=8, sha256="", range="minmax"
)


def with_float_ends(
    directory: Path, recipe: str = "int8", *, softmax: bool = False, **changes: object
) -> Path:
    """A model of 7 operators, of which 3 are for its open batch, and 2 for its float ends."""
    content = open_batch_model(quantized=True, softmax=softmax)
    changes = {"calibration": (SAMPLES,), "preprocessing": {"": Preprocessing(scale=0.5)}} | changes
    return published(directory, content, recipe=recipe, **changes)


def notes(file: Path, place: Path, target: str = "c") -> list[str]:
    said = embed(file, target, place).notes
    return [note for note in said if "operators are" in note]


@pytest.mark.parametrize("target", ["c", "arduino", "zephyr"])
def test_the_operators_that_would_go_are_named(tmp_path, target):
    says(notes(with_float_ends(tmp_path / "m"), tmp_path / "out", target))


def test_a_float_model_has_only_its_batch_to_lose(tmp_path):
    file = published(tmp_path / "m", open_batch_model(), recipe="float32")
    says(notes(file, tmp_path / "out"))


def test_a_model_made_of_a_tflite_keeps_its_batch_and_says_why(tmp_path):
    file = with_float_ends(tmp_path / "m", source_kind="tflite")
    (said,) = notes(file, tmp_path / "out")
    says(said)


def test_a_model_that_has_neither_costs_nothing(tmp_path):
    ends = Recipe(name="int8", input_type="int8", output_type="int8")
    file = int8_tiny(tmp_path / "m")
    manifest = find_published(file).artifact
    file.with_suffix(".json").write_bytes(msgspec.json.encode(replace(manifest, recipe=ends)))
    words = ["embed", str(file), "--target", "c", "-o", str(tmp_path / "out"), "--remake"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert "operators are" not in done.output
    assert "next:" not in done.output


def test_the_command_says_all_that_the_manifest_knows(tmp_path):
    recipe = Recipe(name="int8", calibration_range="mse", methods=("rounding",), min_snr_db=12.0)
    file = with_float_ends(tmp_path / "m")
    command = remake_command(find_published(file))
    source = tmp_path / "m" / "source.keras"
    assert re.sub(r" --min-snr-db \S+", "", command) == (
        f"edgeconv convert {source} --out {tmp_path / 'm' / 'remade'} --to int8 "
        "--calibration 'cal data.npz' --preprocess scale=0.5 --io int8 --batch 1 --methods none"
    )
    chosen = with_float_ends(tmp_path / "n")
    known = find_published(chosen).artifact
    chosen.with_suffix(".json").write_bytes(msgspec.json.encode(replace(known, recipe=recipe)))
    command = remake_command(find_published(chosen))
    assert "--calibration-range mse --methods rounding --min-snr-db 12.0" in command


def test_a_softmax_that_was_left_in_float_stays_so(tmp_path):
    file = with_float_ends(tmp_path / "m", softmax=True)
    command = remake_command(find_published(file))
    assert "--io input=int8 --io output=float32 --batch 1" in command
    says(notes(file, tmp_path / "out"))


def test_the_command_is_offered_on_the_terminal_and_is_in_no_file(tmp_path):
    file = with_float_ends(tmp_path / "m")
    out = tmp_path / "out"
    done = CliRunner().invoke(cli, ["embed", str(file), "--target", "c", "-o", str(out)])
    assert "next: --remake, or edgeconv convert " in done.output
    assert "remade" not in (out / "edgeconv-embedded.json").read_text()
    python = ["embed", str(file), "--target", "python", "-o", str(tmp_path / "python")]
    assert "next:" not in CliRunner().invoke(cli, python).output


def test_no_command_is_offered_that_would_save_nothing(tmp_path):
    """Only --batch 1 would, and the source is a .tflite."""
    ends = Recipe(name="int8", input_type="int8", output_type="int8")
    content = open_batch_model(quantized=True)
    file = published(tmp_path / "m", content, recipe="int8", source_kind="tflite")
    manifest = replace(find_published(file).artifact, recipe=ends)
    file.with_suffix(".json").write_bytes(msgspec.json.encode(manifest))
    words = ["embed", str(file), "--target", "c", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, words)
    assert "--batch 1 needs the source model of the .tflite" in done.output
    assert "next:" not in done.output


@pytest.mark.parametrize(
    ("changes", "target", "code"),
    [({}, "c", 3), ({}, "python", 2), ({"recipe": "dynamic"}, "c", 2)],
)
def test_what_cannot_be_made_again_is_refused(tmp_path, capsys, changes, target, code):
    file = with_float_ends(tmp_path / "m", **changes)
    words = ["embed", str(file), "--target", target, "-o", str(tmp_path / "out"), "--remake"]
    assert run(words) == code
    says(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_a_build_does_not_take_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edgeconv.toml").write_text(
        '[model.m]\nsource = "m.keras"\n[model.m.embed]\ntarget = "c"\nout = "fw"\nremake = true\n'
        '[convert]\nto = "int8"\ncalibration = "cal.npz"\n'
    )
    assert run(["build"]) == 2
    said = capsys.readouterr().err
    says(said)
