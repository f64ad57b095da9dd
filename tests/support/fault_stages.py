"""A scene as it is played: undisturbed, then with a fault, and what must hold after one."""

import contextlib
import errno
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil
from fault_injection import Fault, Run, traced
from fault_scenes import Scene, edgeconv, environment
from landing import IN_A_LANDING, LANDING_VARIABLE

from edgeconv.embedding.plan import JOURNAL, RECORD, find_published
from edgeconv.requests.config import lock
from edgeconv.system.store import read_noun, sha256_file, sha256_tree
from edgeconv.types import Embedded
from edgeconv.types.errors import InputRefused

MOST = 200
KEY = re.compile("[0-9a-f]{64}")
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}


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
    trials = (b"", b"blat")
    left = [p for p in (root / "tmp").iterdir() if p.is_dir() or p.read_bytes() not in trials]
    assert left == []


def assert_no_process(root: Path) -> None:
    """The children of what was killed are gone, or go soon."""
    own = ("EDGECONV_CACHE_DIR", str(root / "cache"))
    deadline = time.monotonic() + 120
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


def assert_repaired(stage: Stage) -> None:
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
    more = set(found) - stage.entries
    assert set(found) >= stage.entries
    assert not more or any(name in stage.after for name in LOCKS), more
    assert all(map(is_whole, found.values()))
    # A run that finds everything done needs no temporary files and no key, and looks for none.
    python = (
        "from edgeconv.system.store import scratch_directory as s, seal\nseal('')\nwith s(): pass"
    )
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


def every(step: int, stage: Stage, first: int = 1) -> Sequence[int]:
    """The numbers of the calls that a test is about; in a landing, some of them, by its number."""
    return sampled(range(first, min(len(stage.calls), MOST) + 1, step))


def sampled(numbers: Sequence[int]) -> Sequence[int]:
    """All, or what a landing has time for of them."""
    landing = os.environ.get(LANDING_VARIABLE)
    if landing is None or len(numbers) <= IN_A_LANDING:
        return numbers
    return sorted(random.Random(int(landing)).sample(numbers, IN_A_LANDING))
