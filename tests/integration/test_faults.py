"""Commands killed, and told of a full or broken disk, at each of their calls that write.

After each kill every file under its name is whole, edgeconv's own readers take it for what it is
or refuse it, and the next run of the command gives what an undisturbed run gives, with nothing
left over. All calls of all scenes: `pytest -m long tests/integration/test_faults.py`.
"""

import contextlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_injection import Fault, Run, require_tracing, traced
from fault_scenes import SCENES, environment, small_project
from fault_stages import (
    ERRORS,
    MOST,
    Stage,
    assert_repaired,
    contents,
    entries,
    every,
    fail_and_repair,
    kill_and_repair,
    kill_child_and_repair,
    played,
    sampled,
    sealed_tree,
)

from edgeconv.system.store import Cache, sha256_tree


@pytest.fixture(scope="module")
def staged(tmp_path_factory) -> Callable[[str], Stage]:
    require_tracing(tmp_path_factory.mktemp("tracing"))
    stages: dict[str, Stage] = {}

    def stage(name: str) -> Stage:
        if name not in stages:
            stages[name] = played(SCENES[name], tmp_path_factory.mktemp("scene") / "root")
        return stages[name]

    return stage


# `build` converts as `convert` does. What is left of a minute is for the other tests of faults.
SAMPLED = [
    pytest.param("build, older files", 100, marks=pytest.mark.slow),
    pytest.param("check --update, older lock", 80, marks=pytest.mark.slow),
    ("cache prune", 6),
    ("init", 3),
]


@pytest.mark.parametrize(("name", "step"), SAMPLED)
def test_killed_at_some_of_its_writing_calls_it_leaves_whole_files_and_the_next_run_repairs(
    name, step, staged
):
    stage = staged(name)
    for number in every(step, stage, first=step):
        kill_and_repair(stage, number)


@pytest.mark.long
@pytest.mark.parametrize("name", SCENES)
def test_killed_at_each_of_its_first_200_writing_calls_it_does_too(name, staged):
    stage = staged(name)
    wrong = {}
    for number in every(1, stage):
        try:
            kill_and_repair(stage, number)
        except AssertionError as error:
            wrong[number, stage.calls[number - 1]] = str(error)
    assert wrong == {}
    print(f"{name}: {len(stage.calls)} calls that write, killed at {len(every(1, stage))}")


IN_CHILDREN = ("build, older files", "convert", "check --update")


@pytest.mark.slow
def test_a_child_killed_at_one_of_its_writing_calls_is_a_typed_error(staged):
    kill_child_and_repair(staged(IN_CHILDREN[0]), 25)


@pytest.mark.long
@pytest.mark.parametrize("name", IN_CHILDREN)
def test_a_child_killed_at_each_of_its_first_200_writing_calls_is_too(name, staged):
    stage = staged(name)
    stage.set_up()
    count = len(stage.run(at=0, in_children=True).calls)
    wrong = {}
    for number in sampled(range(1, min(count, MOST) + 1)):
        try:
            call = kill_child_and_repair(stage, number)
        except AssertionError as error:
            wrong[number] = str(error)
    assert wrong == {}, call
    print(f"{name}: {count} calls that write in children")


@pytest.mark.slow
@pytest.mark.parametrize(("error", "first"), [("ENOSPC", 20), ("EIO", 90)])
def test_a_full_or_broken_disk_at_one_of_its_writing_calls_is_a_typed_error(error, first, staged):
    fail_and_repair(staged("build, older files"), first, ERRORS[error])


@pytest.mark.long
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", SCENES)
def test_a_full_or_broken_disk_at_each_of_them_is_too(name, error, staged):
    stage = staged(name)
    wrong = {}
    for number in every(1, stage):
        try:
            fail_and_repair(stage, number, ERRORS[error])
        except AssertionError as caught:
            wrong[number, stage.calls[number - 1]] = str(caught)
    assert wrong == {}


EVERY = [15, pytest.param(1, marks=pytest.mark.long)]


@pytest.mark.parametrize("step", EVERY)
def test_who_reads_while_two_evict_and_one_is_killed_finds_whole_entries_or_none(step, staged):
    stage = staged("cache prune")
    keys = [tuple(name.split("/")) for name in entries(stage.kept / "cache")]
    assert len(keys) == 3
    seals = {key: sealed_tree(stage.kept / "cache" / n / key) for n, key in keys}
    for number in every(step, stage):
        stage.set_up()
        cache, torn, done = Cache(stage.root / "cache"), [], threading.Event()

        def read(cache: Cache = cache, torn: list[str] = torn, done: Any = done) -> None:
            while not done.is_set():
                for name, key in keys:
                    found = cache.find(name, key)
                    with contextlib.suppress(FileNotFoundError):
                        if found and hashed(found) != seals[key]:
                            torn.append(key)

        reader = threading.Thread(target=read)
        reader.start()
        other = subprocess.Popen(
            [sys.executable, "-m", "edgeconv", "cache", "prune", "--max-size", "0"],
            env=environment(stage.root),
            stdout=subprocess.DEVNULL,
        )
        run = stage.run(at=number)
        assert other.wait() == 0
        done.set()
        reader.join()
        # It has less to do where the other was first.
        assert run.was_killed or run.code == 0, run.said
        assert torn == []
        assert_repaired(stage)


def hashed(directory: Path) -> str:
    """The hash of what is read there; raises FileNotFoundError where it goes meanwhile."""
    before = sorted(directory.iterdir())
    sha256 = sha256_tree(directory)
    if sorted(directory.iterdir()) != before:
        raise FileNotFoundError(directory)
    return sha256


NINJA = """\
rule edgeconv
  command = $python -m edgeconv build --depfile $out.d --depfile-target $out && touch $out
  depfile = $out.d
  deps = gcc
build model.stamp: edgeconv
"""


@pytest.mark.skipif(not shutil.which("ninja"), reason="ninja is not installed")
@pytest.mark.parametrize(
    "step", [pytest.param(150, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)]
)
def test_a_build_killed_under_ninja_is_done_by_the_next_one(step, tmp_path):
    require_tracing(tmp_path)
    root = tmp_path / "root"
    project = root / "project"

    def ninja(at: int) -> Run:
        watched = [project, root / "cache"]
        fault = Fault(watched, at, in_children=True)
        return traced(["ninja"], cwd=project, environment=environment(root), fault=fault)

    def prepare() -> None:
        shutil.rmtree(root, ignore_errors=True)
        (root / "tmp").mkdir(parents=True)
        small_project(root)
        (project / "build.ninja").write_text(NINJA.replace("$python", sys.executable))

    def outputs() -> dict[str, bytes]:
        return {n: c for n, c in contents(project).items() if not n.startswith(".ninja")}

    prepare()
    done = ninja(at=0)
    assert done.code == 0, done.said
    expected = outputs()
    for number in range(step, min(len(done.calls), MOST) + 1, step):
        prepare()
        assert ninja(at=number).code not in (0, None), number
        again = ninja(at=0)
        assert again.code == 0, again.said
        assert outputs() == expected
        assert "no work to do" in ninja(at=0).said
