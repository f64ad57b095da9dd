import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from commands import captured
from wording import fails, says

import edgeconv
from edgeconv.cli.verbs import check as command
from edgeconv.types import (
    Accuracy,
    Checked,
    Conversion,
    Environment,
    Finding,
    Measurement,
    Report,
    Verdict,
)
from edgeconv.types.errors import InputRefused, UsageError


@pytest.fixture
def files(tmp_path) -> tuple[str, str]:
    """A report with one int8 artifact of accuracy .9, and a budget still to be written."""
    artifact = Measurement(
        name="digits.int8",
        role="artifact",
        recipe="int8",
        runtime="litert",
        sha256="0" * 64,
        size_bytes=1000,
        accuracy=Accuracy(value=0.9, samples=10, correct="1111111110"),
    )
    report = Report(
        title="digits",
        environment=Environment(machine="m", cpu="c", cores=2, system="s", python="3", tools={}),
        data=None,
        baseline=None,
        measurements=(artifact,),
    )
    (tmp_path / "report.json").write_bytes(msgspec.json.encode(report))
    return str(tmp_path / "report.json"), str(tmp_path / "budget.toml")


def write(budget: str, text: str) -> None:
    with open(budget, "w") as file:  # noqa: PTH123
        file.write(text)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(command, arguments, standalone_mode=True)


def test_a_budget_that_holds_ends_with_0_and_says_so(files):
    write(files[1], "[budget]\nmax-size-bytes = 1000\n")
    done = run(files[0], "--config", files[1])
    assert done.exit_code == 0
    assert "PASS" in done.stdout
    assert "digits.int8" not in done.stdout
    assert "digits.int8" in run(files[0], "--config", files[1], "-v").stdout


def test_a_limit_on_what_was_not_measured_ends_with_1(files):
    write(files[1], "[budget]\nmax-peak-memory-bytes = 1e9\n")
    assert run(files[0], "--config", files[1]).exit_code == 1


def test_a_limit_on_a_time_that_was_not_measured_is_a_warning(files):
    write(files[1], "[budget]\nmax-latency-p50-us = 1e9\n")
    done = run(files[0], "--config", files[1])
    assert done.exit_code == 0
    assert "WARN" in done.stdout


def test_json_prints_the_verdict_as_one_document(files):
    write(files[1], "[budget]\nmax-size-bytes = 999\n")
    done = run(files[0], "--config", files[1], "--json")
    assert done.exit_code == 1
    checked = msgspec.json.decode(done.stdout, type=Checked)
    assert checked.config == files[1]
    (check,) = checked.checks
    assert check.verdict == Verdict(
        findings=(
            Finding(
                model="digits.int8",
                limit="max-size-bytes",
                allowed=999.0,
                actual=1000.0,
                recipe="int8",
                line=2,
                outcome="failed",
            ),
        )
    )


def test_a_budget_is_required(files):
    done = run(files[0])
    assert isinstance(done.exception, UsageError)
    says(done.exception)
    write(files[1], "[bench]\nrounds = 1\n")
    done = run(files[0], "--config", files[1])
    says(done.exception)


def test_the_configuration_here_is_taken_without_its_name(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("edgeconv.toml", "[budget]\nmax-size-bytes = 999\n")
    assert run(files[0]).exit_code == 1
    write("edgeconv.toml", "[budget]\nmax-size-bytes = 1000\n")
    assert run(files[0]).exit_code == 0


def test_a_report_that_is_none_is_refused(files):
    write(files[1], "[budget]\nmax-size-bytes = 1000\n")
    assert isinstance(run(files[1], "--config", files[1]).exception, InputRefused)
    assert isinstance(run(files[0] + "x", "--config", files[1]).exception, InputRefused)
    # Models are to be measured first, whether there is a budget or not.
    folder = Path(files[0]).parent / "models"
    folder.mkdir()
    (folder / "m.int8.tflite").write_bytes(b"")
    with fails(InputRefused):
        edgeconv.check(Conversion(directory=str(folder), artifacts=()))


@pytest.mark.parametrize(
    ("budget", "report", "code", "text"),
    [
        ("max-size-bytes = 1000", "", 0, "PASS"),
        ("max-size-bytes = 999", "", 1, "FAIL"),
        ("min-acuracy = 0.9", "", 2, "did you mean 'min-accuracy'"),
        ("max-size-bytes = 1000", ".gone", 3, "does not exist"),
    ],
)
def test_the_program_ends_with_the_documented_exit_code_and_loads_no_tensorflow(
    budget, report, code, text, files
):
    write(files[1], f"[budget]\n{budget}\n")
    program = (
        "import sys\n"
        "from edgeconv.cli import main\n"
        "try: code = main()\n"
        "except SystemExit as ended: code = ended.code\n"
        "heavy = {'tensorflow', 'ai_edge_litert', 'numpy', 'sklearn'} & {*sys.modules}\n"
        "assert not heavy, heavy\n"
        "sys.exit(code)\n"
    )
    arguments = ["check", files[0] + report, "--config", files[1]]
    done = captured([sys.executable, "-c", program, *arguments])
    assert done.returncode == code, done.stderr
    assert text in (done.stderr if code > 1 else done.stdout)
    assert bool(done.stdout) == (code <= 1)
