"""Hostile models, watched: the sandbox alone stops them, and so does the scan alone.

The scan is switched off in a process of the test (without_walls.py); edgeconv has no switch for it.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from corpus import CASES, Case, place_aim, renew
from golden_files import assert_golden
from places import SUPPORT, TESTS
from test_corpus import is_refused
from tiny_tflite import float_model, packed
from watch import Seen, watched
from witness import Witness

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from attacks import Aim


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


_TITLES = {
    "operator": "SavedModel, an operator that its signature runs",
    "place": "SavedModel, an operator elsewhere: functions, loops over data, initializers, savers",
    "keras-2 Lambda": ".keras of Keras 2, a Lambda layer of a function of any module",
    "TFOpLambda h5": ".h5, a function of TensorFlow called with constants",
    "TFOpLambda keras": ".keras of Keras 2, a function of TensorFlow called with constants",
    "keras-2 layer h5": ".h5, operators, class methods, bytecode",
    "keras-2 layer keras": ".keras of Keras 2, operators, class methods, bytecode",
    "keras-3": ".keras of Keras 3, what it names",
    "vocabulary h5": ".h5, a vocabulary that is a path",
    "vocabulary keras-2": ".keras of Keras 2, a vocabulary that is a path",
    "vocabulary keras-3": ".keras of Keras 3, a vocabulary that is a path",
    "HDF5 h5": ".h5, weights in other files",
    "HDF5 keras-2": ".keras of Keras 2, weights in other files",
    "HDF5 keras-3": ".keras of Keras 3, weights in other files",
    "files": "SavedModel, assets and links that lead out",
    "archive": ".keras, entries that lead out",
    "tflite": ".tflite, operators of TensorFlow",
    "reading": "Parts that occur twice, hidden files, nested objects: read one way or another",
    "bomb": "Small files that stand for huge ones",
}
_HEAD = """# Hostile models

`corpus.py` writes them, none is stored. Each reads a file of its own in the home of whoever runs
edgeconv, writes beside the project, connects, or starts a program. The scan refuses it, or what is
loaded is a copy without the attack (`test_corpus.py`). `test_watched.py` watches with strace what
`edgeconv convert` and `edgeconv doctor` do with all, and every other command that takes a model
with some: with neither wall, with the scan alone, and with the sandbox alone. For that, the scan is
taken away in a process of the test.

This page is written by that test (`EDGECONV_WRITE_GOLDEN=1 pytest -m slow tests/hostile`).

| family | models | refused by the scan | do it without walls | past the scan | past the sandbox |
|---|---|---|---|---|---|
"""
_IDLE = """
What TensorFlow and Keras do not do by themselves is in the corpus all the same, since another
version may:

| model | why nothing comes of it |
|---|---|
"""


class Row(NamedTuple):
    """How many models of a family did what they try: without walls, and with one of them."""

    cases: int
    refused: int
    works: int
    passes: int
    escapes: int


def table(
    cases: Sequence[Case],
    refused: frozenset[str],
    works: frozenset[str],
    passes: frozenset[str],
    escapes: frozenset[str],
) -> str:
    """The page; the sets have the `id`s of cases."""
    rows: dict[str, Row] = {}
    for case in cases:
        row = rows.get(case.family, Row(0, 0, 0, 0, 0))
        seen = (case.id in ids for ids in (refused, works, passes, escapes))
        rows[case.family] = Row(row.cases + 1, *(a + b for a, b in zip(row[1:], seen, strict=True)))
    rows["all"] = Row(*map(sum, zip(*rows.values(), strict=True)))
    lines = [
        f"| {_TITLES.get(name, name)} | {' | '.join(map(str, row))} |" for name, row in rows.items()
    ]
    return _HEAD + "\n".join(lines) + "\n" + _IDLE + "\n".join(_idle(cases)) + "\n"


def _idle(cases: Sequence[Case]) -> list[str]:
    names: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        if case.idle and case.family != "bomb":
            names.setdefault((case.family, case.idle), []).append(case.name)
    return [f"| {family}: {', '.join(listed)} | {why} |" for (family, why), listed in names.items()]


def counted(page: str) -> Mapping[str, int]:
    """How many models a page says there are, by family."""
    titles = {title: name for name, title in _TITLES.items()}
    cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {titles[row[0]]: int(row[1]) for row in cells if row[0] in titles}


_SHORT = ("--timeout-s", "60")
_QAT = ("--training", "x.npz", "--qat-epochs", "1", "--qat-target", "model")
_BENCH = ("--rounds", "1", "--repeats", "2", "--seconds", "0.1", "--warmup-seconds", "0")

COMMANDS: dict[str, tuple[str, ...]] = {
    "convert": ("convert", "{model}", "--to", "float32", "-o", "out", *_SHORT),
    "qat": (
        "convert",
        "{model}",
        "--to",
        "qat",
        "--calibration",
        "x.npz",
        *_QAT,
        "-o",
        "out",
        *_SHORT,
    ),
    "doctor": ("doctor", "{model}", "x.npz", *_SHORT),
    "bench": ("bench", "fine.tflite", "--baseline", "{model}", "--data", "x.npz", *_BENCH, *_SHORT),
    "debug": ("debug", "{model}", "--to", "int8", "--calibration", "x.npz", *_SHORT),
    "tune": ("tune", "{model}", "--data", "x.npz", "--max-drop", "0.1", "-o", "out", *_SHORT),
    "check": ("check", *_SHORT),
    "build": ("build", *_SHORT),
    "inspect": ("inspect", "{model}"),
    "init": ("init", "{model}", "-o", "out/edgeconv.toml"),
    "scan": ("scan", "{model}"),
    "verify": ("verify", ".", "--source", "{model}"),
}
# They start nothing that could be confined otherwise than it is.
WITHOUT_SANDBOX_OPTION = ("inspect", "init", "scan", "verify")


README = TESTS / "hostile" / "README.md"
# The two commands that between them load and run all that there is: one has TensorFlow's converter
# read the model, the other its Python loader, and calls the signature.
_BOTH = ("convert", "doctor")
# One of each way that a model reaches something.
_EACH_WAY = (
    *(
        "operator-ReadFile",
        "operator-ImmutableConst",
        "operator-CacheDataset",
        "operator-RpcClient",
    ),
    *("place-WriteFile_initializer", "place-WriteFile_restore", "place-ReadFile_destructor"),
    *("keras-2_Lambda-os.system", "keras-2_Lambda-os.remove", "TFOpLambda_h5-io.gfile.copy"),
    *("vocabulary_h5-StringLookup", "HDF5_h5-external_storage", "files-asset_above_the_model"),
    # These two are copied without their attack.
    "reading-saver_function_for_another_device",
    "reading-keras_compiled_in_value_of_an_initializer",
)
# One of each loader: what is in the way is the same under all commands.
_UNDER_EACH_COMMAND = ("place-WriteFile_restore", "TFOpLambda_keras-keras.utils.get_file")


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def run(
    world: World,
    names: tuple[str, ...] | None,
    command: str,
    *,
    sandbox: str,
    forked: bool = True,
    scan: str = "off",
) -> tuple[list[Outcome], list[Seen]]:
    words = COMMANDS[command]
    cases = [each for each in CASES if names is None or each.id in names]
    assert names is None or len(cases) == len(names)
    # Bombs touch nothing, and what they take is for test_corpus.py.
    # Some wait for a server that never answers.
    words = (*words, "--timeout-s", "10") if forked else words
    jobs = [Job(each, words) for each in cases if each.family != "bomb"]
    sandbox = "" if command in WITHOUT_SANDBOX_OPTION else sandbox
    return world.run(jobs, scan=scan, sandbox=sandbox, forked=forked, name=command)


def test_nothing_gets_out_of_the_sandbox_when_the_scan_is_off(world):
    for command in _BOTH:
        outcomes, others = run(world, _EACH_WAY, command, sandbox="required")
        assert {each.case.id: each.done for each in outcomes if each.done} == {}
        assert others == []
        assert all(each.code in (0, 1, 3, 4) for each in outcomes)


@pytest.mark.slow
def test_the_watch_sees_what_the_same_models_do_without_walls(world):
    """Else the test above would hold for the wrong reason."""
    done = [each for c in _BOTH for each in run(world, _EACH_WAY, c, sandbox="off")[0]]
    assert {each.case.id for each in done if each.works} == set(_EACH_WAY)


def test_children_that_are_started_as_always_are_held_likewise(world):
    """Without the fork: this is what users run."""
    outcomes, others = run(
        world, _UNDER_EACH_COMMAND[:1], "convert", sandbox="required", forked=False
    )
    assert [each.done for each in outcomes] == [()]
    assert others == []


def test_nothing_gets_past_the_scan_where_there_is_no_sandbox(world):
    outcomes, others = run(world, _EACH_WAY, "convert", scan="on", sandbox="off")
    assert {each.case.id: each.done for each in outcomes if each.done} == {}
    assert others == []
    assert {each.code for each in outcomes if each.case.is_refused} == {3}


# Minutes each: every model is a command of its own, started under strace.
@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_lets_one_out(command, world):
    outcomes, others = run(world, _UNDER_EACH_COMMAND, command, sandbox="required", forked=False)
    assert {each.case.id: each.done for each in outcomes if each.done} == {}
    assert others == []


class Corpus(NamedTuple):
    """What all models did, by their ids: without walls, with the scan and the sandbox alone."""

    works: frozenset[str]
    passes: dict[str, tuple[Seen, ...]]
    escapes: dict[str, tuple[Seen, ...]]
    others: list[Seen]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Corpus:
    """The whole corpus under two commands, with one wall or none.

    It takes a quarter of an hour, since each of hundreds of models is a command under strace.
    """
    works, unclaimed = set[str](), list[Seen]()
    done: dict[str, dict[str, tuple[Seen, ...]]] = {"scan": {}, "sandbox": {}}
    for wall in ("none", *done):
        scan = "on" if wall == "scan" else "off"
        sandbox = "required" if wall == "sandbox" else "off"
        world = World(tmp_path_factory.mktemp(wall))
        for command in _BOTH:
            outcomes, others = run(world, None, command, scan=scan, sandbox=sandbox)
            if wall == "none":
                works |= {each.case.id for each in outcomes if each.works}
            else:
                done[wall] |= {each.case.id: each.done for each in outcomes if each.done}
                unclaimed += others
        world.close()
    return Corpus(frozenset(works), done["scan"], done["sandbox"], unclaimed)


@pytest.mark.slow
@pytest.mark.xdist_group("whole corpus")
def test_nothing_of_the_whole_corpus_gets_past_one_wall(whole):
    assert whole.passes == {}
    assert whole.escapes == {}
    assert whole.others == []


@pytest.mark.slow
@pytest.mark.xdist_group("whole corpus")
def test_every_attack_of_the_corpus_works_where_nothing_stands_in_its_way(whole):
    """But for those that are marked with why TensorFlow or Keras does not do it."""
    assert {c.id for c in CASES if (c.id in whole.works) == bool(c.idle)} == set()


@pytest.mark.slow
@pytest.mark.xdist_group("whole corpus")
def test_the_page_of_this_folder_is_what_was_seen(whole, tmp_path):
    refused = {case.id for case in CASES if is_refused(written(case, tmp_path / case.id), tmp_path)}
    seen = (frozenset(refused), whole.works, frozenset(whole.passes), frozenset(whole.escapes))
    page = table(CASES, *seen)
    assert_golden(str(README), page)


def written(case: Case, place: Path) -> Path:
    listening: list[socket.socket] = []
    model = case.write(place / "model", place_aim(place, case, listening))
    for server in listening:
        server.close()
    return model


def test_the_page_of_this_folder_is_of_this_corpus():
    assert counted(README.read_text()) == Counter(case.family for case in CASES)
