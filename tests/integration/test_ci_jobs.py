"""The files to paste, at work in a fresh project, as far as they can be without their hosts."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from commands import captured
from doctor_models import linear
from places import ROOT

CONFIG = """\
[model.tiny]
source = "tiny.tflite"

[convert]
to = ["int8"]
calibration = "calibration.npz"
out = "made"

[bench]
data = "test.npz?labels=y"
rounds = 1
warmup = 1
warmup-seconds = 0.01
repeats = 5
seconds = 0.01

[budget]
max-size-bytes = 100_000
"""
PROGRAMS = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture(scope="module")
def temporary(tmp_path_factory) -> Path:
    """What a runner keeps between the steps of a job, and the cache between jobs."""
    return tmp_path_factory.mktemp("runner")


@pytest.fixture
def project(tmp_path) -> Path:
    place = tmp_path / "workspace" / "app"
    place.mkdir(parents=True)
    rng = np.random.default_rng(0)
    weights, x = rng.normal(size=(4, 8)), rng.normal(size=(200, 8)).astype(np.float32)
    linear(place / "tiny.tflite", (8,), weights, np.zeros(4))
    np.savez(place / "test.npz", image=x, y=(x @ weights.T).argmax(axis=1))
    np.savez(place / "calibration.npz", image=x[:50])
    (place / "edgeconv.toml").write_text(CONFIG, encoding="utf-8")
    return place


def break_budget(project: Path) -> None:
    text = CONFIG.replace("100_000", "100")
    (project / "edgeconv.toml").write_text(text, encoding="utf-8")


def run(command: list[str], place: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return captured(
        command, cwd=place, timeout=300, env={**os.environ, "PATH": PROGRAMS, **variables}
    )


# GitHub


class Job:
    """The steps of action.yml with a `run`, as a runner does them; the others are GitHub's own."""

    def __init__(self, workspace: Path, temporary: Path, **inputs: str) -> None:
        self.action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        given = {key: str(each["default"]) for key, each in self.action["inputs"].items()}
        self.values = {
            **{f"inputs.{key}": value for key, value in {**given, **inputs}.items()},
            "runner.temp": str(temporary),
            "github.token": "secret",
            "github.event_name": "push",
        }
        self.workspace = workspace
        self.summary = temporary / "summary.md"
        self.summary.write_text("# Before\n")
        self.output = temporary / "output"
        self.output.write_text("")
        self.log = ""

    def runs(self) -> int:
        """The exit code of the first step that fails, else 0."""
        for step in self.action["runs"]["steps"]:
            if "run" in step and self._is_wanted(step.get("if", "")):
                code = self._step(step)
                if code:
                    return code
        return 0

    def outputs(self) -> dict[str, str]:
        return {key: self._filled(each["value"]) for key, each in self.action["outputs"].items()}

    def _step(self, step: dict[str, Any]) -> int:
        script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = run(
            script,
            self.workspace / self._filled(step.get("working-directory", ".")),
            GITHUB_ACTIONS="true",
            GITHUB_ACTION_PATH=str(ROOT),
            GITHUB_WORKSPACE=str(self.workspace),
            GITHUB_OUTPUT=str(self.output),
            GITHUB_STEP_SUMMARY=str(self.summary),
            **{key: self._filled(value) for key, value in step.get("env", {}).items()},
        )
        self.log += done.stdout + done.stderr
        for line in self.output.read_text().splitlines():
            key, _, value = line.partition("=")
            self.values[f"steps.{step.get('id')}.outputs.{key}"] = value
        return done.returncode

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda match: self.values[match[1]], text)

    def _is_wanted(self, condition: str) -> bool:
        terms = [term.split() for term in condition.split(" && ")] if condition else []
        return all(
            (self.values[name] == value.strip("'")) == (sign == "==") for name, sign, value in terms
        )


def test_the_action_passes_with_its_outputs_its_summary_and_its_files(project, temporary):
    inputs = {"working-directory": "app", "package": "none"}
    job = Job(project.parent, temporary, **inputs)
    assert job.runs() == 0, job.log
    outputs = job.outputs()
    assert (outputs["verdict"], outputs["exit-code"]) == ("pass", "0")
    made = {path.name for path in Path(outputs["directory"]).iterdir()}
    assert made == {"edgeconv.txt", "verdict.json", "junit.xml", "edgeconv.sarif", "comment.md"}
    comment = (Path(outputs["directory"]) / "comment.md").read_text(encoding="utf-8")
    assert comment.startswith("<!-- edgeconv check: app/edgeconv.toml -->\n")
    summary = job.summary.read_text(encoding="utf-8")
    assert summary.startswith("# Before\n## ✅ edgeconv check: 1 model within budget")


def test_the_action_fails_where_a_limit_is_broken_and_annotates_it(project, temporary):
    break_budget(project)
    job = Job(project, temporary, package="none", arguments="--model tiny --quiet")
    assert job.runs() == 1
    assert job.outputs()["verdict"] == "fail"
    found = re.search(r"^::error file=edgeconv\.toml,line=(\d+),title=", job.log, re.MULTILINE)
    assert found is not None, job.log
    limit = (project / "edgeconv.toml").read_text(encoding="utf-8").splitlines()[int(found[1]) - 1]
    assert limit.startswith("max-size-bytes")
    assert "❌ edgeconv check" in job.summary.read_text(encoding="utf-8")


def test_the_action_tells_what_could_not_be_checked_from_what_is_bad(project, temporary):
    (project / "test.npz").unlink()
    job = Job(project, temporary, package="none", config="edgeconv.toml")
    assert job.runs() == 3
    assert job.outputs()["verdict"] == "error"
    # The files are there, and say why.
    verdict = json.loads(Path(job.outputs()["directory"], "verdict.json").read_bytes())
    (finding,) = verdict["checks"][0]["verdict"]["findings"]
    assert (finding["outcome"], "test.npz" in finding["reason"]) == ("missing", True)
    comment = Path(job.outputs()["directory"], "comment.md").read_text(encoding="utf-8")
    assert "❌ edgeconv check" in comment
    assert "test.npz does not exist" in comment


def test_the_arguments_of_the_action_are_no_commands(project, temporary):
    job = Job(project, temporary, package="none", arguments="$(touch here) ; touch there")
    assert job.runs() == 2
    assert not list(project.glob("*here"))


@pytest.mark.slow
def test_the_action_installs_itself(project, temporary, tmp_path):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    for name in ("edgeconv", "models"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("*.pyc"))
    assert run([sys.executable, "-m", "venv", "fresh"], tmp_path).returncode == 0
    (step,) = (s for s in Job(project, temporary).action["runs"]["steps"] if s["name"] == "Install")
    done = run(
        ["bash", "-c", step["run"]],
        project,
        GITHUB_ACTION_PATH=str(checkout),
        PACKAGE="",
        PATH=os.pathsep.join([str(tmp_path / "fresh" / "bin"), PROGRAMS]),
        # What it needs takes minutes, and is not asked about here.
        PIP_NO_DEPS="1",
    )
    if "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("no package index can be reached, to build with")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages/edgeconv")
    package = ROOT / "edgeconv"
    modules = {path.relative_to(package) for path in package.rglob("*.py")}
    assert modules <= {path.relative_to(folder) for path in folder.rglob("*.py")}


# GitLab


def test_the_job_of_gitlab_makes_every_report_that_it_names(project, temporary):
    (job,) = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text(encoding="utf-8")).values()
    script = "\n".join(["set -eo pipefail", *job["script"]])
    variables = {
        **job["variables"],
        "CI_PROJECT_DIR": str(project),
        "EDGECONV_PACKAGE": "none",
        "EDGECONV_CACHE_DIR": str(temporary / "edgeconv-cache"),
        "GITHUB_ACTIONS": "",
        "GITHUB_WORKSPACE": "",
    }
    break_budget(project)
    done = run(["bash", "-c", script], project, **variables)
    assert done.returncode == 1, done.stderr
    reports = job["artifacts"]["reports"]
    assert set(reports) == {"junit", "codequality", "metrics"}
    assert ElementTree.parse(project / reports["junit"]).getroot().get("failures") == "1"
    (issue,) = json.loads((project / reports["codequality"]).read_text(encoding="utf-8"))
    assert issue["location"]["path"] == "edgeconv.toml"
    assert (project / reports["metrics"]).read_text(encoding="utf-8").endswith("# EOF\n")
    assert all((project / path).parent.name == "edgeconv-verdict" for path in reports.values())


# make


def test_make_checks_and_accepts(project, temporary):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    shutil.copy(ROOT / "ci" / "edgeconv.mk", project)
    (project / "Makefile").write_text("include edgeconv.mk\n")
    cache = str(temporary / "edgeconv-cache")
    done = run(["make", "edgeconv-check"], project, EDGECONV_CACHE_DIR=cache)
    assert done.returncode == 0, done.stderr
    assert (project / "build" / "edgeconv" / "junit.xml").is_file()
    assert not (project / "edgeconv.lock").exists()
    done = run(["make", "edgeconv-update"], project, EDGECONV_CACHE_DIR=cache)
    assert done.returncode == 0, done.stderr
    assert (project / "edgeconv.lock").is_file()
    break_budget(project)
    done = run(["make", "edgeconv-check"], project, EDGECONV_CACHE_DIR=cache)
    assert done.returncode == 2
    assert "FAIL" in done.stdout


# pre-commit


def test_the_hook_of_pre_commit_stops_a_commit_that_breaks_the_budget(project, temporary, tmp_path):
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    revision = committed(hooks)
    config = {
        "repos": [
            {
                "repo": str(hooks),
                "rev": revision,
                # The edgeconv that is here: installing another one takes the internet.
                "hooks": [{"id": "edgeconv-check", "language": "system"}],
            }
        ]
    }
    (project / ".pre-commit-config.yaml").write_text(json.dumps(config))
    (project / ".gitignore").write_text("made/\n")
    committed(project)
    variables = {
        "PRE_COMMIT_HOME": str(tmp_path / "pre-commit"),
        "EDGECONV_CACHE_DIR": str(temporary / "edgeconv-cache"),
    }
    command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"]
    done = run(command, project, **variables)
    assert done.returncode == 0, done.stdout
    assert "edgeconv check" in done.stdout
    assert re.search(r"^PASS tiny: \d+ limits? holds?\b", done.stdout, re.M)
    break_budget(project)
    run(["git", "add", "-A"], project)
    done = run(command, project, **variables)
    assert done.returncode == 1
    assert re.search(r"^FAIL tiny: ", done.stdout, re.M)


def committed(place: Path) -> str:
    """The revision after everything was committed."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "all"]):
        done = run(["git", *command], place)
        assert done.returncode == 0, done.stderr
    return run(["git", "rev-parse", "HEAD"], place).stdout.strip()
