"""Hostile models under a command, in a world where each has something of its own to reach."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from corpus import place_aim, renew
from places import SUPPORT
from tiny_tflite import float_model, packed
from watch import Seen, watched
from witness import Witness

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Sequence

    from attacks import Aim
    from corpus import Case

_HARNESS = SUPPORT / "without_walls.py"
_TIMEOUT_S = 3000.0


_PROJECT = """
[budget]
max-size-bytes = 100000
[model.m]
source = "{model}"
[model.m.convert]
to = "float32"
out = "out"
[model.m.bench]
baseline = "{model}"
data = "x.npz"
[model.m.embed]
target = "cmake"
out = "out/app"
"""


class Job(NamedTuple):
    """One command; {model} in its words is the hostile model."""

    case: Case
    words: tuple[str, ...]


class Outcome(NamedTuple):
    """What came of one job: its exit code, and what it did outside, as far as it is its own."""

    case: Case
    code: int
    seconds: float
    done: tuple[Seen, ...]

    @property
    def works(self) -> bool:
        """Whether it did what it attempts."""
        return any(seen.kind == self.case.attempts for seen in self.done)


class World:
    """A home, a project and an outside, of which edgeconv may write its own scratch only."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._listening: list[socket.socket] = []
        self.aims: dict[str, Aim] = {}
        self._models: dict[str, str] = {}
        for name in ("home", "outside", "programs", "work", "tmp", "cache"):
            (root / name).mkdir(parents=True)

    def close(self) -> None:
        for server in self._listening:
            server.close()

    def words(self, job: Job) -> dict[str, object]:
        """A job as without_walls.py takes it, in a folder of its own."""
        case = job.case
        cwd = self.root / "work" / case.id
        if case.id not in self.aims:
            cwd.mkdir()
            self.aims[case.id] = place_aim(self.root, case, self._listening)
            model = case.write(cwd / "hostile", self.aims[case.id]).name
            (cwd / "fine.tflite").write_bytes(packed(float_model()))
            rows, labels = np.arange(32, dtype=np.float32).reshape(8, 4), np.arange(8) % 3
            np.savez(cwd / "x.npz", x=rows, labels=labels)
            (cwd / "edgeconv.toml").write_text(_PROJECT.format(model=model))
            self._models[case.id] = model
        words = [word.replace("{model}", self._models[case.id]) for word in job.words]
        return {"id": case.id, "cwd": str(cwd), "words": words}

    def run(
        self, jobs: Sequence[Job], *, scan: str, sandbox: str, forked: bool, name: str
    ) -> tuple[list[Outcome], list[Seen]]:
        """Run jobs in one process under the watch; what came of each, and what is nobody's."""
        asked = {"scan": scan, "forked": forked, "jobs": [self.words(job) for job in jobs]}
        for job in asked["jobs"]:
            job["words"] += ["--sandbox", sandbox] if sandbox else []
        place, answers = self.root / f"{name}.json", self.root / f"{name}-answers.json"
        place.write_text(json.dumps(asked))
        command = [sys.executable, str(_HARNESS), str(place), str(answers)]
        for job in jobs:
            renew(self.aims[job.case.id])
        witness = Witness((self.aims[job.case.id] for job in jobs), self._listening)
        code, all_seen = watched(
            command, self.root / f"{name}.log", cwd=self.root, environment=self._environment(),
            timeout_s=_TIMEOUT_S,
        )  # fmt: skip
        if all_seen:
            # The first that started is edgeconv itself, and no child.
            parent = all_seen[0].process
            all_seen = [s for s in all_seen if s.process != parent or not self._is_own(s, forked)]
        all_seen += witness.seen()
        assert code == 0, (self.root / f"{name}.log").read_text()[-3000:]
        given = {each["id"]: each for each in json.loads(answers.read_text())}
        done = self._outside(all_seen)
        own = {job.case.id: tuple(s for s in done if self._is_of(s, job.case)) for job in jobs}
        outcomes = [
            Outcome(job.case, given[job.case.id]["code"], given[job.case.id]["seconds"],
                    own[job.case.id])
            for job in jobs
        ]  # fmt: skip
        claimed = {seen for each in own.values() for seen in each}
        return outcomes, [seen for seen in done if seen not in claimed]

    def _is_own(self, seen: Seen, forked: bool) -> bool:
        """Whether edgeconv's own process does that by itself.

        It notes what it converted; what it imports for forks asks whether there is IPv6.
        """
        notes = str(self.root / "home" / ".local")
        return (seen.kind == "write" and seen.what.startswith(notes)) or (
            forked and seen.kind == "connect"
        )

    def _environment(self) -> dict[str, str]:
        own = {
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "tmp"),
            "EDGECONV_CACHE_DIR": str(self.root / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LD_LIBRARY_PATH")}
        return {**kept, **own}

    def _outside(self, all_seen: Iterable[Seen]) -> list[Seen]:
        """What was written, connected and started where edgeconv does not, and canaries read."""
        root = str(self.root)
        own = [f"{root}/{name}" for name in ("tmp", "cache")]
        # What Keras writes where it is imported, and semaphores of its imports.
        allowed = (*own, f"{root}/home/.keras", "/dev/shm/sem.")
        found = []
        for seen in dict.fromkeys(s._replace(process=0) for s in all_seen):
            is_out = f"{root}/work/" in seen.what and "/out" in seen.what.split("/work/")[1]
            if seen.kind == "read":
                is_done = f"{root}/home/canaries/" in seen.what
            elif seen.kind == "write":
                is_done = not (
                    is_out or seen.what.startswith(allowed) or seen.what.endswith("-answers.json")
                )
            elif seen.kind == "start":
                is_done = not _is_ours(seen.what)
            else:
                is_done = True
            if is_done:
                found.append(seen)
        return found

    def _is_of(self, seen: Seen, case: Case) -> bool:
        aim = self.aims[case.id]
        if seen.kind == "connect":
            return any(f"htons({port})" in seen.what for port in (aim.port, aim.port + 1))
        folders = (aim.canary.parent, aim.written.parent)
        return any(f"{folder}/" in f"{seen.what}/" for folder in folders) or str(
            aim.program
        ) in seen.what.split(" ")


def _is_ours(words: str) -> bool:
    """Whether this is a program that edgeconv starts: Python, the shell that ties it, `uname`."""
    name = Path(words.split(" ")[0]).name
    return name.startswith("python") or name == "uname" or "read -r _ && exec" in words
