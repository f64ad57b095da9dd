"""Commands killed, and told of a full or broken disk, at each of their calls that write.

After each kill every file under its name is whole, edgeconv's own readers take it for what it is
or refuse it, and the next run of the command gives what an undisturbed run gives, with nothing
left over. All calls of all scenes: `pytest -m slow tests/integration/test_faults.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from build_project import calibrate, write_project
from fault_injection import Fault, Run, require_tracing, traced
from tune_models import samples, two_layers

from edgeconv.embed.published import find_published
from edgeconv.embed.request import JOURNAL, RECORD
from edgeconv.errors import InputRefused
from edgeconv.gate import lock
from edgeconv.nouns import Embedded
from edgeconv.store import Cache, read_noun, sha256_file, sha256_tree

MOST = 200
KEY = re.compile("[0-9a-f]{64}")
CHECKED = """\
[model.net]
source = "model.tflite"
[convert]
to = ["float32", "int8"]
calibration = "calibration.npz"
[bench]
data = "test.npz?labels=labels"
rounds = 1
warmup = 1
warmup-seconds = 0.01
repeats = 2
seconds = 0.01
[budget]
max-accuracy-drop = 0.2
"""


def edgeconv(root: Path, *words: str, code: int = 0) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgeconv", *words],
        cwd=root / "project",
        env=environment(root),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr


def environment(root: Path) -> dict[str, str]:
    places = {
        "EDGECONV_CACHE_DIR": str(root / "cache"),
        "TMPDIR": str(root / "tmp"),
        "XDG_STATE_HOME": str(root / "state"),
    }
    return {**os.environ, **places, "PYTHONDONTWRITEBYTECODE": "1"}


def small_project(root: Path) -> None:
    write_project(root / "project")


def project_with_older_files(*words: str) -> Callable[[Path], None]:
    """What was made of other samples is there already."""

    def prepare(root: Path) -> None:
        small_project(root)
        edgeconv(root, *words)
        calibrate(root / "project" / "cal.npz", 2)

    return prepare


def checked_project(root: Path) -> None:
    project = root / "project"
    project.mkdir()
    model = two_layers(project / "model.tflite")
    samples(project / "test.npz", model, 60)
    samples(project / "calibration.npz", model, 24, labels=False, seed=3)
    (project / "edgeconv.toml").write_text(CHECKED, encoding="utf-8")


def accepted_project(root: Path) -> None:
    checked_project(root)
    edgeconv(root, "check", "--update")
    # A looser budget is another question, and fewer test samples are another answer.
    config = (root / "project" / "edgeconv.toml").read_text().replace("0.2", "0.9")
    (root / "project" / "edgeconv.toml").write_text(config)
    samples(root / "project" / "test.npz", root / "project" / "model.tflite", 50)


def old_cache(root: Path) -> None:
    """Three entries that nobody used for long."""
    small_project(root)
    edgeconv(root, "convert", "net.tflite", "--to", "float32,float16,int8", *CALIBRATED)
    for content in (root / "cache").glob("*/*/content"):
        os.utime(content, (1, 1))


def damaged_cache(root: Path) -> None:
    old_cache(root)
    (next((root / "cache").glob("artifact/*")) / "content" / "model.tflite").write_bytes(b"torn")


CALIBRATED = ("--calibration", "cal.npz")
CONVERT = ("convert", "net.tflite", "--to", "float32,int8", *CALIBRATED)
EMBED = ("embed", "net.tflites/net.int8.tflite", "--target", "c", "-o", "app")


TUNE = ("tune", "model.tflite", "--max-drop", "0.9", "--samples", "40")


EXPORT = """\
import tf_keras
tf_keras.utils.set_random_seed(1)
x = tf_keras.layers.Input((4,), name="x")
tf_keras.Model(x, tf_keras.layers.Dense(3, name="y")(x)).export("saved")
"""


def exported_project(root: Path) -> None:
    small_project(root)
    command = [sys.executable, "-c", EXPORT]
    subprocess.run(command, cwd=root / "project", capture_output=True, check=True)


def embedded_project(root: Path) -> None:
    project_with_older_files(*CONVERT)(root)
    edgeconv(root, *EMBED)
    edgeconv(root, *CONVERT)


def published_project(root: Path) -> None:
    small_project(root)
    edgeconv(root, *CONVERT)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A command in a project; `again` is run after a kill, where it is not the command itself.

    `tells` are files that say what a run did, which is less after one that was killed.
    """

    prepare: Callable[[Path], None]
    command: tuple[str, ...]
    places: tuple[str, ...] = ("project", "cache", "state")
    again: tuple[str, ...] = ()
    tells: tuple[str, ...] = ()


SCENES = {
    "convert": Scene(prepare=small_project, command=CONVERT),
    "convert, older files": Scene(prepare=project_with_older_files(*CONVERT), command=CONVERT),
    "convert, files on the way": Scene(prepare=small_project, command=CONVERT, places=("tmp",)),
    "convert, with TensorFlow": Scene(
        prepare=exported_project, command=("convert", "saved", *CONVERT[2:])
    ),
    "build": Scene(prepare=small_project, command=("build", "--depfile", "net.d")),
    "build, older files": Scene(
        prepare=project_with_older_files("build", "--depfile", "net.d"),
        command=("build", "--depfile", "net.d"),
    ),
    "build, files on the way": Scene(prepare=small_project, command=("build",), places=("tmp",)),
    "check --update": Scene(prepare=checked_project, command=("check", "--update")),
    "check --update, older lock": Scene(
        prepare=accepted_project,
        command=("check", "--update", "--output", "junit=junit.xml"),
        tells=("junit.xml",),
    ),
    "check, files on the way": Scene(
        prepare=checked_project, command=("check", "--update"), places=("tmp",)
    ),
    "embed": Scene(prepare=embedded_project, command=EMBED),
    "cache prune": Scene(prepare=old_cache, command=("cache", "prune", "--max-size", "0")),
    "cache clear": Scene(prepare=old_cache, command=("cache", "clear")),
    "damaged entry": Scene(
        prepare=damaged_cache,
        command=("convert", "net.tflite", "--to", "float32,float16,int8", *CALIBRATED, "-o", "b"),
    ),
    "init": Scene(
        prepare=small_project,
        command=("init", "net.tflite", "-o", "new.toml"),
        again=("config", "show", "--config", "new.toml"),
    ),
    "bench": Scene(
        prepare=published_project,
        command=("bench", "net.tflites", "--data", "npz:cal.npz", "-o", "report"),
    ),
    "tune": Scene(
        prepare=checked_project,
        command=(*TUNE, "--data", "npz:test.npz?labels=labels"),
    ),
}


@dataclass
class Stage:
    """A scene that was played twice undisturbed: what was there before, and what after."""

    scene: Scene
    root: Path
    calls: list[str]
    before: dict[str, bytes]
    after: dict[str, bytes]
    entries: set[str]
    volatile: set[str] = field(default_factory=set)
    damaged: set[str] = field(default_factory=set)

    @property
    def kept(self) -> Path:
        return self.root.with_name(f"{self.root.name}-before")

    def set_up(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.kept, self.root, symlinks=True)

    def run(self, at: int, error: int = 0, *, in_children: bool = False) -> Run:
        # What the command's children make is on the way.
        places = ("tmp",) if in_children else self.scene.places
        watched = [self.root / place for place in places]
        return traced(
            [sys.executable, "-m", "edgeconv", *self.scene.command],
            cwd=self.root / "project",
            environment=environment(self.root),
            fault=Fault(watched, at, error, in_children),
        )


def contents(project: Path) -> dict[str, bytes]:
    """All files but those that stand for nothing: locks, and what is not finished."""
    return {
        str(path.relative_to(project)): path.read_bytes()
        for path in sorted(project.rglob("*"))
        if path.is_file() and not is_passing(path) and not path.name.endswith(".lock")
    } | {name: (project / name).read_bytes() for name in LOCKS if (project / name).is_file()}


LOCKS = ("edgeconv.lock",)
PASSING = re.compile(r"\.edgeconv-(new-.*|embedding\.json)|\..*\.tuning")


def is_passing(path: Path) -> bool:
    """Whether it or a folder of it has a name of what is being made, which nobody reads."""
    return any(PASSING.fullmatch(part) for part in path.parts)


def entries(cache: Path) -> dict[str, Path]:
    return {f"{p.parent.name}/{p.name}": p for p in cache.glob("*/*") if KEY.fullmatch(p.name)}


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Stage]:
    require_tracing(tmp_path_factory.mktemp("tracing"))
    stages: dict[str, Stage] = {}

    def stage(name: str) -> Stage:
        if name not in stages:
            stages[name] = played(SCENES[name], tmp_path_factory.mktemp("scene") / "root")
        return stages[name]

    return stage


def played(scene: Scene, root: Path) -> Stage:
    (root / "tmp").mkdir(parents=True)
    scene.prepare(root)
    stage = Stage(scene, root, [], contents(root / "project"), {}, set())
    stage.damaged = {n for n, entry in entries(root / "cache").items() if not is_whole(entry)}
    shutil.copytree(root, stage.kept, symlinks=True)
    for _ in range(2):
        stage.set_up()
        done = stage.run(at=0)
        assert done.code == 0, done.said
        if scene.again:
            edgeconv(root, *scene.again)
        after = contents(root / "project")
        if stage.after:
            assert after.keys() == stage.after.keys()
            stage.volatile = {name for name in after if after[name] != stage.after[name]}
        stage.volatile |= {*scene.tells}
        stage.after, stage.calls = after, done.calls
        stage.entries = set(entries(root / "cache"))
        assert_no_rest(root)
    return stage


def assert_no_rest(root: Path) -> None:
    """Nothing unfinished is left, in any place."""
    unfinished = [str(path.relative_to(root)) for path in root.rglob("*") if is_passing(path)]
    assert unfinished == []
    # Python tries out a temporary directory with a file of a random name and this content.
    left = [p for p in (root / "tmp").iterdir() if p.is_dir() or p.read_bytes() != b"blat"]
    assert left == []


def assert_no_process(root: Path) -> None:
    """The children of what was killed are gone, or go within a second."""
    own = ("EDGECONV_CACHE_DIR", str(root / "cache"))
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        alive = []
        for process in psutil.process_iter(["environ", "status"]):
            is_dead = process.info["status"] == psutil.STATUS_ZOMBIE
            if not is_dead and own in (process.info["environ"] or {}).items():
                alive.append(process)
        if not alive:
            return
        time.sleep(0.05)
    raise AssertionError(f"still there: {alive}")


def assert_whole(stage: Stage) -> None:
    """What anybody who reads now would find is as before, or as after."""
    project = stage.root / "project"
    for name, content in contents(project).items():
        known = (stage.before.get(name), stage.after.get(name))
        if name in stage.volatile:
            assert content in known or is_read(project / name), name
        else:
            assert content in known, f"{name}: {len(content)} bytes"
    for name in stage.before.keys() & stage.after.keys():
        assert (project / name).is_file(), f"{name} was taken away"
    for name, entry in entries(stage.root / "cache").items():
        if entry.is_dir() and name not in stage.damaged:
            assert is_whole(entry), name
    assert_read(project)


def is_whole(entry: Path) -> bool:
    return sealed_tree(entry) == sha256_tree(entry / "content")


def sealed_tree(entry: Path) -> str:
    """The hash that stands before the seal."""
    return (entry / "seal").read_text()[:64]


def is_read(path: Path) -> bool:
    if path.suffix == ".json":
        msgspec.json.decode(path.read_bytes())
    return path.stat().st_size > 0


def assert_read(project: Path) -> None:
    """edgeconv's own readers take each file for what it is, or refuse it."""
    for path in (project / "edgeconv.lock",):
        if path.exists():
            assert lock.read(path).models
    for model in project.glob("*.tflites/*.tflite"):
        found = None
        with contextlib.suppress(InputRefused):
            found = find_published(model)
        if found:
            assert not found.notes, "a file of ours was taken for one of somebody"
            assert found.artifact.sha256 == sha256_file(model)
    for record in project.rglob(RECORD):
        embedded = read_noun(record, Embedded, what="record")
        if not (record.parent / JOURNAL).exists():
            for file in embedded.files:
                assert sha256_file(record.parent / file.path) == file.sha256


def assert_repaired(stage: Stage, *, finished: bool = False) -> None:
    """The next run gives what an undisturbed one gives, and clears up."""
    scene = stage.scene
    made = stage.root / "project" / "new.toml"
    # `init` writes nothing over what it had written already, and clears up all the same.
    code = 3 if scene.again and made.exists() else 0
    edgeconv(stage.root, *scene.command, code=code)
    if scene.again:
        edgeconv(stage.root, *scene.again)
    now = contents(stage.root / "project")
    assert now.keys() == stage.after.keys()
    changed = {name for name in now if now[name] != stage.after[name]} - stage.volatile
    assert not changed, str(changed)
    found = entries(stage.root / "cache")
    # A lock that was accepted is held against another one by the next run, which keeps that too.
    assert set(found) >= stage.entries if scene.tells else set(found) == stage.entries
    assert all(map(is_whole, found.values()))
    # A run that finds everything done has no use for temporary files, and looks for none.
    python = "from edgeconv.store import scratch_directory as s\nwith s(): pass"
    command = [sys.executable, "-c", python]
    subprocess.run(command, env=environment(stage.root), check=True)
    assert_no_rest(stage.root)


def kill_and_repair(stage: Stage, number: int) -> str:
    stage.set_up()
    run = stage.run(at=number)
    assert run.was_killed, (run.code, run.said)
    assert len(run.calls) == number
    assert_no_process(stage.root)
    assert_whole(stage)
    assert_repaired(stage)
    return run.calls[-1]


def every(step: int, stage: Stage, first: int = 1) -> range:
    return range(first, min(len(stage.calls), MOST) + 1, step)


# `build` converts as `convert` does. What is left of a minute is for the other tests of faults.
SAMPLED = [
    ("build, older files", 50),
    ("check --update, older lock", 40),
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


@pytest.mark.slow
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


def kill_child_and_repair(stage: Stage, number: int) -> str:
    """The child that makes a call is killed, and not the command."""
    stage.set_up()
    run = stage.run(at=number, in_children=True)
    assert len(run.calls) >= number
    assert run.code == 4, (run.code, run.said)
    assert "error: " in run.said
    assert "Traceback" not in run.said.partition("error: ")[2], run.said
    assert_no_process(stage.root)
    assert_whole(stage)
    assert_repaired(stage)
    return run.calls[-1]


IN_CHILDREN = ("build, older files", "convert", "check --update")


def test_a_child_killed_at_one_of_its_writing_calls_is_a_typed_error(staged):
    kill_child_and_repair(staged(IN_CHILDREN[0]), 25)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_CHILDREN)
def test_a_child_killed_at_each_of_its_first_200_writing_calls_is_too(name, staged):
    stage = staged(name)
    stage.set_up()
    count = len(stage.run(at=0, in_children=True).calls)
    wrong = {}
    for number in range(1, min(count, MOST) + 1):
        try:
            call = kill_child_and_repair(stage, number)
        except AssertionError as error:
            wrong[number] = str(error)
    assert wrong == {}, call
    print(f"{name}: {count} calls that write in children")


def fail_and_repair(stage: Stage, number: int, code: int) -> None:
    stage.set_up()
    run = stage.run(at=number, error=code)
    assert len(run.calls) >= number, "it ended before"
    assert run.code in (0, 3, 4), run.said
    assert "Traceback" not in run.said
    if run.code:
        assert "error: " in run.said
        assert os.strerror(code) in run.said or "next: " in run.said, run.said
    assert_no_process(stage.root)
    assert_whole(stage)
    assert_repaired(stage)


ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}


@pytest.mark.parametrize(("error", "first"), [("ENOSPC", 20), ("EIO", 90)])
def test_a_full_or_broken_disk_at_one_of_its_writing_calls_is_a_typed_error(error, first, staged):
    fail_and_repair(staged("build, older files"), first, ERRORS[error])


@pytest.mark.slow
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


EVERY = [15, pytest.param(1, marks=pytest.mark.slow)]


@pytest.mark.parametrize("step", EVERY)
def test_who_reads_while_two_evict_and_one_is_killed_finds_whole_entries_or_none(step, staged):
    stage = staged("cache clear")
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
@pytest.mark.parametrize("step", [100, pytest.param(1, marks=pytest.mark.slow)])
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
