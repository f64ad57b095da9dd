"""Files for contributors and releases: each is what its tool takes; the changelog is whole."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from json_schemas import assert_valid
from landing import SAMPLE_S, landing_of, parts_of, read_durations, sample_of, units_of
from places import ROOT, TESTS
from start_kinds import ENTER, JOURNEYS, kind_of, may_be_forked

import edgeconv

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


def test_the_version_of_the_package_has_an_entry_in_the_changelog() -> None:
    notes = _run(sys.executable, "ci/release_notes.py", f"v{edgeconv.__version__}")
    assert "### Added" in notes


def test_a_tag_that_is_not_the_version_is_not_released() -> None:
    command = [sys.executable, "ci/release_notes.py", "v99.0.0"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == f"the tag is v99.0.0, and the version {edgeconv.__version__}\n"


def _run(*command: str) -> str:
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


# The generated code of .proto files is what these say, and runs where it must.

PROTOS = sorted(path.relative_to(ROOT) for path in (ROOT / "edgeconv").rglob("*.proto"))
VERSION = re.compile(r"^# Protobuf Python Version: (.*)$", re.MULTILINE)
# What differs from version to version: its number, and types of what a message is made of.
OF_A_VERSION = re.compile(
    r"^# Protobuf Python Version.*$|^    \d+,$|^ +def __init__.*$", re.MULTILINE
)


def test_there_are_protocol_buffers():
    """Else the tests here would hold because nothing was looked at."""
    assert len(PROTOS) > 3


def test_generating_again_gives_the_same(tmp_path):
    pytest.importorskip("grpc_tools")
    options = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *options, *map(str, PROTOS)]
    subprocess.run(command, cwd=ROOT, check=True)
    generated = sorted(path for path in tmp_path.rglob("*_pb2.py*"))
    assert len(generated) == 2 * len(PROTOS)
    for path in generated:
        committed = (ROOT / path.relative_to(tmp_path)).read_text(encoding="utf-8")
        again = path.read_text(encoding="utf-8")
        assert OF_A_VERSION.sub("", again) == OF_A_VERSION.sub("", committed)


def test_the_generated_code_runs_with_the_oldest_protobuf_that_is_allowed():
    """Code refuses to run with an older protobuf than the one that it was generated by."""
    (oldest,) = re.findall(r'"protobuf>=([\d.]+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    for proto in PROTOS:
        generated = ROOT / proto.with_name(f"{proto.stem}_pb2.py")
        assert VERSION.findall(generated.read_text(encoding="utf-8")) == [oldest]


# What tests fork in the place of starting it, and the journeys that start it.

PYTHON = [sys.executable, str(ROOT / "edgeconv") + ENTER, "policy.json"]
TASKS = [*PYTHON, "-m", "edgeconv.system.processes.tasks"]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ([*TASKS, "edgeconv.tf.convert:to_float", "dir"], "edgeconv.tf.convert:to_float"),
        ([*TASKS, "worker_tasks:sleep", "dir"], None),
        (
            [*PYTHON, "-m", "edgeconv.system.processes.persistent"],
            "edgeconv.system.processes.persistent",
        ),
        ([*PYTHON, str(ROOT / "edgeconv/runtimes/runner.py")], "runner.py"),
        ([*PYTHON, str(TESTS / "support/process_facts.py")], None),
        (["sh", "-c", "read", *TASKS, "edgeconv.a:b", "dir"], "edgeconv.a:b"),
        ([sys.executable, "-m", "edgeconv.system.processes.tasks", "edgeconv.a:b"], None),
    ],
)
def test_a_child_is_of_the_kind_of_its_program(command: list[str], kind: str | None) -> None:
    assert kind_of(command) == kind


def test_a_kind_that_no_journey_starts_is_not_forked() -> None:
    assert may_be_forked([*TASKS, "edgeconv.tf.convert:to_float", "dir"])
    assert may_be_forked([*TASKS, "worker_tasks:sleep", "dir"])
    assert not may_be_forked([*TASKS, "edgeconv.tf.convert:newly_written", "dir"])
    assert not may_be_forked([*PYTHON, str(ROOT / "edgeconv/runtimes/newly_written.py")])
    assert not may_be_forked(["npm", "install"])


@pytest.mark.parametrize("journey", sorted(set(JOURNEYS.values())))
def test_the_journey_of_a_kind_is_there(journey: str) -> None:
    module, _, test = journey.partition("::")
    tree = ast.parse((TESTS / "journeys" / module).read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert test.partition("[")[0] in functions


# What a landing runs of what takes minutes.

SLOW = {f"slow_{number}.py::test": 7.0 + 13 * number % 150 for number in range(130)}
LONG = {f"long-{number}": 5.0 + 29 * number % 100 for number in range(300)}
TOOK = {**SLOW, **LONG}


def test_as_many_landings_as_there_are_parts_run_every_slow_test_once() -> None:
    count = len(parts_of(units_of(SLOW, TOOK), TOOK))
    assert count > 5
    landings = [landing_of(number, SLOW, [], TOOK) for number in range(40, 40 + count)]
    ran = [test for landing in landings for test in landing.slow]
    assert sorted(ran) == sorted(SLOW)


def test_a_group_stays_together_in_a_long_file() -> None:
    took = {f"a.py::{n}": 90.0 for n in range(12)}
    groups = {"a.py::2": "whole", "a.py::7": "whole"}
    for number in range(3):
        landing = landing_of(number, took, [], took, groups)
        assert len(landing.slow & groups.keys()) in (0, 2)
        assert {landing.units[test] for test in landing.slow & groups.keys()} <= {"whole"}


def test_a_sample_fits_its_time_and_its_seed_gives_it_again() -> None:
    first, again, other = (sample_of(LONG, TOOK, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert SAMPLE_S * 0.8 < sum(LONG[test] for test in first) <= SAMPLE_S


def test_every_long_test_is_in_a_sample_at_some_time() -> None:
    drawn = frozenset().union(*(sample_of(LONG, TOOK, seed) for seed in range(600)))
    assert drawn == LONG.keys()


def test_a_sample_has_no_test_whose_time_is_not_known() -> None:
    landing = landing_of(5, [], ["new", *LONG], TOOK)
    assert "new" not in frozenset().union(*(sample_of(["new"], TOOK, n) for n in range(50)))
    assert landing.long <= LONG.keys()
    assert "seed 5; 1 are left out" in landing.about


@pytest.mark.parametrize("test", read_durations())
def test_what_was_timed_is_a_test(test: str) -> None:
    path, _, name = test.partition("::")
    text = (TESTS.parent / path).read_text(encoding="utf-8")
    assert f"def {name.partition('[')[0]}(" in text
