from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from embed_models import float_tiny, int8_tiny, planned
from wording import fails

from edgeconv.cli import cli, run
from edgeconv.embedding.embedding import dependencies, make_rule
from edgeconv.system.store import read_noun
from edgeconv.system.store.notes import note_converted
from edgeconv.types import CalibrationRecord, Embedded
from edgeconv.types.errors import UsageError


def embedded(*arguments: object):
    return CliRunner().invoke(cli, ["embed", *map(str, arguments)])


def test_what_was_written_is_listed_and_what_is_there_is_said(tmp_path):
    file, out = int8_tiny(tmp_path / "m"), tmp_path / "out"
    first = embedded(file, "--target", "c", "-o", out)
    assert first.exit_code == 0, first.output
    assert f"wrote tiny for c in {out}\n" in first.output
    assert "  tiny_self_test.c\n" in first.output
    assert "note: tensor arena: 2,400 bytes" in first.output
    again = embedded(file, "--target", "c", "-o", out)
    assert f"up to date: tiny for c in {out}\n" in again.output
    assert embedded(file, "--target", "c", "-o", out, "--quiet").output == ""


def test_json_is_the_record(tmp_path):
    file, out = int8_tiny(tmp_path / "m"), tmp_path / "out"
    done = embedded(file, "--target", "c", "-o", out, "--json", "-q", "--option", "bytes=file")
    said = msgspec.json.decode(done.output.encode(), type=Embedded)
    assert said.options == {"bytes": "file"}
    record = read_noun(out / "edgeconv-embedded.json", Embedded, what="record")
    # But for what is said of its last check, which is no part of what was written.
    assert said.notes[:-1] == record.notes
    assert "was never checked" in said.notes[-1]
    assert msgspec.structs.replace(said, notes=record.notes) == record


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--option", "bytes"], 2, "not of the form NAME=VALUE"),
        (["--option", "bytes=text", "--option", "bytes=text"], 2, "given twice"),
        (["--symbol", "a-b"], 2, "is not an identifier"),
        (["--data", "nothing.npz"], 3, "nothing.npz"),
        (["--labels", "nothing.txt"], 3, "nothing.txt"),
    ],
)
def test_what_cannot_be_ends_with_its_exit_code(tmp_path, capsys, options, code, said):
    file = int8_tiny(tmp_path / "m")
    arguments = ["embed", str(file), "--target", "c", "-o", str(tmp_path / "out"), *options]
    assert run(arguments) == code
    assert said in capsys.readouterr().err


def test_the_depfile_names_all_that_the_result_comes_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cal data").mkdir()
    (tmp_path / "cal data" / "a.npy").write_bytes(b"")
    (tmp_path / "y.npy").write_bytes(b"")
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    record = CalibrationRecord(
        signature="", source="npy:cal data/x.npy?labels=y.npy", samples=1, sha256="", range="minmax"
    )
    gone = msgspec.structs.replace(record, source="gone.npz")
    made_up = msgspec.structs.replace(record, source="sklearn:digits")
    (tmp_path / "cal data" / "x.npy").write_bytes(b"")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "source.keras").write_bytes(b"")
    file = int8_tiny(tmp_path / "m", calibration=(record, gone, made_up))
    note_converted(tmp_path / "m" / "source.keras", "s")
    depfile = tmp_path / "out.d"
    done = embedded(
        *(file, "--target", "c", "-o", "out", "--labels", "labels.txt"),
        *("--depfile", depfile, "--depfile-target", "my stamp", "-q"),
    )
    assert done.exit_code == 0, done.output
    rule, *empty = depfile.read_text().split("\n\n")
    target, *files = rule.split(" \\\n  ")
    assert target == "my\\ stamp:"
    place = str(tmp_path).replace(" ", "\\ ")
    assert files == [
        f"{place}/cal\\ data/x.npy",
        f"{place}/labels.txt",
        f"{place}/m/source.keras",
        f"{place}/m/tiny.int8.json",
        f"{place}/m/tiny.int8.tflite",
        f"{place}/y.npy",
    ]
    assert [line.strip() for line in empty] == [f"{name}:" for name in files]


def test_a_directory_is_named_with_all_in_it(tmp_path):
    (tmp_path / "saved" / "variables").mkdir(parents=True)
    (tmp_path / "saved" / "variables" / "v").write_bytes(b"")
    file = float_tiny(tmp_path / "m", source_path=str(tmp_path / "saved"), source_sha256="0" * 64)
    request = planned(file, "c", tmp_path / "out")
    # Nobody converted it here, so that its manifest may name anything.
    assert not any("saved" in str(path.relative_to(tmp_path)) for path in dependencies(request))
    note_converted(tmp_path / "saved", "0" * 64)
    found = dependencies(request)
    names = [path.relative_to(tmp_path).as_posix() for path in found]
    assert names[-3:] == ["saved", "saved/variables", "saved/variables/v"]


def test_signs_that_make_reads_are_written_so_that_it_reads_them_back(tmp_path):
    rule = make_rule("t", [Path("/a b/$c#d")]).decode()
    assert rule == "t: \\\n  /a\\ b/$$c\\#d\n\n/a\\ b/$$c\\#d:\n"
    with fails(UsageError):
        make_rule("t", [Path("/a\nb")])


def test_the_place_of_the_cmake_package_is_printed():
    done = CliRunner().invoke(cli, ["cmake-dir"])
    assert (Path(done.output.strip()) / "edgeconvConfig.cmake").is_file()
    done = CliRunner().invoke(cli, ["cmake-dir", "--litert"])
    assert Path(done.output.strip()).name.startswith("libLiteRt.")
