import compileall
import itertools
import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forking import close_place, forked_children, open_place
from hypothesis import HealthCheck, settings
from landing import LANDING_VARIABLE, landing_of, read_durations, write_durations
from once import made_once, shared_directory
from places import ROOT, TESTS

from edgeconv.embedding import plan
from edgeconv.embedding.interface import LITERT
from edgeconv.system.store.seals import state_directory

pytest_plugins = ["wording"]

# What tests need that not every machine has, by folder, module or fixture. Where it is not there
# they skip, and say why.
NEEDS = {
    "tensorflow": {"integration", "journeys"},
    "journey": {"journeys"},
    "browser": {"test_embed_web_page", "test_report_browser", "test_runtime_web"},
    "compiler": {
        "test_build_tools",
        "test_embed_bazel_build",
        "test_embed_c",
        "test_embed_cmake",
        "test_embed_kotlin",
        "test_embed_updates",
    },
    # A package index, to install from.
    "network": {
        "journeys",
        "old_runtime",
        "test_bench_versions",
        "test_embed_bazel_build",
        "test_embed_in_tflite_micro",
        "test_embed_kotlin",
        "test_embed_python",
        "test_embed_web_page",
        "test_old_quantizer",
        "test_runtime_web",
        "test_tflite_metadata_reader",
    },
    "root": {"read_only", "tiny_disk"},
}
# Of tests/integration: what drives other programs only.
WITHOUT = {
    "test_build_tools",
    "test_embed_bazel_build",
    "test_embed_c",
    "test_embed_cmake",
    "test_embed_kotlin",
    "test_embed_updates",
    "test_embed_web_page",
    "test_environments",
    "test_report_browser",
    "test_runtime_web",
    "test_spoken_recordings",
    "test_tune",
}
# Modules of tests/unit that take ten seconds and more of a processor each, and so are not `fast`.
LONG = {
    "test_contributing",
    "test_data_bombs",
    "test_evidence",
    "test_members",
    "test_published_places",
    "test_site",
}

# Tests of how children are started, confined, limited and ended: folders and modules.
STARTED = {"processes", "hostile", "test_runtime_web", "test_train_on_ray"}


# What takes minutes runs where it is asked for: tests, and measurements.
MINUTES = ("slow", "long")
LANDING = pytest.StashKey[str]()

_CACHES = itertools.count()

# How fast the machine is, and what else it does, is nothing that a test is about.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A change is judged by the same examples each time; new ones are tried each night.
settings.register_profile("edgeconv", settings.get_profile("random"), derandomize=True)
settings.load_profile("edgeconv")


@pytest.fixture(autouse=True, scope="session")
def _forked_children() -> Iterator[None]:
    """Children are forks of a process that has imported what they import; see forking.py."""
    with forked_children():
        yield


@pytest.fixture(autouse=True, scope="module")
def _started_where_that_is_tested(request, _forked_children) -> Iterator[None]:
    with forked_children(not STARTED & {request.path.stem, *request.path.parent.parts}):
        yield


@pytest.fixture
def started_children() -> Iterator[None]:
    """Of a test that looks at its children: each is started, as those of users are."""
    with forked_children(False):
        yield


@pytest.fixture(autouse=True)
def _cache_of_its_own(request, tmp_path_factory, monkeypatch):
    """No test reads or writes the user's cache, or another test's."""
    if "tmp_path" in request.fixturenames:
        cache = request.getfixturevalue("tmp_path") / "cache"
    else:
        # Thousands of tests need no directory, which takes longer to make than most of them.
        cache = tmp_path_factory.getbasetemp() / "caches" / str(next(_CACHES))
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(cache))


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """A cache that the tests of a module share: what is made once is there for all."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True, scope="session")
def _settings_of_its_own(tmp_path_factory) -> Iterator[None]:
    """No test touches the user's settings, notes and key; what a module converts is noted.

    The processes of xdist have one key: with others they would make each environment anew that
    they share, while another one uses it.
    """
    shared = shared_directory(tmp_path_factory) / "key"
    key = made_once(shared, lambda root: (root / "cache-key").write_bytes(secrets.token_bytes(32)))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        patch.delenv("EDGECONV_CACHE_KEY", raising=False)
        state_directory().mkdir(mode=0o700)
        kept = state_directory() / "cache-key"
        kept.touch(mode=0o600)
        kept.write_bytes((key / "cache-key").read_bytes())
        yield


@pytest.fixture(autouse=True, scope="session")
def _golden_vectors_of_litert() -> Iterator[None]:
    """The default, tflite-micro, has an environment that tests do without if they do not name it.

    Where edgeconv is a process, its default is tested.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MICRO", LITERT)
        yield


@pytest.fixture(autouse=True, scope="session")
def _hang_up_ends_a_process() -> Iterator[None]:
    """Also under `nohup`, whose children ignore it, and those that tests start with them."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def tiny_disk(tmp_path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "tiny"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs is not permitted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def read_only(tmp_path) -> Iterator[Path]:
    """A directory that not even root can write, with `model.tflite` in it."""
    place = tmp_path / "read-only"
    place.mkdir()
    (place / "model.tflite").write_bytes(b"old")
    mount = f"mount --bind '{place}' '{place}' && mount -o remount,bind,ro '{place}'"
    if os.geteuid() == 0:
        if subprocess.run(["sh", "-c", mount], capture_output=True, check=False).returncode:
            pytest.skip("a read-only mount is not permitted here")
        yield place
        subprocess.run(["umount", str(place)], check=True)
    else:
        place.chmod(0o555)
        yield place
        place.chmod(0o755)


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package once: each child would, where Python is told to keep nothing."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(ROOT / "edgeconv", quiet=2)
        open_place()
    # xdist takes files as they come, of which the long ones are first, and not by how many tests.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_unconfigure(config: pytest.Config) -> None:
    """Nothing of gigabytes stays behind, of which pytest would keep three."""
    if not hasattr(config, "workerinput"):
        close_place()
        shared = config._tmp_path_factory.getbasetemp() / "shared"
        shutil.rmtree(shared / "installation", ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What is fast is in tests/unit: -m fast imports nothing else, which takes as long."""
    is_elsewhere = collection_path.parent == TESTS and collection_path.name != "unit"
    is_fast_only = config.getoption("markexpr") == "fast"
    return (is_fast_only and (is_elsewhere or collection_path.stem in LONG)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say what each test needs; leave out what takes minutes, unless -m asks for it."""
    for item in items:
        names = {item.path.stem, item.path.parent.name, *getattr(item, "fixturenames", ())}
        for mark, needed_by in NEEDS.items():
            if names & needed_by and not (mark == "tensorflow" and item.path.stem in WITHOUT):
                item.add_marker(mark)
        needs = any(map(item.get_closest_marker, (*NEEDS, *MINUTES)))
        if "unit" in item.path.parts and item.path.stem not in LONG and not needs:
            item.add_marker("fast")
    # Whatever is short fills up what the long ones leave.
    items.sort(key=lambda item: "unit" in item.path.parts)
    left_out = set(items) - set(_wanted(config, items))
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _wanted(config: pytest.Config, items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Of what takes long, what -m asks for, or what belongs to the landing."""
    asked = config.getoption("markexpr")
    ids = {
        mark: {item.nodeid for item in items if item.get_closest_marker(mark)} for mark in MINUTES
    }
    if (number := config.getoption("landing")) is not None:
        os.environ[LANDING_VARIABLE] = str(number)
        marked = ((item.nodeid, item.get_closest_marker("xdist_group")) for item in items)
        groups = {test: mark.args[0] for test, mark in marked if mark}
        landing = landing_of(number, ids["slow"], ids["long"], read_durations(), groups)
        # A worker of xdist gives it to the process that writes to the terminal.
        getattr(config, "workeroutput", {})["landing"] = config.stash[LANDING] = landing.about
        for item in items:
            if item.nodeid in landing.units and item.nodeid not in groups:
                # With --dist loadgroup, what shares fixtures shares a process.
                item.add_marker(pytest.mark.xdist_group(landing.units[item.nodeid]))
        ids = {"slow": ids["slow"] - landing.slow, "long": ids["long"] - landing.long}
    else:
        ids = {mark: tests for mark, tests in ids.items() if mark not in asked}
    unwanted = set().union(*ids.values())
    return (item for item in items if item.nodeid not in unwanted)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("edgeconv")
    group.addoption(
        "--landing",
        type=int,
        metavar="NUMBER",
        help="with -m 'slow or long': the part of the slow tests, and the sample of the long ones, "
        "of the landing after so many commits",
    )
    group.addoption(
        "--keep-durations",
        action="store_true",
        help="keep how long slow and long tests take, in tests/durations.json",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LANDING] = getattr(node, "workeroutput", {}).get("landing", "")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was chosen of what takes minutes, and keep how long it took."""
    if about := config.stash.get(LANDING, ""):
        terminalreporter.write_line(about)
    if config.getoption("keep_durations"):
        took: dict[str, float] = {}
        for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("")):
            if set(MINUTES) & {*report.keywords}:
                # xdist puts the group behind.
                test = re.sub(r"@(tests/.*|[a-z ]+)$", "", report.nodeid)
                took[test] = took.get(test, 0.0) + report.duration
        write_durations(took)
