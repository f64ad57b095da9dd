"""The verdict of a check beside the files: what is written, and who ships what it rejected."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from build_project import CONFIG, RECORD, calibrate, write_project
from wording import fails, says

from edgeconv.cli import run
from edgeconv.reporting.files import last_check, require_passed, verdict_file, write_last_check
from edgeconv.system.store import sha256_file
from edgeconv.types import Check, Finding, LastCheck, StageState, Verdict
from edgeconv.types.errors import CheckFailed, InputRefused

BUDGET = f"{CONFIG}[budget]\nmax-size-bytes = 100_000\n"
STRICT = BUDGET.replace("100_000", "1")
MODEL = "net.tflites/net.int8.tflite"
EMBED = ["embed", MODEL, "--target", "c", "-o", "out"]
SHA256 = "a" * 64


@pytest.fixture
def project(tmp_path, cache, monkeypatch) -> Path:
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(cache))
    monkeypatch.chdir(write_project(tmp_path / "project", BUDGET))
    return tmp_path / "project"


def configure(project: Path, config: str) -> None:
    (project / "edgeconv.toml").write_text(config, encoding="utf-8")


def verdict(project: Path) -> LastCheck:
    return msgspec.json.decode(verdict_file(project / MODEL).read_bytes(), type=LastCheck)


def test_a_check_notes_its_verdict_beside_the_file_and_keeps_it_as_it_is(project):
    assert run(["check", "-q"]) == 0
    noted = verdict(project)
    assert (noted.model, noted.outcome, noted.findings) == ("net", "passed", ())
    assert noted.sha256 == sha256_file(project / MODEL)
    assert noted.edgeconv
    before = verdict_file(project / MODEL).stat()
    assert run(["check", "-q"]) == 0
    assert verdict_file(project / MODEL).stat() == before


def test_what_the_gate_rejects_is_neither_embedded_nor_built(project, capsys):
    # It was built once, and nothing has changed but the verdict.
    assert run(["build", "-q"]) == 0
    configure(project, STRICT)
    assert run(["check", "-q"]) == 1
    (broken,) = verdict(project).findings
    assert (broken.limit, broken.outcome) == ("max-size-bytes", "failed")
    capsys.readouterr()
    assert run(EMBED) == 1
    said = capsys.readouterr().err
    says(said)
    assert not (project / "out").exists()
    assert run(["build", "-q"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("edgeconv.toml:1: error: net: ")
    says(said)
    configure(project, BUDGET)
    assert run(["check", "-q"]) == 0
    assert run(EMBED) == 0
    assert run(["build", "-q"]) == 0


def test_the_verdict_is_a_file_that_a_build_depends_on(project):
    place = str(verdict_file(project / MODEL))
    rule = ["--depfile", "d.d", "-q"]
    for command in (["build", *rule], [*EMBED, *rule]):
        verdict_file(project / MODEL).unlink(missing_ok=True)
        assert run(["build", "-q"]) == 0
        assert run(command) == 0
        assert place not in (project / "d.d").read_text(encoding="utf-8")
        assert run(["check", "-q"]) == 0
        assert run(command) == 0
        assert place in (project / "d.d").read_text(encoding="utf-8")


def test_a_file_made_anew_since_the_check_was_never_checked(project, capsys):
    configure(project, STRICT)
    assert run(["check", "-q"]) == 1
    calibrate(project / "cal.npz", seed=2)
    assert run(["build", "-q"]) == 0
    capsys.readouterr()
    assert run(EMBED) == 0
    said = capsys.readouterr()
    says(said.err)
    assert run([*EMBED, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert run([*EMBED, "--json"]) == 0
    assert "was never checked" in capsys.readouterr().out
    assert run([*EMBED, "--require-check"]) == 1
    says(capsys.readouterr().err)


def test_a_build_beside_a_lock_takes_what_was_accepted_or_checked_and_nothing_else(project, capsys):
    assert run(["check", "-q", "--update"]) == 0
    verdict_file(project / MODEL).unlink()
    assert run(["build", "-q"]) == 0
    calibrate(project / "cal.npz", seed=3)
    record = (project / RECORD).read_bytes()
    assert run(["build", "-q"]) == 1
    says(capsys.readouterr().err)
    assert (project / RECORD).read_bytes() == record
    assert run(["check", "-q"]) == 0
    assert run(["build", "-q"]) == 0
    assert (project / RECORD).read_bytes() != record
    # A model that is not in the lock need not be checked.
    (project / "edgeconv.lock").write_text("format = 1\n", encoding="utf-8")
    verdict_file(project / MODEL).unlink()
    assert run(["build", "-q"]) == 0


def test_a_report_rejects_the_files_that_it_is_of_and_clears_none(project):
    assert run(["check", "-q"]) == 0
    assert run(["bench", MODEL, "-o", "bench", "-q", *QUICK]) == 0
    configure(project, STRICT)
    assert run(["check", "bench/report.json"]) == 1
    assert verdict(project).outcome == "failed"
    configure(project, BUDGET)
    assert run(["check", "bench/report.json"]) == 0
    assert verdict(project).outcome == "failed"
    assert run(["check", "-q"]) == 0
    assert verdict(project).outcome == "passed"


QUICK = ["--rounds", "1", "--warmup", "1", "--repeats", "2", "--warmup-seconds", "0"]


def test_where_no_verdict_can_be_written_that_is_said(project, capsys):
    verdict_file(project / MODEL).mkdir(parents=True)
    assert run(["check", "-q"]) == 0
    said = capsys.readouterr().err
    says(said)


def judged(outcome: str, **changes: Any) -> Check:
    finding = Finding(
        model="int8", limit="max-accuracy-drop", allowed=0.01, actual=0.5, outcome=outcome
    )
    finding = msgspec.structs.replace(finding, **changes)
    stages = (
        StageState(stage="trained", model="baseline", changed=None, sha256="b" * 64),
        StageState(stage="float32", model="float32", changed=None, sha256="c" * 64),
        StageState(stage="quantized", model="int8", changed=None, sha256=SHA256),
    )
    return Check(name="net", verdict=Verdict(findings=(finding,)), stages=stages)


def test_what_too_few_samples_could_not_tell_is_shipped_with_a_warning(tmp_path):
    file = tmp_path / "net.int8.tflite"
    write_last_check(judged("inconclusive"), file, SHA256)
    said = require_passed(file, SHA256, is_required=True)
    assert said.startswith(f"warning: the last check of {file} (")
    says(said)


def test_what_was_not_measured_is_not_shipped(tmp_path):
    file = tmp_path / "net.int8.tflite"
    write_last_check(judged("missing", actual=None, reason="no labels"), file, SHA256)
    with fails(CheckFailed):
        require_passed(file, SHA256, is_required=False)


def test_a_warning_rejects_nothing(tmp_path):
    file = tmp_path / "net.int8.tflite"
    write_last_check(judged("failed", severity="warn"), file, SHA256)
    assert require_passed(file, SHA256, is_required=True) == ""


@pytest.mark.parametrize(
    ("model", "rejected"),
    [("int8", {SHA256}), ("float32", {"c" * 64}), ("baseline", {SHA256, "c" * 64})],
)
def test_a_file_answers_for_itself_and_for_what_it_was_trained_as(tmp_path, model, rejected):
    for sha256 in (SHA256, "c" * 64):
        file = tmp_path / f"{sha256[0]}.tflite"
        write_last_check(judged("failed", model=model), file, sha256)
        found = last_check(file, sha256)
        assert (found.outcome == "failed") == (sha256 in rejected)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format": 2}'])
def test_a_verdict_that_cannot_be_read_is_none_to_ship_by(tmp_path, content):
    file = tmp_path / "net.int8.tflite"
    verdict_file(file).write_bytes(content)
    with fails(InputRefused):
        require_passed(file, SHA256, is_required=False)
    write_last_check(judged("failed", severity="warn"), file, SHA256)
    assert require_passed(file, SHA256, is_required=True) == ""
