"""`edgeconv build` as processes: many at once, killed, in several checkouts, watched.

The two slow ones take two to three minutes each: a round is nine builds, and a kill is followed by
two, of a second each. Where a build is killed is drawn, so that a few kills meet few of its steps.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from build_project import OFFLINE_CONFIG as CONFIG
from build_project import calibrate
from build_project import write_offline_project as write_project
from commands import captured
from embed_models import tree
from forking import edgeconv_command


def environment(cache: Path, **variables: str) -> dict[str, str]:
    return {**os.environ, "EDGECONV_CACHE_DIR": str(cache), **variables}


def start(project: Path, cache: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*edgeconv_command(), "build", *arguments],
        cwd=project,
        env=environment(cache, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    """What a build printed, once it has ended well."""
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return said


def build(project: Path, cache: Path, *arguments: str, **variables: str) -> str:
    return end(start(project, cache, *arguments, **variables))


def published(project: Path) -> dict[str, bytes]:
    """All that a build writes, whole or in part, but the manifest, which has times of its own."""
    files = tree(project / "net.tflites") | tree(project / "app")
    return {name: content for name, content in files.items() if name != "net.int8.json"}


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[int, dict[str, bytes]]:
    """What is made of the samples of two seeds."""
    root = tmp_path_factory.mktemp("expected")
    project = write_project(root / "project")
    found = {}
    for seed in (1, 2):
        calibrate(project / "cal.npz", seed)
        build(project, root / "cache")
        found[seed] = published(project)
    assert found[1].keys() == found[2].keys()
    assert found[1]["net.int8.tflite"] != found[2]["net.int8.tflite"]
    return found


@pytest.mark.slow
def test_eight_builds_of_one_tree_at_once_make_it_once(tmp_path, expected):
    for number in range(6):
        project = write_project(tmp_path / str(number))
        cache = tmp_path / f"cache-{number}"
        said = [end(one) for one in [start(project, cache) for _ in range(8)]]
        assert sum(one.startswith("built net") for one in said) == 1
        assert published(project) == expected[1]
        assert build(project, cache) == ""


@pytest.mark.slow
def test_eight_builds_without_a_place_for_locks_publish_whole_files(tmp_path, expected):
    project = write_project(tmp_path / "project")
    (tmp_path / "file").write_bytes(b"")
    cache = tmp_path / "file" / "cache"
    for one in [start(project, cache, "--no-cache") for _ in range(8)]:
        end(one)
    assert published(project) == expected[1]


@pytest.mark.slow
def test_builds_of_checkouts_that_share_a_cache_at_once(tmp_path, expected):
    projects = [write_project(tmp_path / str(number)) for number in range(4)]
    for one in [start(project, tmp_path / "cache") for project in projects]:
        end(one)
    assert [published(project) == expected[1] for project in projects] == [True] * 4


@pytest.mark.slow
def test_two_checkouts_with_nothing_in_common_make_the_same_bytes(tmp_path, zoo):
    """Of a SavedModel: TensorFlow's converter is in it too."""
    trees = []
    variables = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    for name, changes in (("one", {}), ("second/one with spaces", variables)):
        project = tmp_path / name
        shutil.copytree(zoo / "legacy", project / "legacy")
        shutil.copyfile(zoo / "images.npz", project / "images.npz")
        config = CONFIG.replace("net.tflite", "legacy").replace("cal.npz", "images.npz")
        config = (
            config.replace('"c"', '"android"').replace("option =", "#") + 'data = "images.npz"\n'
        )
        (project / "edgeconv.toml").write_text(config)
        place = project if not changes else tmp_path
        arguments = ["--config", str(project / "edgeconv.toml")] if changes else []
        build(place, tmp_path / f"{name} cache", *arguments, **changes)
        models = {p.name: p.read_bytes() for p in (project / "net.tflites").glob("*.tflite")}
        assert models
        trees.append(tree(project / "app") | models)
    assert trees[0] == trees[1]
    assert not any(str(tmp_path).encode() in content for content in trees[0].values())


def entries(cache: Path) -> set[str]:
    """The entries of the stages; stamps are of one checkout."""
    found = (path.relative_to(cache) for path in cache.glob("*/*"))
    return {str(path) for path in found if path.parts[0] not in ("builds", "logs")}


@pytest.mark.slow
def test_a_second_checkout_takes_everything_from_the_shared_cache(tmp_path, expected):
    cache = tmp_path / "cache"
    first = write_project(tmp_path / "first")
    build(first, cache)
    made = entries(cache)
    assert made
    times = {name: (cache / name).stat().st_mtime_ns for name in made}
    second = write_project(tmp_path / "elsewhere" / "second")
    assert build(second, cache).startswith("built net")
    assert entries(cache) == made
    assert {name: (cache / name).stat().st_mtime_ns for name in made} == times
    assert published(second) == expected[1]


@pytest.mark.usefixtures("started_children")
def test_a_build_needs_no_network(tmp_path, expected):
    unshare = shutil.which("unshare")
    isolated = [unshare or "", "--net", "--map-root-user"]
    if not unshare or subprocess.run([*isolated, "true"], check=False).returncode:
        pytest.skip("a network of its own is not permitted here")
    project = write_project(tmp_path / "project")
    command = [*isolated, *edgeconv_command(), "build"]
    done = subprocess.run(
        command, cwd=project, env=environment(tmp_path / "cache"), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert published(project) == expected[1]


@pytest.mark.slow
def test_the_cache_is_pruned_while_builds_run(tmp_path, expected):
    cache = tmp_path / "cache"
    done = threading.Event()
    outcomes: list[tuple[int, str]] = []

    def prune() -> None:
        """Take away everything, again and again; all but what is in use looks old."""
        while not done.is_set():
            for entry in cache.glob("*/*/content"):
                with contextlib.suppress(FileNotFoundError):
                    os.utime(entry, (0, 0))
            ended = captured(
                [*edgeconv_command(), "cache", "prune", "--max-size", "0"], env=environment(cache)
            )
            outcomes.append((ended.returncode, ended.stdout))

    pruning = threading.Thread(target=prune)
    pruning.start()
    try:
        for number in range(3):
            seed = number % 2 + 1
            projects = [write_project(tmp_path / f"{number}-{name}") for name in "ab"]
            for project in projects:
                calibrate(project / "cal.npz", seed)
            for one in [start(project, cache) for project in projects]:
                end(one)
            assert [published(project) == expected[seed] for project in projects] == [True] * 2
    finally:
        done.set()
        pruning.join()
    assert {code for code, _ in outcomes} == {0}
    assert any(not said.startswith("0 entries") for _, said in outcomes)


class Watch:
    """`edgeconv build --watch`, and what it says, as it says it."""

    def __init__(self, project: Path, cache: Path) -> None:
        self._log = project.parent / "watch.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*edgeconv_command(), "build", "--watch"],
                cwd=project,
                env=environment(cache, PYTHONUNBUFFERED="1"),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._seen = 0

    def until(self, said: str) -> None:
        """Wait until something new has been said."""
        deadline = time.monotonic() + 240
        while said not in (text := self._log.read_text()[self._seen :]):
            assert self.process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.05)
        self._seen += text.index(said) + len(said)

    def is_silent(self, seconds: float) -> bool:
        time.sleep(seconds)
        return not self._log.read_text()[self._seen :].strip()


@pytest.fixture
def watched(tmp_path) -> Iterator[tuple[Path, Watch]]:
    project = write_project(tmp_path / "project")
    watch = Watch(project, tmp_path / "cache")
    try:
        yield project, watch
    finally:
        if watch.process.poll() is None:
            watch.process.terminate()
        watch.process.wait(240)


def settled() -> None:
    """Give the watch time to look at what is there."""
    time.sleep(1.0)


@pytest.mark.slow
def test_a_watch_builds_again_after_each_change_and_survives_errors(watched, expected):
    project, watch = watched
    built = f"built net in {project}/app/model\n"
    watch.until(built)
    assert published(project) == expected[1]
    calibrate(project / "cal.npz", 2)
    watch.until(built)
    assert published(project) == expected[2]
    assert watch.is_silent(1.5)

    (project / "edgeconv.toml").write_text(CONFIG.replace("target", "targte"))
    watch.until("edgeconv.toml:7: error: unknown option")
    watch.until("waiting for a change\n")
    (project / "edgeconv.toml").write_text(CONFIG + 'symbol = "renamed"\n')
    watch.until(built)
    assert (project / "app" / "model" / "renamed.h").is_file()

    # Samples that are not there, and come.
    (project / "edgeconv.toml").write_text(CONFIG.replace("cal.npz", "later.npz"))
    watch.until("edgeconv.toml:1: error: net: ")
    watch.until("waiting for a change\n")
    settled()
    (project / "cal.npz").rename(project / "later.npz")
    watch.until(built)

    watch.process.send_signal(signal.SIGINT)
    assert watch.process.wait(240) == 130


@pytest.mark.usefixtures("started_children")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_watch_that_ends_in_the_middle_leaves_no_process(watched, number):
    project, watch = watched
    deadline = time.monotonic() + 240
    # The build, and what it has started to convert.
    while len(children := psutil.Process(watch.process.pid).children(recursive=True)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    watch.process.send_signal(number)
    assert watch.process.wait(240) == 130
    _, alive = psutil.wait_procs(children, timeout=240)
    assert alive == []
    assert not list(project.glob("app/**/.edgeconv-embedding.json"))


@pytest.mark.slow
def test_the_build_of_the_watch_reads_what_the_files_have(watched, expected):
    """One change after another, faster than it builds: the last one counts."""
    project, watch = watched
    built = f"built net in {project}/app/model\n"
    watch.until(built)
    for seed in range(3, 10):
        calibrate(project / "cal.npz", seed)
        time.sleep(0.3)
    calibrate(project / "cal.npz", 2)
    deadline = time.monotonic() + 240
    while published(project) != expected[2]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert watch.process.poll() is None
