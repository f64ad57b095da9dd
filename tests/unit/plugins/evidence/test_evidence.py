"""`edgeconv verify`: what belongs together is verified, and whatever changed is found."""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from build_project import CONFIG, calibrate, write_project
from json_schemas import jsonschema
from places import ROOT
from processor_time import at_most
from wording import fails, says

import edgeconv
from edgeconv.cli import run
from edgeconv.plugins.evidence.links import array_sha256
from edgeconv.reporting.inspected import evidence_schema, render_evidence_text
from edgeconv.system.store import read_noun, sha256_file
from edgeconv.types import LINK_NAMES, Artifact, Evidence, Link
from edgeconv.types.errors import EdgeconvError, InputRefused, UsageError

MODEL = Path("net.tflites/net.int8.tflite")
REPORT = Path("reports/report.json")
RECORD = Path("app/model/edgeconv-embedded.json")
# What says nothing of a model, or is no file of edgeconv's.
NO_EVIDENCE = {".edgeconv.lock", "edgeconv.toml", "cal.npz"}
_CONFIG = f'{CONFIG}[budget]\nmax-size-bytes = 100_000\n[bench]\nout = "reports"\n'


def make_project(directory: Path) -> Path:
    """The project, whose paths are relative to `directory`, which becomes the current one."""
    write_project(directory, _CONFIG)
    os.chdir(directory)
    for arguments in (["check", "-q"], ["check", "--update", "-q"], ["build", "-q"]):
        assert run(arguments) == 0
    for target in ("python", "android", "web"):
        options = ["--target", target, "-o", f"app/{target}", "--symbol", "net"]
        if target != "web":
            assert run(["embed", str(MODEL), *options, "-q"]) == 0
    return directory


def evidence_files(directory: Path) -> list[Path]:
    """All files that `verify` has to know every byte of."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(path for path in files if path.name not in NO_EVIDENCE)


SCHEMA = ROOT / "docs" / "schemas" / "evidence.json"
VERDICT = MODEL.with_suffix(".verdict.json")
MANIFEST = MODEL.with_suffix(".json")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Iterator[Path]:
    """What is at first in the directory of `project`."""
    before, place = Path.cwd(), tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(place / "cache"))
        make_project(place / "project")
        os.chdir(before)
        (place / "project").rename(place / "pristine")
        yield place / "pristine"


@pytest.fixture
def project(made, monkeypatch) -> Iterator[Path]:
    """A copy that a test may change, at the place where it was made."""
    place = made.with_name("project")
    shutil.copytree(made, place)
    monkeypatch.chdir(place)
    yield place
    shutil.rmtree(place)


def failures(evidence: Evidence) -> list[Link]:
    return [link for link in evidence.links if link.state == "failed"]


def is_found(*paths: str, **options: object) -> bool:
    """Whether `verify` says that something does not match, or that there is nothing to verify."""
    try:
        return not edgeconv.verify(*paths, **options).ok
    except InputRefused:
        return True


def test_a_whole_project_is_verified_link_by_link(project):
    evidence = edgeconv.verify(".", require=["manifest", "source", "verdict", "report", "lock"])
    assert evidence.ok
    assert failures(evidence) == []
    verified = {(link.link, link.file) for link in evidence.links if link.state == "verified"}
    assert verified >= {
        ("artifact", str(MODEL)),
        ("source", str(MODEL)),
        ("verdict", str(VERDICT)),
        ("report", str(MODEL)),
        ("report", str(REPORT)),
        ("lock", str(MODEL)),
        ("embedding", str(RECORD)),
        ("embedding", "app/model/net_model.c"),
        ("embedding", "app/python/net/model.tflite"),
    }
    unchecked = {(link.link, link.file) for link in evidence.links if link.state == "unchecked"}
    assert unchecked == {
        # The model of an Android app has metadata in it.
        ("embedding", "app/android/edgeconv-embedded.json")
    }


def test_every_flipped_byte_and_every_cut_is_found(project):
    random_ = random.Random(0)
    missed = []
    for file in evidence_files(Path()):
        data = file.read_bytes()
        ends = [0, 1, len(data) - 2, len(data) - 1]
        inner = [random_.randrange(len(data)) for _ in range(4)]
        # Where a document has its checksum.
        last = [max(0, len(data) - 1 - random_.randrange(100)) for _ in range(4)]
        for place in {*ends, *inner, *last}:
            changed = bytearray(data)
            changed[place] ^= random_.choice([1 << random_.randrange(8), random_.randrange(1, 256)])
            file.write_bytes(changed)
            if not is_found("."):
                missed.append((str(file), place))
        for size in (0, 1, len(data) // 2, len(data) - 1):
            file.write_bytes(data[:size])
            if not is_found("."):
                missed.append((str(file), f"cut to {size}"))
        file.write_bytes(data)
    assert missed == []
    assert edgeconv.verify(".").ok


def test_any_two_files_of_a_kind_that_are_swapped_are_found(project):
    files = evidence_files(Path())
    missed = []
    for index, one in enumerate(files):
        for other in files[index + 1 :]:
            contents = one.read_bytes(), other.read_bytes()
            if one.suffix != other.suffix or contents[0] == contents[1]:
                continue
            one.write_bytes(contents[1])
            other.write_bytes(contents[0])
            if not is_found("."):
                missed.append((str(one), str(other)))
            one.write_bytes(contents[0])
            other.write_bytes(contents[1])
    assert missed == []


def test_a_removed_file_is_found_and_one_that_may_be_absent_by_requiring_it(project, monkeypatch):
    # Another test has converted the same model, under the same name.
    monkeypatch.setattr("edgeconv.system.store.notes._hashes", {})
    required = ["source", "verdict", "report", "lock"]
    for file in evidence_files(Path()):
        data = file.read_bytes()
        file.unlink()
        places = [".", *map(str, sorted(Path("app").iterdir()))]
        # The page is a picture of the report beside it.
        assert is_found(*places, require=required) or file.name == "report.html", file
        file.write_bytes(data)


def test_an_absence_is_said_and_is_no_pass(project):
    shutil.rmtree("app")
    for file in (VERDICT, REPORT, Path("edgeconv.lock"), Path("net.tflite")):
        file.unlink()
    shutil.move("net.tflites", "moved")
    artifact = read_noun(Path("moved", MANIFEST.name), Artifact, what="manifest")
    moved = msgspec.structs.replace(artifact, source_path=str(project / "nowhere.keras"))
    Path("moved", MANIFEST.name).write_bytes(msgspec.json.encode(moved))
    evidence = edgeconv.verify("moved")
    unchecked = {link.link for link in evidence.links if link.state == "unchecked"}
    # The manifest was written without a checksum.
    assert unchecked == {*LINK_NAMES} - {"artifact"}
    assert evidence.ok
    text = render_evidence_text(evidence)
    assert "not checked  source" in text
    assert "was not found" in text
    assert text.endswith("verified: 1 ok, 6 not checked\n")
    for name in unchecked:
        assert is_found("moved", require=[name]), name


def test_what_its_check_rejected_does_not_verify(project):
    config = Path("edgeconv.toml").read_text()
    Path("edgeconv.toml").write_text(config.replace("100_000", "1"))
    assert run(["check", "-q"]) == 1
    (failed,) = failures(edgeconv.verify("net.tflites", "reports"))
    assert failed.link == "verdict"
    assert "rejected it: int8: max-size-bytes" in failed.text or "max-size-bytes" in failed.text


def test_a_verdict_report_lock_or_embedding_of_other_bytes_is_found(project):
    """Each is whole in itself, and belongs to another file."""
    shutil.copytree(".", "old")
    calibrate(Path("cal.npz"), seed=4)
    Path("edgeconv.toml").write_text(Path("edgeconv.toml").read_text())
    assert run(["check", "-q"]) == 0
    assert sha256_file(MODEL) != sha256_file("old" / MODEL)
    assert not failures(edgeconv.verify("net.tflites", "reports"))
    for old, said in {
        VERDICT: "it is the verdict of other bytes",
        REPORT: "it measured other bytes under the name net.int8.tflite",
    }.items():
        content = old.read_bytes()
        shutil.copy("old" / old, old)
        texts = [link.text for link in failures(edgeconv.verify("net.tflites", "reports"))]
        assert any(said in text for text in texts), texts
        old.write_bytes(content)
    (lock,) = failures(edgeconv.verify("net.tflites", "edgeconv.lock"))
    assert lock.text == "other bytes were accepted as int8 of model net"
    (embedding,) = failures(edgeconv.verify("net.tflites", "app/model"))
    assert "embeds other bytes" in embedding.text


def test_another_source_is_found_and_a_named_one_has_to_be_there(project):
    Path("other.tflite").write_bytes(Path("net.tflite").read_bytes() + b"\0")
    (failed,) = failures(edgeconv.verify("net.tflites", source="other.tflite"))
    assert failed.link == "source"
    assert "but this has" in failed.text
    with fails(InputRefused):
        edgeconv.verify("net.tflites", source="nothing.keras")


def test_a_manifest_that_was_edited_is_made_again_by_convert(project):
    Path(MANIFEST).write_text(MANIFEST.read_text().replace('"samples": ', '"samples": 9'))
    assert is_found("net.tflites")
    assert run(["check", "-q"]) == 0
    assert not is_found("net.tflites")


def test_a_damaged_verdict_or_report_is_made_again_by_check(project):
    for file in (VERDICT, REPORT):
        before = file.read_bytes()
        file.write_bytes(before.replace(b'"passed"', b'"failed"', 1))
        assert file.read_bytes() != before
        assert run(["check", "-q"]) == 0
        assert not is_found("net.tflites", "reports"), file


def test_the_array_of_a_c_file_is_the_model_and_not_only_its_text(project):
    """A record and a source that agree with each other, and not with the model."""
    source = Path("app/model/net_model.c")
    assert array_sha256(source.read_bytes()) == sha256_file(MODEL)
    changed = source.read_bytes().replace(b"0x54,0x46", b"0x54,0x47", 1)
    assert changed != source.read_bytes()
    record = RECORD.read_text().replace(sha256_file(source), _sha256(changed))
    source.write_bytes(changed)
    without_checksum = json.loads(record)
    del without_checksum["checksum"]
    RECORD.write_text(json.dumps(without_checksum))
    (failed,) = failures(edgeconv.verify("app/model"))
    assert failed.text == "its array is not the model that the record names"


def _sha256(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()


def test_a_tflite_that_nothing_speaks_of_is_found(project):
    foreign = Path("net.tflite").read_bytes() + b"\0"
    Path("net.tflites/foreign.tflite").write_bytes(foreign)
    (failed,) = failures(edgeconv.verify("net.tflites"))
    assert failed.file == "net.tflites/foreign.tflite"
    assert "it has no manifest" in failed.text


def test_what_has_no_checksum_is_read_and_listed_as_unchecked(project):
    for file in (MANIFEST, VERDICT, REPORT, RECORD):
        content = json.loads(file.read_bytes())
        del content["checksum"]
        for new in ("passed", "report_sha256"):
            content.pop(new, None)
        file.write_text(json.dumps(content, indent=2))
    page = Path("reports/report.html")
    page.write_bytes(page.read_bytes()[: page.read_bytes().rindex(b"<!-- edgeconv checksum")])
    evidence = edgeconv.verify(".")
    assert failures(evidence) == []
    unmarked = {link.file for link in evidence.links if link.text.startswith("it has no checksum")}
    assert unmarked == {*map(str, (MANIFEST, VERDICT, REPORT, RECORD)), "reports/report.html"}


# The command


def test_the_exit_codes_are_0_verified_1_does_not_match_3_nothing_to_verify(project, capsys):
    assert run(["verify", "net.tflites"]) == 0
    assert capsys.readouterr().out.endswith("not checked\n")
    MODEL.write_bytes(MODEL.read_bytes()[:-1] + b"\1")
    assert run(["verify", "net.tflites"]) == 1
    assert "FAIL         artifact" in capsys.readouterr().out
    for path in ("nothing", "cal.npz", "net.tflite", "edgeconv.toml"):
        assert run(["verify", path]) == 3
        says(capsys.readouterr().err)
    Path("empty").mkdir()
    assert run(["verify", "app", "empty"]) == 3
    assert run(["verify"]) == 2
    with fails(UsageError):
        edgeconv.verify("app", require=["all"])


def test_a_file_is_verified_with_what_belongs_to_it(project):
    for file in (MODEL, MANIFEST, VERDICT):
        links = edgeconv.verify(file).links
        verified = {link.link for link in links if link.state == "verified"}
        assert verified == {"artifact", "source", "verdict"}, file
    assert edgeconv.verify(REPORT).ok is False
    assert edgeconv.verify(MODEL, REPORT, RECORD, "edgeconv.lock").ok


def test_json_is_by_its_schema_and_says_the_same(project, capsys):
    assert run(["verify", ".", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, json.loads(SCHEMA.read_bytes()))
    assert msgspec.convert(said, Evidence) == edgeconv.verify(".")


def test_the_published_schema_is_that_of_the_nouns(capsys):
    """Write it anew with: python -m edgeconv verify --schema > docs/schemas/evidence.json"""
    assert SCHEMA.read_bytes() == evidence_schema()
    assert run(["verify", "--schema"]) == 0
    assert capsys.readouterr().out == evidence_schema().decode()


def test_it_takes_less_than_a_second_of_work_with_a_model_of_100_mb(project):
    large = Path("large/large.int8.tflite")
    large.parent.mkdir()
    large.write_bytes(os.urandom(1 << 20) * 100)
    artifact = msgspec.structs.replace(
        read_noun(MANIFEST, Artifact, what="manifest"),
        file=large.name,
        sha256=sha256_file(large),
        size_bytes=large.stat().st_size,
    )
    large.with_suffix(".json").write_bytes(msgspec.json.encode(artifact))
    times = []
    for _ in range(3):
        # Of the processor: what else runs here is not its doing. It waits for nothing but files.
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "edgeconv", "verify", "."]
        subprocess.run(command, check=True, capture_output=True)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime)
    assert min(times) < 1


# What somebody made so that it takes for ever, or leads elsewhere


def write_hostile(kind: str, place: Path) -> None:
    match kind:
        case "pipe":
            place.unlink(missing_ok=True)
            os.mkfifo(place)
        case "link out":
            shutil.move(place, place.parent.parent.parent / "elsewhere")
            place.symlink_to(place.parent.parent.parent / "elsewhere")
        case "link to itself":
            place.unlink()
            place.symlink_to(place.name)
        case "device":
            place.unlink()
            place.symlink_to("/dev/zero")
        case "directory":
            place.unlink()
            place.mkdir()
        case "huge":
            os.truncate(place, 1 << 40)
        case "nested":
            place.write_bytes(b'{"format": 1, "name": ' + b"[" * 10_000_000)


HOSTILE = ("pipe", "link out", "link to itself", "device", "directory", "huge", "nested")


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_in_the_place_of_any_is_found_soon(project, kind):
    for file in (MODEL, MANIFEST, VERDICT, REPORT, RECORD, Path("app/model/net_model.c")):
        shutil.rmtree("work", ignore_errors=True)
        shutil.copytree(".", "work", ignore=shutil.ignore_patterns("work", "elsewhere"))
        write_hostile(kind, "work" / file)
        folder = "work" if kind != "directory" else str(Path("work", file.parts[0]))
        with at_most(seconds=2):
            assert is_found(folder), file
        Path("elsewhere").unlink(missing_ok=True)


def test_links_to_folders_are_not_followed_and_loops_have_an_end(project):
    Path("net.tflites/loop").symlink_to(".")
    Path("net.tflites/root").symlink_to("/")
    evidence = edgeconv.verify("net.tflites")
    links = [link for link in evidence.links if "symbolic link" in link.text]
    assert {link.file for link in links} == {"net.tflites/loop", "net.tflites/root"}
    assert {link.state for link in links} == {"unchecked"}


def test_a_folder_of_too_many_files_is_refused_soon(project, capsys):
    Path("many").mkdir()
    for index in range(20_000):
        Path(f"many/{index}.json").hardlink_to(MANIFEST)
    with at_most(seconds=5):
        assert run(["verify", "many"]) == 3
    says(capsys.readouterr().err)


def test_a_record_cannot_name_files_outside_and_a_manifest_none_elsewhere(project):
    content = json.loads(RECORD.read_bytes())
    del content["checksum"]
    content["files"][0]["path"] = "../../../../../../etc/passwd"
    RECORD.write_text(json.dumps(content))
    assert any("not below it" in link.text for link in failures(edgeconv.verify("app/model")))
    manifest = json.loads(MANIFEST.read_bytes())
    del manifest["checksum"]
    for file, why in (
        ("../net.tflite", "is not the name of a file next to it"),
        ("/etc/passwd", "is not the name of a file next to it"),
        ("other.tflite", "its manifest is that of"),
    ):
        manifest["file"] = file
        MANIFEST.write_text(json.dumps(manifest))
        assert any(why in one.text for one in failures(edgeconv.verify("net.tflites")))


def test_foreign_text_is_printed_harmless(project):
    manifest = json.loads(MANIFEST.read_bytes())
    del manifest["checksum"]
    manifest |= {"file": "\x1b[2J.tflite", "source_path": "/\x1b]0;x\x07\u202e"}
    MANIFEST.write_text(json.dumps(manifest))
    text = render_evidence_text(edgeconv.verify("net.tflites"))
    assert all(character.isprintable() or character == "\n" for character in text)


def test_no_source_of_a_manifest_makes_it_hang_or_read_for_ever(project):
    os.mkfifo("pipe.keras")
    Path("model").mkdir()
    Path("model/saved_model.pb").write_bytes(b"")
    Path("model/root").symlink_to("/")
    manifest = json.loads(MANIFEST.read_bytes())
    del manifest["checksum"]
    for source in (
        "/dev/zero",
        "/",
        "/proc/kmsg",
        str(project / "pipe.keras"),
        str(project / "model"),
        "\0",
    ):
        manifest["source_path"] = source
        MANIFEST.write_text(json.dumps(manifest))
        with at_most(seconds=3):
            try:
                links = edgeconv.verify("net.tflites").links
            except EdgeconvError:
                pytest.fail(source)
        assert all(link.state != "verified" for link in links if link.link == "source")
