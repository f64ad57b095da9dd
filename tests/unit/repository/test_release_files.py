"""Files for contributors and releases: each is what its tool takes; the changelog is whole."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from json_schemas import assert_valid
from places import ROOT

import edgeconv

SECTIONS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_one_by_its_schema(file: Path) -> None:
    assert_valid("github-workflows", file)


def test_each_issue_form_is_one_by_its_schema() -> None:
    for file in FORMS:
        schema = "github-issue-config" if file.name == "config.yml" else "github-issue-forms"
        assert_valid(schema, file)


def test_the_updates_of_locks_are_configured() -> None:
    assert_valid("renovate", ROOT / ".github" / "renovate.json")
    # Renovate makes a lock again with the command that it finds in its head.
    for lock in ROOT.glob("requirements*.lock"):
        assert "\n#    uv pip compile pyproject.toml " in lock.read_text(encoding="utf-8")


def test_a_lock_is_installed_as_it_is() -> None:
    """It is whole, and where pip looks for dependencies it may find a newer one of an extra."""
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    lines = [
        line
        for file in (*WORKFLOWS, *texts)
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install .*-r requirements", line)
    ]
    assert len(lines) >= 6
    for line in lines:
        assert "pip install --no-deps --require-hashes -r" in line


def test_a_bug_is_reported_with_versions_and_manifest() -> None:
    text = (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text(encoding="utf-8")
    assert "edgeconv --version --json" in text
    assert "manifest" in {part.get("id") for part in yaml.safe_load(text)["body"]}


def test_every_supported_python_is_tested() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["all"]["strategy"]["matrix"]["python"] == supported


def test_no_step_of_a_workflow_runs_what_a_stranger_can_write() -> None:
    """An expression is replaced before the shell sees it, and a title could be a command."""
    for file in WORKFLOWS:
        for job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].values():
            for step in job["steps"]:
                assert "${{" not in step.get("run", ""), (file.name, step)


def test_the_hooks_of_the_project_are_read_by_pre_commit() -> None:
    _run(sys.executable, "-m", "pre_commit", "validate-config", ".pre-commit-config.yaml")


def test_nox_has_a_session_for_each_task() -> None:
    listing = _run(sys.executable, "-m", "nox", "-l")
    sessions = set(re.findall(r"^[*-] (\w+)", listing, flags=re.MULTILINE))
    assert sessions >= {"fast", "tests", "slow", "lint", "types", "docs", "bench", "locks"}


def test_the_changelog_is_kept() -> None:
    """As keepachangelog.com has it: newest first, a date each, and only its kinds of sections."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = _release_notes().sections(text)
    assert next(iter(versions)) == "Unreleased"
    released = [version for version in versions if version != "Unreleased"]
    numbers = [tuple(map(int, version.split("."))) for version in released]
    assert numbers == sorted(numbers, reverse=True)
    assert all(versions[version][0] for version in released)
    assert len(re.findall(r"^## ", text, flags=re.MULTILINE)) == len(versions)
    for _date, notes in versions.values():
        assert set(re.findall(r"^### (.+)$", notes, flags=re.MULTILINE)) <= SECTIONS


def test_the_version_of_the_package_has_an_entry_in_the_changelog() -> None:
    notes = _run(sys.executable, "ci/release_notes.py", f"v{edgeconv.__version__}")
    assert "### Added" in notes


def test_a_tag_that_is_not_the_version_is_not_released() -> None:
    command = [sys.executable, "ci/release_notes.py", "v99.0.0"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == f"the tag is v99.0.0, and the version {edgeconv.__version__}\n"


def _release_notes():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("release_notes", ROOT / "ci/release_notes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(*command: str) -> str:
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
